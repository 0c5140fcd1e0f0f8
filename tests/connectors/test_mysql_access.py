"""What keeps a MariaDB sink from its table: credentials, rights, locks. No message has a secret in it."""

from __future__ import annotations

import os
import re
import signal
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

import boatlift as bl
from boatlift.connectors import mysql
from boatlift.connectors.databases import transactions
from boatlift.connectors.databases.mysql import refusals
from boatlift.dataflow.contracts import Outcome
from boatlift.errors import InvalidError, UnavailableError
from boatlift.testing.mysql_server import MysqlServer
from connectors.conformance import context, put, visible
from connectors.database_cases import SECRET, opened, refused
from connectors.interrupted import Child
from connectors.sink_cases import MysqlCase
from connectors.sink_crash_laws import commit_traced
from support.mysql import query, url
from support.postgres import table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _impatient(mysql_server: MysqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "RETRY_FOR", 0.5)


def refusal(given: str, condition: str) -> str:
    return refused(mysql(given, table="results", key=["k"], lock_timeout=0.2), condition)


@pytest.mark.parametrize(
    ("given", "condition", "told"),
    [
        (f"mysql://boatlift:{SECRET}@/test", "NOT_ADMITTED", "Access denied.*MYSQL_PWD"),
        (f"mysql://nobody:{SECRET}@/test", "NOT_ADMITTED", "Access denied"),
        ("mysql://boatlift@/nowhere", "SINK_UNSUITABLE", "there is no database nowhere .*CREATE DATABASE `nowhere`"),
        (f"mysql://boatlift:{SECRET}@:1/test", "SINK_FAILED", "run again once the server answers"),
        (f"mysql://boatlift:{SECRET}@no.such.host.invalid/test", "SINK_FAILED", "run again once the server answers"),
        ("mysql://boatlift@/test?ssl_ca=/nowhere.pem", "BAD_OPTION", "No such file.*correct them"),
        ("mysql://boatlift@/test?ssl_verify_identity=true", "NOT_ADMITTED", "SSL"),
    ],
)
def test_a_server_that_cannot_be_reached_so(given: str, condition: str, told: str) -> None:
    assert re.search(told, refusal(given, condition))


def test_user_and_password_come_from_the_option_file_and_no_other_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".my.cnf").write_text(
        f"[client]\nsocket = /nowhere\nhost = other\nuser = boatlift\nno-beep\npassword = {os.environ['MYSQL_PWD']}\n"
    )
    monkeypatch.delenv("MYSQL_PWD")
    monkeypatch.setenv("HOME", str(tmp_path))
    place = f"mysql:///{os.environ['MYSQL_TEST_DATABASE']}"
    sink = mysql(place, table="results", key=["k"])
    assert sink.open(context(1)) is None
    sink.close()


def test_an_option_file_that_cannot_be_read_is_in_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".my.cnf").write_text(f"password = {SECRET}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    refusal(url(), "BAD_OPTION")


def test_a_password_beyond_ascii_is_taken(mysql_server: MysqlServer) -> None:
    query("CREATE USER strange IDENTIFIED BY 'gehäim/@:'")
    query(f"GRANT ALL ON {os.environ['MYSQL_TEST_DATABASE']}.* TO strange")
    try:
        sink = mysql(url().replace("boatlift@", "strange:geh%C3%A4im%2F%40%3A@"), table="results", key=["k"])
        assert sink.open(context(1)) is None
        assert "im/@" not in repr(sink._dialect.address) + repr(sink.describe())
        sink.close()
    finally:
        query("DROP USER strange")


def test_a_url_with_a_password_is_in_no_plan(spark: SparkSession) -> None:
    flow = bl.Dataflow("flow")
    flow.source("rows", bl.generator({"k": "id"}, rows_per_step=1, steps=1)).sink(
        "out", bl.mysql(f"mysql://boatlift:{SECRET}@db/shop", table="t", key=["k"])
    )
    assert SECRET not in str(bl.plan(flow, spark=spark))
    assert SECRET not in repr(flow)


def test_a_database_that_was_missing_comes_by_the_statement_of_the_message(tmp_path: Path) -> None:
    told = refusal(url(database="later"), "SINK_UNSUITABLE")
    query(re.findall(r"\((CREATE .*?)\)", told)[0])
    try:
        sink = mysql(url(database="later"), table="results", key=["k"])
        sink.open(context(1))
        assert put(sink, tmp_path / "x", 0) is Outcome.APPENDED
        sink.close()
    finally:
        query("DROP DATABASE later")


@pytest.fixture
def poor(mysql_server: MysqlServer) -> Iterator[str]:
    """A user without rights."""
    query(f"CREATE USER poor IDENTIFIED BY '{SECRET}'")
    yield url().replace("boatlift@", f"poor:{SECRET}@")
    query("DROP USER poor")


def grant(rights: str, word: str = "GRANT") -> None:
    query(f"{word} {rights} ON {os.environ['MYSQL_TEST_DATABASE']}.* {'TO' if word == 'GRANT' else 'FROM'} poor")


def test_rights_that_are_missing_are_named_and_suffice(poor: str, tmp_path: Path) -> None:
    refusal(poor, "NOT_PERMITTED")
    sink = mysql(poor, table="results", key=["k"])

    def two_steps() -> None:
        sink.open(context(1))
        for step in range(2):
            put(sink, tmp_path / "x", step)

    needed = r"\[NOT_PERMITTED\].*SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER"
    for right in ("SELECT", "CREATE", "INSERT, UPDATE", "DELETE, ALTER, CREATE TEMPORARY TABLES"):
        with pytest.raises(InvalidError, match=needed) as told:
            two_steps()
        assert SECRET not in "".join(traceback.format_exception(told.value))
        grant(right)
    held = sink.open(context(2))
    for step in range(0 if held is None else held.step + 1, 3):
        assert put(sink, tmp_path / "x", step) is Outcome.APPENDED
    grant("CREATE TEMPORARY TABLES", "REVOKE")
    sink.open(context(3))
    with pytest.raises(InvalidError, match=r"\[NOT_PERMITTED\]"):
        put(sink, tmp_path / "x", 3)
    grant("CREATE TEMPORARY TABLES")
    sink.open(context(3))
    assert put(sink, tmp_path / "x", 3) is Outcome.APPENDED
    assert sorted(query("SELECT * FROM results"), key=repr) == visible(sink, 4)
    sink.close()


@pytest.mark.parametrize(
    "lock", ["UPDATE results SET value = 1", "SELECT * FROM _boatlift_sinks FOR UPDATE", "LOCK TABLE results READ"]
)
def test_a_foreign_lock_is_named_and_the_statement_of_the_message_ends_it(
    mysql_server: MysqlServer, tmp_path: Path, lock: str
) -> None:
    sink = opened(MysqlCase, 1, tmp_path / "x")
    holder = mysql_server.connect(os.environ["MYSQL_TEST_DATABASE"], autocommit=False)
    holder.query(lock)
    pid = holder.thread_id()
    with pytest.raises(UnavailableError, match=r"\[SINK_LOCKED\].* 1 s,.* by session \d+ of user boatlift") as caught:
        put(sink, tmp_path / "x", 1)
    assert re.findall(r"KILL \d+", str(caught.value)) == [f"KILL {pid}"]
    query(f"KILL {pid}")
    sink.open(context(1))
    assert put(sink, tmp_path / "x", 1) is Outcome.APPENDED
    with pytest.raises(pymysql.OperationalError):
        holder.query("SELECT 1")
    assert sorted(query("SELECT * FROM results"), key=repr) == visible(sink, 2)


def test_a_lock_whose_holder_the_user_may_not_see_is_reported(
    mysql_server: MysqlServer, poor: str, tmp_path: Path
) -> None:
    opened(MysqlCase, 1, tmp_path / "x").close()
    grant("ALL")
    with mysql_server.connect(os.environ["MYSQL_TEST_DATABASE"], autocommit=False) as holder:
        holder.query("UPDATE results SET value = 1")
        sink = mysql(poor, table="results", key=["k"], lock_timeout=0.2)
        sink.open(context(2))
        with pytest.raises(UnavailableError, match=r"\[SINK_LOCKED\].*SHOW PROCESSLIST lists sessions"):
            put(sink, tmp_path / "x", 1)


def test_a_lock_that_is_given_back_is_waited_for(mysql_server: MysqlServer, tmp_path: Path) -> None:
    sink = opened(MysqlCase, 1, tmp_path / "x", lock_timeout=60.0)
    with mysql_server.connect(os.environ["MYSQL_TEST_DATABASE"], autocommit=False) as holder:
        holder.query("UPDATE results SET value = 1")
        timer = threading.Timer(1.5, holder.rollback)
        timer.start()
        assert put(sink, tmp_path / "x", 1) is Outcome.APPENDED
        timer.join()


@pytest.mark.crash
def test_a_frozen_owner_of_another_user_is_named_and_ended_by_the_statement_of_the_message(
    poor: str, tmp_path: Path
) -> None:
    """The successor's user may see it, but not end it; an administrator may."""
    folder = tmp_path / "place"
    sink = MysqlCase.make(folder)
    sink.open(context(1))
    put(sink, folder, 0)
    sink.close()
    grant("ALL")
    query("GRANT PROCESS ON *.* TO poor")
    points = iter(range(20, 400, 5))
    while True:
        child = Child(commit_traced, MysqlCase, folder, 2, 1, point=next(points), number=signal.SIGSTOP)
        assert child.stopped(), "a commit has no statement behind its lock"
        if not query("SELECT 1 FROM _boatlift_sinks FOR UPDATE SKIP LOCKED"):
            break
        child.kill()
        child.process.join()
    successor = mysql(poor, table=table_of(folder), key=["k"], lock_timeout=0.2)
    with pytest.raises(UnavailableError, match=r"\[SINK_LOCKED\].*of user boatlift.*an administrator") as told:
        successor.open(context(3))
    query(re.findall(r"KILL \d+", str(told.value))[0])
    held = successor.open(context(3))
    assert held is not None
    assert held.step == 0
    assert put(successor, folder, 1) is Outcome.APPENDED
    child.go_on()
    assert child.answer() == "FENCED"
    assert MysqlCase.read(folder) == visible(successor, 2)
    successor.close()


def test_a_transaction_that_its_owner_never_committed_is_ended_also_after_a_new_connection(
    mysql_server: MysqlServer, tmp_path: Path
) -> None:
    """The ledger does not have the session's number: the owner's user lock tells it."""
    older = opened(MysqlCase, 1, tmp_path / "x", lock_timeout=60.0)
    older.open(context(2))
    older.close()

    def hangs(session: Any) -> None:
        assert older._entries.entry_of_sink(session, context(2), lock=True) is not None
        newer = MysqlCase.sink(table="results", key=["k"], lock_timeout=60.0)
        held = newer.open(context(3))
        assert held is not None
        assert put(newer, tmp_path / "x", 1) is Outcome.APPENDED
        raise RuntimeError("goes on")

    with pytest.raises((RuntimeError, pymysql.MySQLError), match="goes on"):
        older._transactions.transaction(hangs, older._name(context(2)))


def test_deadlocks_are_tried_again(mysql_server: MysqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session takes two rows in the other order than the step; it has changed more, so the step is the victim."""
    seen: list[int] = []
    passing = refusals.is_passing
    monkeypatch.setattr(refusals, "is_passing", lambda error: seen.append(refusals.number_of(error)) or passing(error))
    sink = opened(MysqlCase, 1, tmp_path / "x", lock_timeout=30.0)
    query("CREATE TABLE other (x int PRIMARY KEY, y int) ENGINE=InnoDB")
    query("INSERT INTO other SELECT seq, 1 FROM seq_1_to_5000")
    query("CREATE TRIGGER takes AFTER UPDATE ON results FOR EACH ROW UPDATE other SET y = 2 WHERE x = 1")
    rival = mysql_server.connect(os.environ["MYSQL_TEST_DATABASE"], autocommit=False)
    rival.query("UPDATE other SET y = 3")
    writer = threading.Thread(target=lambda: put(sink, tmp_path / "x", 1))
    writer.start()
    while not query("SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"):
        threading.Event().wait(0.01)
    rival.query("UPDATE results SET value = 7")
    rival.commit()
    writer.join(60)
    assert not writer.is_alive()
    assert query("SELECT max(step) FROM _boatlift_steps") == [(1,)]
    assert 1213 in seen
