"""Views as a user meets them: what is refused and why, keyed sinks, functions, static tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.console.plan import show_plan


@pytest.fixture(autouse=True)
def _tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, step, rows in (
        ("orders", 0, [(1, "a", 10), (2, "b", 20)]),
        ("orders", 1, [(3, "a", 5)]),
        ("items", 0, [(1, "x", 2), (1, "y", 3)]),
        ("items", 1, [(3, "x", 7), (2, "x", 1)]),
    ):
        Path(folder).mkdir(exist_ok=True)
        columns = list(zip(*rows, strict=True))
        pq.write_table(pa.table(dict(zip(("id", "k", "v"), columns, strict=True))), f"{folder}/{step}.parquet")


def shop() -> bl.Dataflow:
    flow = bl.Dataflow("shop")
    for name in ("orders", "items"):
        files = bl.files(f"{name}/*.parquet", format="parquet", schema="id BIGINT, k STRING, v BIGINT")
        flow.source(name, files)
    return flow


def run(flow: bl.Dataflow, spark: SparkSession) -> None:
    bl.run(flow, "store", available_now=True, spark=spark)


def refused(query: str | Callable[..., DataFrame], spark: SparkSession, **options: Any) -> str:
    """Return what a run of a view says that is refused before anything is written."""

    def tried() -> None:
        flow = shop()
        view = flow.sql("v", query) if isinstance(query, str) else flow.view("v", query)
        view.sink("out", options.get("sink", bl.parquet("out")))
        rest = flow.sql("rest", "SELECT o.id FROM orders o JOIN items i ON o.id = i.id")
        rest.sink("rest-out", bl.parquet("rest"))
        run(flow, spark)

    with pytest.raises(bl.BoatliftError) as caught:
        tried()
    assert not Path("out").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (
            "SELECT current_timestamp() AS t FROM orders",
            "[NOT_INCREMENTAL] v uses current_timestamp() otherwise",
        ),
        ("SELECT k, rand() AS r FROM orders", "[NOT_INCREMENTAL] v uses rand(), whose value is another at each"),
        ("SELECT * FROM orders WHERE v > (SELECT 10 * rand())", "[NOT_INCREMENTAL] v uses rand()"),
        ("SELECT * FROM orders LIMIT 3", "[NOT_INCREMENTAL] v has LIMIT without an order"),
        ("SELECT * FROM orders TABLESAMPLE (10 PERCENT)", "[NOT_INCREMENTAL] v has Sample"),
        ("SELECT 1 AS one", "[BAD_VIEW] v reads no stream: it has orders, items"),
        (
            "SELECT * FROM orders JOIN nobody USING (id)",
            "[BAD_VIEW] v: [TABLE_OR_VIEW_NOT_FOUND] The table or view `nobody`",
        ),
        ("SELECT * FROM orders JOIN nobody USING (id)", "(the streams that it was found to read: orders)"),
        ("SELECT cost FROM orders", "[BAD_VIEW] v: [UNRESOLVED_COLUMN"),
        ("SELECT k, FROM orders GROUP", "[BAD_VIEW] v: "),
        ("SELECT k, k FROM orders", "[SCHEMA_MISMATCH] v has two columns of one name"),
    ],
)
def test_a_query_that_cannot_be_kept_up_to_date_is_refused(spark: SparkSession, query: str, says: str) -> None:
    assert says in refused(query, spark)


def test_a_parameter_that_is_no_stream_is_refused(spark: SparkSession) -> None:
    assert "[BAD_VIEW] v reads people, which shop does not have" in refused(lambda people: people, spark)


def test_a_python_function_is_refused_unless_it_is_declared(spark: SparkSession) -> None:
    doubled = F.udf(lambda v: 2 * v, "bigint")

    def view(orders: DataFrame) -> DataFrame:
        return orders.select("k", doubled("v").alias("v"))

    assert "declare deterministic=True" in refused(view, spark)
    flow = shop()
    flow.view("twice", view, deterministic=True).sink("out", bl.parquet("out"))
    flow.sql("rest", "SELECT id FROM items").sink("rest-out", bl.parquet("rest"))
    run(flow, spark)
    assert sorted(pq.read_table("out").column("v").to_pylist()) == [10, 20, 40]


def test_a_decorated_view_may_have_options() -> None:
    flow = shop()

    @flow.view(deterministic=True, policy=bl.Eager())
    def twice(orders: DataFrame) -> DataFrame:
        return orders

    assert flow.processors["twice"].policy == bl.Eager()
    with pytest.raises(bl.InvalidError, match=r"\[BAD_VIEW\] thrice has no query"):
        flow.view("thrice")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OVERWRITE DIRECTORY '{folder}' USING parquet SELECT id FROM orders",
        "CREATE TABLE made AS SELECT id FROM orders",
        "WITH s AS (SELECT id FROM orders) INSERT OVERWRITE DIRECTORY '{folder}' USING parquet SELECT id FROM s",
    ],
)
def test_a_statement_that_is_no_query_is_refused_and_does_nothing(spark: SparkSession, statement: str) -> None:
    Path("kept").mkdir()
    Path("kept/file").write_text("mine")
    assert "[BAD_VIEW] v: [PARSE_SYNTAX_ERROR]" in refused(statement.format(folder=Path("kept").resolve()), spark)
    assert Path("kept/file").read_text() == "mine"
    assert not Path("spark-warehouse/made").exists()


def test_a_query_is_the_same_program_whatever_the_session_did_before(spark: SparkSession) -> None:
    for number in range(6):
        spark.range(number).where(f"id > {number}").count()  # attributes of the session are numbered
        flow = shop()
        spaces = " " * number
        counts = (
            f"SELECT k,{spaces} count(DISTINCT id) AS n, count(DISTINCT v) AS m, count(DISTINCT k) AS o FROM orders"
        )
        flow.sql("v", f"{counts} GROUP BY k").sink("out", bl.parquet("out"))
        flow.sql("rest", "SELECT id FROM items").sink("rest-out", bl.parquet("rest"))
        run(flow, spark)


@pytest.mark.parametrize(
    ("query", "key", "known"),
    [
        ("SELECT k, v FROM orders", ["k"], "nothing in its query tells its rows apart"),
        ("SELECT k, id % 2 AS p, sum(v) AS s FROM orders GROUP BY ALL", ["k"], "told apart by (k, p)"),
        ("SELECT o.id, i.k FROM orders o JOIN items i ON o.id = i.id", ["id"], "nothing in its query"),
    ],
)
def test_a_sink_whose_key_may_be_shared_is_refused(spark: SparkSession, query: str, key: list[str], known: str) -> None:
    said = refused(query, spark, sink=bl.sqlite("out", table="t", key=key))
    assert "[BAD_OPTION] sink out has the key" in said
    assert known in said


def test_a_keyed_sink_holds_the_result(spark: SparkSession) -> None:
    """A key whose row changes is updated, and one whose row leaves is deleted."""
    flow = shop()
    ranked = "SELECT *, row_number() OVER (PARTITION BY k ORDER BY v, id) AS r FROM orders"
    first = f"SELECT id, k, v FROM ({ranked}) WHERE r = 1"
    totals = "SELECT o.k, sum(o.v * i.v) AS total FROM orders o JOIN items i ON o.id = i.id GROUP BY o.k"
    alone = "SELECT o.id FROM orders o LEFT ANTI JOIN items i ON o.id = i.id GROUP BY o.id"
    for name, query, key in (("first", first, "k"), ("totals", totals, "k"), ("alone", alone, "id")):
        flow.sql(name, query).sink(f"{name}-out", bl.sqlite("out.db", table=name, key=[key]))
    run(flow, spark)
    with sqlite3.connect("out.db") as found:
        assert found.execute("SELECT k, id, v FROM first ORDER BY k").fetchall() == [("a", 3, 5), ("b", 2, 20)]
        assert found.execute("SELECT k, total FROM totals ORDER BY k").fetchall() == [("a", 85), ("b", 20)]
        assert found.execute("SELECT * FROM alone").fetchall() == []


def test_plan_says_how_a_view_is_computed(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.version
    flow = shop()
    flow.sql("totals", "SELECT o.k, sum(o.v) AS s FROM orders o JOIN items i ON o.id = i.id GROUP BY o.k").sink(
        "out", bl.sqlite("out.db", table="totals", key=["k"])
    )
    flow.sql("first", "SELECT * FROM orders ORDER BY v, id, k LIMIT 1").sink("first-out", bl.parquet("first"))
    show_plan(flow, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "A step of totals has 1 job:" in said
    assert "1. INNER JOIN on o.id (kernel: keeps both inputs by key), then GROUP BY o.k (kernel: keeps exact" in said
    assert "A step of first has 2 jobs: 1. ORDER BY … LIMIT (kernel: keeps its input in order) 2. hand out" in said


def test_a_view_reads_views_static_tables_and_other_operators(spark: SparkSession) -> None:
    spark.createDataFrame([("a", "Anna"), ("b", "Bo")], "k STRING, name STRING").createOrReplaceTempView("people")
    flow = shop()
    flow.sql("spent", "SELECT k, sum(v) AS spent FROM orders GROUP BY k")
    named = flow.sql("named", "SELECT p.name, s.spent FROM spent s JOIN people p ON p.k = s.k WHERE s.spent > 5")
    named.sink("out", bl.parquet("out"))
    flow.sql("rest", "SELECT id FROM items").sink("rest-out", bl.parquet("rest"))
    run(flow, spark)
    held: dict[Any, int] = {}
    for row in pq.read_table("out").to_pylist():
        held[row["name"], row["spent"]] = held.get((row["name"], row["spent"]), 0) + row["_weight"]
    assert {row for row, weight in held.items() if weight} == {("Anna", 15), ("Bo", 20)}
