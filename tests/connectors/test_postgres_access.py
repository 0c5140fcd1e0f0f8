"""What keeps a PostgreSQL sink from its table: credentials, rights, servers, locks. No message has a secret in it."""

from __future__ import annotations

import re
import signal
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import boatlift as bl
from boatlift.connectors import postgres
from boatlift.connectors.databases import transactions
from boatlift.connectors.databases.postgres import dialect, refusals
from boatlift.dataflow.contracts import Outcome
from boatlift.errors import InvalidError, UnavailableError
from boatlift.testing.postgres_server import PostgresServer
from connectors.conformance import context, put, visible
from connectors.database_cases import SECRET, opened, refused
from connectors.interrupted import Child
from connectors.sink_cases import PostgresCase
from connectors.sink_crash_laws import commit_traced
from support.postgres import CONNINFO, query, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _impatient(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "RETRY_FOR", 0.5)


def refusal(given: str, condition: str) -> str:
    return refused(postgres(given, table="results", key=["k"], lock_timeout=0.2), condition)


@pytest.mark.parametrize(
    ("conninfo", "condition", "told"),
    [
        (f"password={SECRET}", "NOT_ADMITTED", "password authentication failed.*PGPASSWORD"),
        (f"user=nobody password={SECRET}", "NOT_ADMITTED", "PGUSER"),
        ("dbname=nowhere", "SINK_UNSUITABLE", 'there is no database nowhere .*CREATE DATABASE "nowhere"'),
        ("port=1", "SINK_FAILED", "run again once the server answers"),
        ("host=no.such.host.invalid", "SINK_FAILED", "run again once the server answers"),
        ("sslmode=require", "SINK_FAILED", "server does not support SSL"),
    ],
)
def test_a_server_that_cannot_be_reached_so(conninfo: str, condition: str, told: str) -> None:
    assert re.search(told, refusal(conninfo, condition))


@pytest.mark.parametrize("password", ["p@geheim", "se/geheim", "a:b@c/geheim"])
def test_a_password_that_is_not_encoded_is_in_no_message(password: str) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*%40") as caught:
        postgres(f"postgresql://bob:{password}@db/shop", table="t")
    assert "geheim" not in str(caught.value)
    assert "geheim" not in repr(postgres("postgresql://bob:p%40geheim@db/shop", table="t").describe())


def test_a_url_with_a_password_is_in_no_plan_and_no_message(
    postgres_server: PostgresServer, spark: SparkSession
) -> None:
    url = f"postgresql://boatlift:{SECRET}@127.0.0.1:{postgres_server.port}/postgres"
    refusal(url, "NOT_ADMITTED")
    flow = bl.Dataflow("flow")
    flow.source("rows", bl.generator({"k": "id"}, rows_per_step=1, steps=1)).sink(
        "out", bl.postgres(url, table="t", key=["k"])
    )
    assert SECRET not in str(bl.plan(flow, spark=spark))
    assert SECRET not in repr(flow)


def test_a_database_that_was_missing_comes_by_the_statement_of_the_message(tmp_path: Path) -> None:
    told = refusal("dbname=later", "SINK_UNSUITABLE")
    query(re.findall(r"\((CREATE .*?)\)", told)[0])
    try:
        sink = postgres("dbname=later", table="results", key=["k"])
        sink.open(context(1))
        assert put(sink, tmp_path / "x", 0) is Outcome.APPENDED
        sink.close()
    finally:
        query("DROP DATABASE later")


def test_a_schema_that_is_missing_is_named() -> None:
    with pytest.raises(InvalidError, match=r"\[SINK_UNSUITABLE\].*schema \"sales\" does not exist.*CREATE SCHEMA"):
        postgres(CONNINFO, table="sales.routes", key=["k"]).open(context(1))


@pytest.fixture
def poor(postgres_server: PostgresServer) -> Iterator[str]:
    """A role without rights."""
    query(f"CREATE ROLE poor LOGIN PASSWORD '{SECRET}'")
    query("DO $$ BEGIN EXECUTE 'REVOKE ALL ON DATABASE ' || current_database() || ' FROM PUBLIC'; END $$")
    query("GRANT CONNECT ON DATABASE " + query("SELECT current_database()")[0][0] + " TO poor")
    yield f"user=poor password={SECRET}"
    query("DROP OWNED BY poor")
    query("DROP ROLE poor")


def test_rights_that_are_missing_are_named_and_suffice(poor: str, tmp_path: Path) -> None:
    sink = postgres(poor, table="results", key=["k"])
    name = query("SELECT current_database()")[0][0]
    grants = [f"GRANT CREATE, TEMPORARY ON DATABASE {name} TO poor", "GRANT USAGE, CREATE ON SCHEMA public TO poor"]
    for grant in grants:
        with pytest.raises(InvalidError, match=r"\[NOT_PERMITTED\].*CREATE, TEMPORARY.*USAGE, CREATE") as caught:
            sink.open(context(1))
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        query(grant)
    sink.open(context(1))
    assert put(sink, tmp_path / "x", 0) is Outcome.APPENDED
    query("REVOKE TEMPORARY ON DATABASE " + name + " FROM poor")
    with pytest.raises(InvalidError, match=r"\[NOT_PERMITTED\]"):
        put(sink, tmp_path / "x", 1)
    query(grants[0])
    assert put(sink, tmp_path / "x", 1) is Outcome.APPENDED
    sink.close()


def test_a_ledger_of_another_role_needs_the_rights_of_the_message(poor: str, tmp_path: Path) -> None:
    rich = postgres(CONNINFO, table="rich", key=["k"])
    rich.open(context(1, sink="rich"))
    name = query("SELECT current_database()")[0][0]
    query(f"GRANT CREATE, TEMPORARY ON DATABASE {name} TO poor")
    query("GRANT USAGE, CREATE ON SCHEMA public TO poor")
    sink = postgres(poor, table="results", key=["k"])
    with pytest.raises(InvalidError, match=r"\[NOT_PERMITTED\].*USAGE on schema _boatlift, and SELECT, INSERT"):
        sink.open(context(1))
    query("GRANT USAGE ON SCHEMA _boatlift TO poor")
    query("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA _boatlift TO poor")
    sink.open(context(1))
    assert put(sink, tmp_path / "x", 0) is Outcome.APPENDED
    sink.close()


def test_a_replica_is_refused_with_what_to_do_and_taken_once_it_is_promoted(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    postgres_server.kill()
    (postgres_server._folder / "data" / "standby.signal").touch()
    postgres_server.restart()
    try:
        with pytest.raises(
            InvalidError, match=r"\[SINK_UNSUITABLE\].* takes no writes .*target_session_attrs=read-write"
        ):
            postgres(CONNINFO, table="results", key=["k"]).open(context(1))
    finally:
        query("SELECT pg_promote()")
    opened(PostgresCase, 1, tmp_path / "x")


def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "_OLDEST_SERVER", 990_000)
    with pytest.raises(InvalidError, match=r"\[SINK_UNSUITABLE\].*has version 15: the sink needs PostgreSQL 99"):
        postgres(CONNINFO, table="results", key=["k"]).open(context(1))


@pytest.mark.parametrize(
    "lock",
    ["LOCK TABLE results IN SHARE MODE", "UPDATE results SET value = 1", "SELECT * FROM _boatlift.sinks FOR UPDATE"],
)
def test_a_foreign_lock_is_named_and_the_statement_of_the_message_ends_it(
    postgres_server: PostgresServer, tmp_path: Path, lock: str
) -> None:
    sink = opened(PostgresCase, 1, tmp_path / "x")
    name = query("SELECT current_database()")[0][0]
    with postgres_server.connect(name, application_name="somebody") as holder:
        holder.execute("BEGIN")
        holder.execute(lock)
        pid = holder.info.backend_pid
        with pytest.raises(
            UnavailableError, match=r"\[SINK_LOCKED\].* 0\.2 s by process \d+ of role boatlift"
        ) as caught:
            put(sink, tmp_path / "x", 1)
        found = re.findall(r"SELECT pg_terminate_backend\(\d+\)", str(caught.value))
        assert found == [f"SELECT pg_terminate_backend({pid})"]
        query(found[0])
        sink.open(context(1))
        assert put(sink, tmp_path / "x", 1) is Outcome.APPENDED
        with pytest.raises(psycopg.OperationalError):
            holder.execute("SELECT 1")
    assert sorted(query("SELECT * FROM results"), key=repr) == visible(sink, 2)


def test_a_lock_that_is_given_back_is_waited_for(postgres_server: PostgresServer, tmp_path: Path) -> None:
    sink = opened(PostgresCase, 1, tmp_path / "x", lock_timeout=60.0)
    name = query("SELECT current_database()")[0][0]
    with postgres_server.connect(name) as holder:
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE results")
        timer = threading.Timer(1.5, lambda: holder.execute("ROLLBACK"))
        timer.start()
        assert put(sink, tmp_path / "x", 1) is Outcome.APPENDED
        timer.join()


@pytest.mark.crash
def test_a_frozen_owner_of_another_role_is_named_and_ended_by_the_statement_of_the_message(
    poor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role of the successor may not end it; an administrator may."""
    folder = tmp_path / "place"
    sink = PostgresCase.make(folder)
    sink.open(context(1))
    put(sink, folder, 0)
    sink.close()
    name = query("SELECT current_database()")[0][0]
    query(f"GRANT TEMPORARY ON DATABASE {name} TO poor")
    query("GRANT USAGE ON SCHEMA _boatlift, public TO poor")
    tables = f"_boatlift.sinks, _boatlift.steps, _boatlift.notes, {table_of(folder)}"
    query(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO poor")
    points = iter(range(20, 400, 5))
    while True:
        child = Child(commit_traced, PostgresCase, folder, 2, 1, point=next(points), number=signal.SIGSTOP)
        assert child.stopped(), "a commit has no statement behind its lock"
        if not query("SELECT 1 FROM _boatlift.sinks FOR UPDATE SKIP LOCKED"):
            break
        child.kill()
        child.process.join()
    successor = postgres(poor, table=table_of(folder), key=["k"], lock_timeout=0.2)
    with pytest.raises(
        UnavailableError, match=r"\[SINK_LOCKED\].*boatlift flow/out 2.*as that role or a superuser"
    ) as told:
        successor.open(context(3))
    query(re.findall(r"SELECT pg_terminate_backend\(\d+\)", str(told.value))[0])
    held = successor.open(context(3))
    assert held is not None
    assert held.step == 0
    assert put(successor, folder, 1) is Outcome.APPENDED
    child.go_on()
    assert child.answer() == "FENCED"
    assert PostgresCase.read(folder) == visible(successor, 2)
    successor.close()


def test_deadlocks_are_tried_again(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session takes two rows in the other order than the step."""
    seen: list[str | None] = []
    passing = refusals.is_passing
    monkeypatch.setattr(refusals, "is_passing", lambda error: seen.append(error.sqlstate) or passing(error))
    sink = opened(PostgresCase, 1, tmp_path / "x", lock_timeout=30.0)
    name = query("SELECT current_database()")[0][0]
    query("CREATE TABLE other (x int)")
    query("INSERT INTO other VALUES (1)")
    query("CREATE FUNCTION takes() RETURNS trigger AS $$ BEGIN UPDATE other SET x = 2; RETURN NULL; END $$ "
          "LANGUAGE plpgsql")  # fmt: skip
    query("CREATE TRIGGER takes AFTER INSERT OR UPDATE ON results FOR EACH STATEMENT EXECUTE FUNCTION takes()")
    sink.close()
    query("ALTER ROLE boatlift SET deadlock_timeout = '700ms'")
    sink.open(context(1))
    query("ALTER ROLE boatlift RESET deadlock_timeout")
    with postgres_server.connect(name) as rival:
        rival.execute("SET deadlock_timeout = '30s'")
        rival.execute("BEGIN")
        rival.execute("UPDATE other SET x = 3")
        done = threading.Thread(target=lambda: (rival.execute("UPDATE results SET value = 7"), rival.execute("COMMIT")))
        writer = threading.Thread(target=lambda: put(sink, tmp_path / "x", 1))
        writer.start()
        while not query("SELECT 1 FROM pg_locks WHERE NOT granted"):
            threading.Event().wait(0.01)
        done.start()
        for thread in (writer, done):
            thread.join(60)
            assert not thread.is_alive()
    assert query("SELECT max(step) FROM _boatlift.steps") == [(1,)]
    assert "40P01" in seen
