"""Rows that a query inserts are a push: recorded whole, once, under a key, by the owner of the store."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.api.inserted import insertion_of
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError
from boatlift.runtime.host import inserts
from support.commands import begun, boatlift, exit_status
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROGRAM = """
import os, signal
from pathlib import Path

from pyspark.sql import functions as F

import boatlift as bl
from boatlift.connectors.push.source import PushSource

HERE = Path(__file__).parent
recorded = PushSource.push

def die(moment):
    if (HERE / moment).exists():
        (HERE / moment).unlink()
        os.kill(os.getpid(), signal.SIGKILL)

def push(self, *given):
    die("unrecorded")
    receipt = recorded(self, *given)
    die("unanswered")
    return receipt

PushSource.push = push

flow = bl.Dataflow("shop")
orders = flow.source("orders", bl.push("id LONG NOT NULL, item STRING, price DOUBLE"))
orders.sink("taken", bl.parquet(HERE / "taken"))
orders.group_by("item").agg("sums", F.count("*").alias("n"), F.sum("price").alias("total"), policy=bl.Eager())
stock = flow.source("stock", bl.push("item STRING, pieces INT NOT NULL", upsert=["item"]))
stock.sink("stock_now", bl.sqlite(HERE / "shop.db", table="stock", key=["item"]))
passing = flow.source("passing", bl.push("n INT", ack="stable"))
passing.sink("passed", bl.parquet(HERE / "passed"))
flow.source("ticks", bl.generator({"k": "id"}, rows_per_step=1, steps=1)).sink("ticked", bl.parquet(HERE / "ticked"))
"""


class Shop:
    """A dataflow that takes orders, in a folder."""

    def __init__(self, folder: Path) -> None:
        (folder / "shop.py").write_text(PROGRAM)
        names: dict[str, Any] = {"__file__": str(folder / "shop.py"), "__name__": "shop"}
        exec(compile(PROGRAM, "shop.py", "exec"), names)
        self.flow: bl.Dataflow = names["flow"]
        self.folder, self.store = folder, folder / "store"

    def taken(self) -> list[tuple[Any, ...]]:
        files = sorted((self.folder / "taken").glob("*.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return sorted((row["id"], row["item"], row["price"]) for row in rows)

    def stock(self) -> list[tuple[str, int]]:
        with closing(sqlite3.connect(self.folder / "shop.db")) as database:
            return database.execute("SELECT item, pieces FROM stock ORDER BY item").fetchall()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    from boatlift.connectors.push.source import PushSource

    monkeypatch.setattr(PushSource, "push", PushSource.push)  # the program replaces it
    return Shop(tmp_path)


@pytest.fixture
def running(shop: Shop, spark: SparkSession) -> Iterator[bl.Running]:
    found = bl.start(shop.flow, shop.store, spark=spark)
    yield found
    found.stop()


def receipt(answer: Any) -> tuple[str, int, bool]:
    (row,) = answer.rows.to_pylist()
    return row["key"], row["rows"], row["repeated"]


def test_rows_of_a_statement_are_taken_once_and_all(shop: Shop, running: bl.Running) -> None:
    first = "INSERT INTO orders VALUES (1, 'boat', 9.5), (2, NULL, 1)"
    assert receipt(running.sql(first, key="1")) == ("1", 2, False)
    assert receipt(running.sql(first, key="1")) == ("1", 2, True)
    running.sql("insert into ORDERS (price, id) select 2, 3", key="2")
    running.sql("INSERT INTO TABLE `orders` BY NAME (SELECT 'lock' AS item, 4L AS id)", key="3")
    running.sql("INSERT INTO stock (item, pieces) VALUES ('boat', 3), ('lock', 1);", key="4")
    running.sql("INSERT INTO stock VALUES ('oar', 2)", key="5")
    running.sql("INSERT INTO stock (item, _deleted) VALUES ('lock', true)", key="6")
    assert receipt(running.sql("INSERT INTO orders SELECT * FROM VALUES (1, 'a', 1) t WHERE false"))[1] == 0
    expected = [(1, "boat", 9.5), (2, None, 1.0), (3, None, 2.0), (4, "lock", None)]
    until(lambda: shop.taken() == expected and shop.stock() == [("boat", 3), ("oar", 2)])
    with pytest.raises(InvalidError, match=r"\[KEY_REUSED\].*'1'"):
        running.sql("INSERT INTO orders VALUES (1, 'boat', 9.25), (2, NULL, 1)", key="1")
    with pytest.raises(InvalidError, match=r"\[KEY_REUSED\]"):
        shop.flow.push("orders", {"id": 1}, key="1")
    assert shop.flow.pushed("orders", "3") is not None
    assert shop.taken() == expected


def test_a_statement_over_tables_is_taken_once_though_its_query_finds_other_rows_by_then(
    shop: Shop, running: bl.Running
) -> None:
    shop.flow.push("orders", [{"id": n, "item": "boat", "price": 1.0} for n in range(3)])
    until(lambda: running.sql("SELECT sum(n) AS n FROM sums").rows.to_pylist() == [{"n": 3}])
    statement = "INSERT INTO orders SELECT 10 + n, concat(item, 's'), total FROM sums WHERE item = 'boat'"
    answer = running.sql(statement, key="report")
    assert (receipt(answer), set(answer.steps)) == (("report", 1, False), {"sums"})
    shop.flow.push("orders", {"id": 4, "item": "boat", "price": 1.0})
    until(lambda: running.sql("SELECT n FROM sums WHERE item = 'boat'").rows.to_pylist() == [{"n": 4}])
    assert receipt(running.sql(statement, key="report")) == ("report", 1, True)
    until(lambda: len(shop.taken()) == 5)
    assert (13, "boats", 3.0) in shop.taken()


BAD = [
    ("INSERT INTO nowhere VALUES (1)", InvalidError, r"\[BAD_OPTION\] nowhere is not in shop.*orders, stock"),
    ("INSERT INTO ticks VALUES (1)", InvalidError, r"\[BAD_OPTION\] ticks takes no rows.*orders, stock"),
    ("INSERT INTO sums VALUES ('a', 1, 2)", InvalidError, r"\[BAD_OPTION\] sums takes no rows"),
    ("INSERT INTO orders VALUES (1, 'a')", InvalidError, r"\[BAD_OPTION\].*gives 2 columns, where orders takes 3"),
    ("INSERT INTO orders (id, size) VALUES (1, 2)", InvalidError, r"\[BAD_OPTION\].*id, item, price.*\(size\)"),
    ("INSERT INTO orders (id, id) VALUES (1, 2)", InvalidError, r"\[BAD_OPTION\].*once"),
    ("INSERT INTO orders BY NAME SELECT 1 AS id, 2 AS size", DataError, r"\[BAD_ROW\].*size"),
    ("INSERT INTO orders (item) VALUES ('a')", DataError, r"\[BAD_ROW\].*id must not be NULL"),
    ("INSERT INTO orders VALUES ('1', 'a', 1)", DataError, r"\[BAD_ROW\] column id .*CAST"),
    ("INSERT INTO orders VALUES (1, 2, 1)", DataError, r"\[BAD_ROW\] column item .*CAST"),
    ("INSERT INTO orders VALUES (1.5, 'a', 1)", DataError, r"\[BAD_ROW\] column id"),
    ("INSERT INTO orders VALUES (1.0D, 'a', 1)", DataError, r"\[BAD_ROW\] column id .*CAST"),
    ("INSERT INTO orders VALUES (true, 'a', 1)", DataError, r"\[BAD_ROW\] column id .*CAST"),
    ("INSERT INTO orders VALUES (9223372036854775808, 'a', 1)", DataError, r"\[BAD_ROW\] column id"),
    ("INSERT INTO orders VALUES (1, 'a', 9007199254740993)", DataError, r"\[BAD_ROW\] column price"),
    ("INSERT INTO stock VALUES (NULL, 1)", DataError, r"\[BAD_ROW\].*item must not be NULL"),
    ("INSERT OVERWRITE orders VALUES (1, 'a', 1)", InvalidError, r"\[BAD_OPTION\].*rows are added"),
    ("UPDATE orders SET price = 1", InvalidError, r"\[BAD_OPTION\].*begin with SELECT.*upsert="),
    ("DELETE FROM orders", InvalidError, r"\[BAD_OPTION\].*_deleted deletes"),
    ("CREATE TABLE x AS SELECT 1", InvalidError, r"\[BAD_OPTION\].*by its input alone"),
    ("INSERT INTO orders DELETE FROM sums", InvalidError, r"\[BAD_OPTION\]"),
    ("INSERT INTO orders INSERT INTO stock VALUES ('a', 1)", InvalidError, r"\[BAD_OPTION\]"),
    ("INSERT INTO orders SELECT 1, item, price FROM orders", InvalidError, r"\[NOT_KEPT\]"),
]  # fmt: skip


def test_what_does_not_fit_is_refused_and_nothing_is_recorded(shop: Shop, running: bl.Running) -> None:
    for statement, kind, said in BAD:
        with pytest.raises(kind, match=said):
            running.sql(statement, key="bad" if insertion_of(statement) else None)
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] key"):
        running.sql("INSERT INTO orders VALUES (1, 'a', 1)", key="a\nb")
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] key names the rows of an INSERT"):
        running.sql("SELECT 1", key="1")
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] timeout"):
        running.sql("SELECT 1", timeout=0)
    assert shop.flow.pushed("orders", "bad") is None
    assert running.is_active
    running.sql("INSERT INTO orders VALUES (1, 'a', 1)", key="bad")
    until(lambda: shop.taken() == [(1, "a", 1.0)])


def test_a_query_that_takes_for_ever_is_ended(shop: Shop, running: bl.Running) -> None:
    """Also one whose jobs begin later, behind those of a broadcast."""
    endless = "SELECT sum(hash(a.id)), 'a', 1 FROM range(1000000000000000) a JOIN range(9) b ON a.id % 9 = b.id"
    for statement in (endless, f"INSERT INTO orders {endless}"):
        with pytest.raises(UnavailableError, match=r"\[QUERY_TIMEOUT\].*after 0.1 s.*--timeout"):
            running.sql(statement, timeout=0.1)
    shop.flow.push("orders", {"id": 1})
    until(lambda: shop.taken() == [(1, None, None)])
    until(lambda: running.sql("SELECT count(*) AS n FROM sums").rows.to_pylist() == [{"n": 1}])
    lookup = "SELECT sum(hash(r.id)) FROM sums s CROSS JOIN range(1000000000000000) r WHERE s.item <=> NULL"
    with pytest.raises(UnavailableError, match=r"\[QUERY_TIMEOUT\]"):
        running.sql(lookup, timeout=0.5)


def test_more_rows_than_a_push_may_have_are_refused(
    shop: Shop, running: bl.Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = "INSERT INTO orders SELECT id, repeat('x', 100), 1 FROM range(20000)"
    assert receipt(running.sql(many, key="two megabytes"))[1] == 20000
    monkeypatch.setattr(inserts, "MOST_ROWS_BYTES", 1 << 20)
    with pytest.raises(InvalidError, match=r"\[PUSH_TOO_LARGE\].*in parts"):
        running.sql(many, key="too many")
    until(lambda: len(shop.taken()) == 20000)


def test_of_two_statements_at_once_under_one_key_one_is_taken(shop: Shop, running: bl.Running) -> None:
    statement = "INSERT INTO orders SELECT id, 'boat', 1 FROM range(1000)"
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: receipt(running.sql(statement, key="both"))[2], range(2)))
    assert sorted(found) == [False, True]
    until(lambda: len(shop.taken()) == 1000)


def test_without_a_run_nothing_is_recorded_and_the_error_says_so(shop: Shop, spark: SparkSession) -> None:
    bl.run(shop.flow, shop.store, spark=spark, available_now=True)
    again = r"no run owns shop: begin it with boatlift run, then repeat .*--key 1\): no row was recorded"
    with pytest.raises(UnavailableError, match=rf"\[NOT_RUNNING\] {again}"):
        bl.sql(shop.flow, shop.store, "INSERT INTO orders VALUES (1, 'boat', 1)", key="1", spark=spark)
    with pytest.raises(UnavailableError, match=r"\[NOT_RUNNING\]"):  # before the query, which fails
        bl.sql(shop.flow, shop.store, "INSERT INTO orders SELECT raise_error('asked'), 'boat', 1", spark=spark)
    bl.run(shop.flow, shop.store, spark=spark, available_now=True)
    assert shop.taken() == []


def test_sources_that_answer_or_record_no_rows_take_rows_of_statements_too(tmp_path: Path, spark: SparkSession) -> None:
    flow = bl.Dataflow("others")
    asked = bl.push("id STRING, n INT", ack="answer", key="id", answer_timeout=timedelta(seconds=20))
    questions = flow.source("questions", asked)
    doubled = questions.transform("doubled", lambda df: df.selectExpr("id", "n * 2 AS n"))
    doubled.sink("replies", bl.reply(asked, tmp_path / "answers.db"))
    passing = flow.source("passing", bl.push("n INT", ack="stable"))
    passing.sink("passed", bl.parquet(tmp_path / "passed"))
    running = bl.start(flow, tmp_path / "store", spark=spark)
    try:
        assert receipt(running.sql("INSERT INTO questions (n) VALUES (21)", key="q1"))[1] == 1
        with pytest.raises(DataError, match=r"\[BAD_ROW\] 2 rows under one key"):
            running.sql("INSERT INTO questions (n) VALUES (21), (22)", key="q2")
        (row,) = running.sql("INSERT INTO passing VALUES (1)", key="p1").rows.to_pylist()
        assert row["stable"] is True
        assert pq.read_table(tmp_path / "passed").to_pylist() == [{"n": 1}]
    finally:
        running.stop()
    with closing(sqlite3.connect(tmp_path / "answers.db")) as database:
        assert [row for row in database.iterdump() if "q1" in row and "42" in row]


KINDS = {
    "t": ("TIMESTAMP", "TIMESTAMP '2024-03-31 02:30:00.123456+02:00'", datetime(2024, 3, 31, 0, 30, 0, 123456, UTC)),
    "local": ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '2024-03-31 02:30:00'", datetime.fromisoformat("2024-03-31T02:30")),
    "d": ("DATE", "DATE '0001-01-01'", date(1, 1, 1)),
    "b": ("BINARY", "X'00FF'", b"\x00\xff"),
    "n": ("DECIMAL(38,10)", "1234567890123456789012345678.0123456789BD",
          Decimal("1234567890123456789012345678.0123456789")),
    "f": ("FLOAT", "0.5F", 0.5),
    "y": ("BOOLEAN", "true", True),
    "s": ("STRUCT<at: TIMESTAMP, many: ARRAY<TIMESTAMP>>",
          "struct(TIMESTAMP '1969-12-31 23:59:59Z' AS at, array(TIMESTAMP '1970-01-01 00:00:00Z') AS many)",
          {"at": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "many": [datetime(1970, 1, 1, tzinfo=UTC)]}),
}  # fmt: skip


def test_each_kind_of_column_takes_its_values(tmp_path: Path, spark: SparkSession) -> None:
    flow = bl.Dataflow("kinds")
    rows = flow.source(
        "rows", bl.push(", ".join(f"{name} {kind}" for name, (kind, _, _) in KINDS.items()), ack="stable")
    )
    rows.sink("taken", bl.parquet(tmp_path / "taken"))
    running = bl.start(flow, tmp_path / "store", spark=spark)
    try:
        running.sql(f"INSERT INTO rows VALUES ({', '.join(text for _, text, _ in KINDS.values())})")
        running.sql(f"INSERT INTO rows VALUES ({', '.join('NULL' for _ in KINDS)})")
        with pytest.raises(DataError, match=r"\[BAD_ROW\] column t .*CAST"):
            running.sql("INSERT INTO rows (t) VALUES (TIMESTAMP_NTZ '2024-03-31 02:30:00')")
        taken = [row for file in (tmp_path / "taken").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    finally:
        running.stop()
    given = {name: value for name, (_, _, value) in KINDS.items()}
    assert sorted(taken, key=lambda row: row["y"] is None) == [given, dict.fromkeys(KINDS)]


@pytest.mark.crash
def test_an_owner_that_is_killed_before_its_answer_leaves_the_rows_there_once(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command asks the next owner with its key; a command that is begun again does so, too."""
    monkeypatch.setattr(inserts, "OWNER_SECONDS", 240.0)  # a busy machine begins slowly
    statement = "INSERT INTO orders VALUES (1, 'boat', 9.5)"

    def insert(key: str) -> Any:
        return bl.sql(shop.flow, shop.store, statement, key=key, spark=spark)

    with begun(shop.folder, "run", "shop:flow", "--store", "store", environment={**os.environ}) as owner:
        until((shop.store / "log").exists)
        until(lambda: _succeeds(insert, "first"))
        (shop.folder / "unanswered").touch()
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(insert, "second")
            owner.wait(60)
            with begun(shop.folder, "run", "shop:flow", "--store", "store", environment={**os.environ}) as successor:
                assert receipt(asking.result(300)) == ("second", 1, True)
                assert receipt(insert("second")) == ("second", 1, True)
                monkeypatch.setattr(inserts, "OWNER_SECONDS", 1.0)
                (shop.folder / "unanswered").touch()
                answered = pool.submit(insert, "third")
                successor.wait(60)
                with pytest.raises(UnavailableError, match=r"\[OWNER_UNREACHABLE\].*--key third\): the rows may be"):
                    answered.result(120)
    done = boatlift(
        shop.folder, "sql", "shop:flow", statement, "--store", "store", "--key", "fourth", "--master", "local[1]"
    )
    assert done.returncode == UnavailableError.exit_code
    assert "OWNER_UNREACHABLE" in done.stderr
    assert "no row was recorded" in done.stderr
    bl.run(shop.flow, shop.store, spark=spark, available_now=True)
    assert shop.taken() == [(1, "boat", 9.5)] * 3


@pytest.mark.crash
@pytest.mark.parametrize("moment", ["unrecorded", "unanswered"])
def test_rows_whose_results_are_awaited_outlive_owners_that_are_reached_by_tls(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """They are not in the store before their results are: the command gives them to the next owner."""
    monkeypatch.setattr(inserts, "OWNER_SECONDS", 240.0)  # a busy machine begins slowly

    def insert(key: str) -> Any:
        return bl.sql(shop.flow, shop.store, f"INSERT INTO passing VALUES ({key})", key=key, timeout=300, spark=spark)

    run = ("run", "shop:flow", "--store", "store", "--listen", "0.0.0.0:0")
    with begun(shop.folder, *run, environment={**os.environ}) as owner, ThreadPoolExecutor(1) as pool:
        until(lambda: _succeeds(insert, "1"))
        (shop.folder / moment).touch()
        asking = pool.submit(insert, "2")
        owner.wait(60)
        with begun(shop.folder, *run, environment={**os.environ}):
            (row,) = asking.result(300).rows.to_pylist()
            assert (row["repeated"], row["stable"]) == (moment == "unanswered", True)
            assert receipt(insert("2")) == ("2", 1, True)
            files = (shop.folder / "passed").glob("*.parquet")
            assert sorted(n for file in files for n in pq.read_table(file)["n"].to_pylist()) == [1, 2]


@pytest.mark.crash
def test_the_store_of_an_owner_that_was_killed_is_asked_as_it_is(shop: Shop, spark: SparkSession) -> None:
    """Rows that a step took, and rows that are recorded alone: in `seen`, in tables, and after the next run."""

    def ask(query: str, key: str | None = None) -> Any:
        return bl.sql(shop.flow, shop.store, query, key=key, spark=spark)

    def seen(key: str) -> Any:
        return bl.seen(shop.flow, shop.store, "orders", key)

    sums = "SELECT item, n FROM sums ORDER BY item"
    run, told = ("run", "shop:flow", "--store", "store"), ("seen", "shop:flow", "orders")
    with begun(shop.folder, *run, environment={**os.environ}) as owner:
        until(lambda: _succeeds(ask, "INSERT INTO orders VALUES (1, 'boat', 9.5)", "taken"))
        until(lambda: seen("taken").step >= 0 and ask(sums).rows.to_pylist() == [{"item": "boat", "n": 1}])
        owner.kill()
        owner.wait()
        assert seen("taken").step == 0
        assert seen("another").step == -1
        assert ask(sums).rows.to_pylist() == [{"item": "boat", "n": 1}]
    with begun(shop.folder, *run, "--pause", "orders", environment={**os.environ}) as owner:
        until(lambda: _succeeds(ask, "INSERT INTO orders SELECT 2, item, n FROM sums", "recorded"))
        owner.kill()
        owner.wait()
    assert (seen("recorded").step, seen("recorded").everywhere, seen("taken").everywhere) == (-1, False, True)
    assert ask(sums).rows.to_pylist() == [{"item": "boat", "n": 1}]
    assert boatlift(shop.folder, *told, "taken", "--store", "store").returncode == 0
    assert boatlift(shop.folder, *told, "recorded", "--store", "store").returncode == 3
    bl.run(shop.flow, shop.store, spark=spark, available_now=True)
    assert seen("recorded").everywhere
    assert ask(sums).rows.to_pylist() == [{"item": "boat", "n": 2}]
    assert shop.taken() == [(1, "boat", 9.5), (2, "boat", 1.0)]


def _succeeds(ask: Any, *given: str) -> bool:
    try:
        ask(*given)
    except BoatliftError:
        return False
    return True


def test_the_command_prints_the_key_first_and_the_receipt(
    shop: Shop, running: bl.Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("boatlift.api.named.load_flow", lambda *_: shop.flow)
    monkeypatch.setattr("boatlift.api.named.check_flow", lambda _: None)
    capsys.readouterr()
    words = ["sql", "shop:flow", "INSERT INTO orders VALUES (1, 'boat', 9.5)", "--store", str(shop.store), "--json"]
    assert exit_status(words) == 0
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert f"--key {told['key']}" in printed.err
    assert (told["source"], told["rows"], told["repeated"]) == ("orders", 1, False)
    assert exit_status([*words, "--key", told["key"]]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out)["repeated"] is True
    assert "--key" not in again.err
    assert exit_status(["seen", "shop:flow", "orders", told["key"], "--store", str(shop.store)]) in (0, 3)


@pytest.mark.parametrize(
    ("statement", "parts"),
    [
        ("INSERT INTO t VALUES (1)", ("t", (), False, "VALUES (1)")),
        ("-- one\ninsert into table `a b` (x, `y z`) SELECT 1, ')'", ("a b", ("x", "y z"), False, "SELECT 1, ')'")),
        ("INSERT INTO t (SELECT 1)", ("t", (), False, "(SELECT 1)")),
        ("INSERT INTO t(x)(SELECT 1);", ("t", ("x",), False, "(SELECT 1)")),
        ("INSERT INTO t BY NAME FROM u SELECT x", ("t", (), True, "FROM u SELECT x")),
        ("INSERT INTO t /* c */ WITH u AS (SELECT 1) SELECT * FROM u", ("t", (), False, None)),
        ("INSERT INTO `it's` VALUES (1)", ("it's", (), False, "VALUES (1)")),
        ("INSERT INTO t VALUES (1);; -- done", ("t", (), False, "VALUES (1)")),
        ("INSERT INTO db.t VALUES (1)", None), ("INSERT INTO `db`.t VALUES (1)", None),
        ("INSERT INTO t", None), ("SELECT 'insert into t values (1)'", None), ("INSERT OVERWRITE t SELECT 1", None),
    ],
)  # fmt: skip
def test_a_statement_has_a_source_columns_and_a_query(statement: str, parts: Any) -> None:
    found = insertion_of(statement)
    if parts is None:
        assert found is None
        return
    assert found is not None
    assert (found.source, found.columns, found.by_name) == parts[:3]
    assert parts[3] in (None, found.query)
