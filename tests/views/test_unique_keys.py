"""The columns that tell the rows of a view apart: what its query shows, and what keyed sinks hold then."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import boatlift as bl
from boatlift.views.catalyst_plan import CatalystPlan
from boatlift.views.unique_keys import unique_keys

ORDERS = "id BIGINT, product STRING, at TIMESTAMP, customer STRING, pieces BIGINT"

TABLES = {
    "orders": (ORDERS, []),
    "customers": ("customer STRING, region STRING, number INT", ["customer"]),
    "days": ("customer STRING, day DATE, n BIGINT, x FLOAT", ["customer", "day"]),
    "caseless": ("k STRING COLLATE UTF8_LCASE, v INT", ["k"]),
    "exact": ("k STRING, v INT", ["k"]),
    "doubles": ("x DOUBLE, v INT", ["x"]),
}

HOUR, SLIDING = "window(at, '1 hour')", "window(at, '1 hour', '20 minutes')"
TWO = "window(at, '2 hours')"
SESSION = "session_window(at, '10 minutes')"
LAG = "lag(n) OVER (PARTITION BY customer ORDER BY day)"


@pytest.mark.parametrize(
    ("query", "known"),
    [
        # windows
        (f"SELECT {HOUR}.start AS s, product, count(*) AS n FROM orders GROUP BY {HOUR}, product", ["product s"]),
        (f"SELECT {SLIDING}.end AS e, product FROM orders GROUP BY {SLIDING}, product", ["e product"]),
        (
            f"SELECT product, {SLIDING}.start s, {SLIDING}.end e FROM orders GROUP BY 1, 2, 3",
            ["product s", "e product"],
        ),
        (f"SELECT DISTINCT product, {HOUR}.start s, {HOUR}.end e FROM orders", ["product s", "e product"]),
        (f"SELECT {SLIDING}.start s, count(*) AS n FROM orders GROUP BY {SLIDING}, product", []),
        (f"SELECT {SLIDING}.start AS s, id FROM orders", []),
        (f"SELECT s, e FROM (SELECT {HOUR}.start s, {HOUR}.end e FROM orders) GROUP BY ROLLUP (s, e)", []),
        (
            f"SELECT w.start AS s FROM (SELECT {HOUR} w FROM orders UNION ALL SELECT {SLIDING} FROM orders) GROUP BY w",
            ["s"],
        ),
        (
            f"SELECT w.end AS e FROM (SELECT {HOUR} w FROM orders UNION ALL SELECT {TWO} FROM orders) GROUP BY w",
            [],
        ),
        (
            f"SELECT product, w.start s FROM (SELECT {HOUR} w, product FROM orders GROUP BY ALL HAVING max(id) > 1)",
            ["product s"],
        ),
        # sessions
        (f"SELECT customer, {SESSION}.start AS s FROM orders GROUP BY customer, {SESSION}", ["customer s"]),
        (f"SELECT customer, {SESSION}.end AS e FROM orders GROUP BY customer, {SESSION}", ["customer e"]),
        (f"SELECT {SESSION}.start AS s FROM orders GROUP BY customer, {SESSION}", []),
        (
            f"SELECT product, w.start s FROM (SELECT {SESSION} w, product FROM orders GROUP BY ALL HAVING max(id) > 1)",
            ["product s"],
        ),
        # columns under other names, and casts
        ("SELECT customer AS a, customer AS b, day FROM days", ["a day", "b day"]),
        ("SELECT cast(number AS STRING) AS s FROM (SELECT number FROM customers GROUP BY number)", ["s"]),
        ("SELECT cast(number AS DOUBLE) AS x FROM (SELECT number FROM customers GROUP BY number)", ["x"]),
        ("SELECT cast(number AS FLOAT) AS x FROM (SELECT number FROM customers GROUP BY number)", []),
        ("SELECT customer, cast(day AS STRING) AS d FROM days", ["customer d"]),
        ("SELECT customer, cast(day AS TIMESTAMP) AS d FROM days", []),
        ("SELECT upper(customer) AS customer, day FROM days", []),
        ("SELECT cast(x AS FLOAT) AS x FROM doubles", []),
        ("SELECT customer, region, max(number) AS m FROM customers GROUP BY customer, region", ["customer"]),
        # window functions
        (f"SELECT customer, day, n - {LAG} AS more FROM days", ["customer day"]),
        (
            "SELECT customer, day, row_number() OVER (PARTITION BY customer ORDER BY n, day) AS r FROM days",
            ["customer day", "customer r"],
        ),
        ("SELECT customer, rank() OVER (PARTITION BY customer ORDER BY n) AS r FROM days", []),
        # joins
        ("SELECT d.customer, d.day, c.region FROM days d LEFT JOIN customers c USING (customer)", ["customer day"]),
        ("SELECT c.customer, d.day FROM days d JOIN customers c ON c.customer = d.customer", ["customer day"]),
        ("SELECT c.customer, d.day FROM days d LEFT JOIN customers c ON c.customer = d.customer", []),
        ("SELECT d.customer, d.day FROM days d FULL JOIN customers c ON c.customer = d.customer", []),
        ("SELECT d.customer, d.day FROM days d LEFT JOIN customers c ON c.region = d.customer", []),
        ("SELECT c.customer FROM customers c LEFT JOIN days d ON c.customer = d.customer", []),
        (
            "SELECT c.customer FROM customers c LEFT JOIN days d ON d.customer = c.customer AND d.day = '2026-01-01'",
            ["customer"],
        ),
        ("SELECT d.customer, d.day FROM days d LEFT JOIN caseless c ON c.k = d.customer COLLATE UTF8_LCASE", []),
        ("SELECT d.customer, d.day FROM days d LEFT JOIN exact c ON c.k = d.customer", ["customer day"]),
        ("SELECT d.customer, d.day FROM days d LEFT JOIN doubles x ON x.x = d.x", ["customer day"]),
        # several times the same row
        ("SELECT customer, day FROM days UNION ALL SELECT customer, day FROM days", []),
        ("SELECT customer, day, explode(array(1, 2)) AS e FROM days", []),
        ("SELECT id, max(at) AS at FROM orders GROUP BY id, product", []),
    ],
)
def test_the_keys_that_a_query_shows(spark: SparkSession, query: str, known: list[str]) -> None:
    nodes, streams = CatalystPlan(spark), {}
    for name, (columns, key) in TABLES.items():
        frame = nodes.empty(StructType.fromDDL(columns))
        streams[nodes.rdd_of(frame)] = (frozenset(key),) if key else ()
        frame.createOrReplaceTempView(name)
    try:
        found = unique_keys(nodes.optimised(spark.sql(query)), nodes, streams)
    finally:
        for name in TABLES:
            spark.catalog.dropTempView(name)
    assert sorted(" ".join(sorted(key)) for key in found) == sorted(known)


BEGIN = datetime(2026, 10, 25, tzinfo=UTC)
"""The night in which clocks of Europe go back: windows are an hour all the same."""


def orders_of(step: int) -> list[tuple[Any, ...]]:
    return [
        (
            step * 20 + i,
            "ab"[i % 2],
            None if i == 7 else BEGIN + timedelta(minutes=(i * 37 + step * 53) % 300),
            (None, "x", "y")[(i + step) % 3],
            i % 5,
        )
        for i in range(20)
    ]


KINDS = (pa.int64(), pa.string(), pa.timestamp("us", "UTC"), pa.string(), pa.int64())


def write(step: int, rows: list[tuple[Any, ...]]) -> None:
    schema = pa.schema(zip(("id", "product", "at", "customer", "pieces"), KINDS, strict=True))
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    pq.write_table(pa.table(columns, schema), f"orders/{step}.parquet")


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bl.Dataflow:
    monkeypatch.chdir(tmp_path)
    Path("orders").mkdir()
    for step in range(3):
        write(step, orders_of(step))
    made = bl.Dataflow("shop")
    made.source("orders", bl.files("orders/*.parquet", schema=ORDERS, max_files_per_step=1))
    return made


def run(flow: bl.Dataflow, spark: SparkSession) -> None:
    bl.run(flow, "store", available_now=True, spark=spark)


def held(table: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect("out.db") as found:
        return sorted(found.execute(f"SELECT * FROM {table}").fetchall(), key=repr)


TOTALS = "SELECT customer, sum(p) AS p FROM sums GROUP BY customer"

VIEWS = {
    "by_hour": (f"SELECT {HOUR}.start AS s, product, count(*) AS n FROM orders GROUP BY {HOUR}, product", "s product"),
    "sliding": (f"SELECT {SLIDING}.end AS e, count(*) AS n FROM orders GROUP BY {SLIDING}", "e"),
    "both": (
        f"SELECT product, {SLIDING}.start s, {SLIDING}.end e, sum(pieces) p FROM orders GROUP BY 1, 2, 3",
        "product s",
    ),
    "sessions": (
        f"SELECT customer, {SESSION}.start AS begins, count(*) AS n FROM orders GROUP BY customer, {SESSION}",
        "customer begins",
    ),
    "ends": (f"SELECT customer, {SESSION}.end AS e, max(id) i FROM orders GROUP BY customer, {SESSION}", "customer e"),
    "sums": ("SELECT customer, product, sum(pieces) AS p FROM orders GROUP BY ALL", "customer product"),
    "lagged": (
        "SELECT customer AS who, product, p - lag(p) OVER (PARTITION BY product ORDER BY p, customer) AS d FROM sums",
        "who product",
    ),
    "joined": (
        f"SELECT s.customer, s.product, t.p FROM sums s LEFT JOIN ({TOTALS}) t ON t.customer = s.customer",
        "customer product",
    ),
    "distinct_ones": ("SELECT DISTINCT pieces * if(id % 2 = 0, 1.5D, -1.5D) AS x FROM orders", "x"),  # 0.0, and -0.0,
}


def test_keyed_sinks_hold_the_results_of_views(flow: bl.Dataflow, spark: SparkSession) -> None:
    for name, (query, key) in VIEWS.items():
        flow.sql(name, query).sink(f"{name}-out", bl.sqlite("out.db", table=name, key=key.split()))
    sums = bl.Stream(flow, "sums")
    renamed = sums.transform("renamed", lambda df: df.select(F.col("customer").alias("who"), "product", "p"))
    renamed.sink("renamed-out", bl.sqlite("out.db", table="renamed", key=["product", "who"]))
    run(flow, spark)
    spark.read.schema(ORDERS).parquet(str(Path("orders").resolve())).createOrReplaceTempView("orders")
    spark.sql(VIEWS["sums"][0]).createOrReplaceTempView("sums")
    try:
        for name, (query, _) in VIEWS.items():
            expected = [tuple(map(shown, row)) for row in spark.sql(query).collect()]
            assert held(name) == sorted(expected, key=repr), name
        assert held("renamed") == held("sums")
    finally:
        spark.catalog.dropTempView("orders")
        spark.catalog.dropTempView("sums")


def shown(value: Any) -> Any:
    """Returns a value as SQLite has it."""
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z" if isinstance(value, datetime) else value


def test_rows_that_are_only_added_go_under_any_key_as_those_of_a_transform_do(
    flow: bl.Dataflow, spark: SparkSession
) -> None:
    """The newest row of each key holds; no row of a view may ever be taken back under a key that others have."""
    query = "SELECT product, max(id) AS newest FROM orders GROUP BY product, customer"
    flow.sql("some", "SELECT id, id % 20 AS place, product FROM orders WHERE id % 20 <> 7")
    same = bl.Stream(flow, "orders").transform(
        "same", lambda df: df.selectExpr("id", "id % 20 AS place", "product").where("place <> 7")
    )
    for stream in (bl.Stream(flow, "some"), same):
        for key in ("id", "place"):
            name = f"{stream.name}_{key}"
            stream.sink(name, bl.sqlite("out.db", table=name, key=[key]))
    run(flow, spark)
    assert held("some_id") == held("same_id")
    assert len(held("some_id")) == 3 * 19
    newest = [(40 + place, place, "ab"[place % 2]) for place in range(20) if place != 7]
    assert held("some_place") == held("same_place") == sorted(newest, key=repr)
    flow.sql("shared", query).sink("refused", bl.sqlite("out.db", table="refused", key=["product"]))
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] sink refused has the key product, on which rows of"):
        bl.run(flow, "store2", available_now=True, spark=spark)


def counts(orders: bl.Stream) -> bl.Stream:
    return orders.group_by("product", "customer").agg("counts", F.count("*").alias("n"))


def dropping(orders: bl.Stream) -> bl.Stream:
    return counts(orders).transform("out", lambda df: df.select("product", "n"))


def keeping(orders: bl.Stream) -> bl.Stream:
    return counts(orders).transform("out", lambda df: df.where("n > 1"))


def late(orders: bl.Stream) -> bl.Stream:
    """A change that is late leaves the row that it replaces."""
    timed = counts(orders).transform("timed", lambda df: df.withColumn("at", F.lit(BEGIN)))
    return timed.with_watermark("out", "at", "1 day")


def weighted(orders: bl.Stream) -> bl.Stream:
    return orders.changes("out", weight="1")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (dropping, "nothing in its query"),
        (keeping, "told apart by (customer, product)"),
        (late, "nothing in its query"),
        (weighted, "nothing in its query"),
    ],
)
def test_changes_need_a_unique_key_whatever_made_them(
    flow: bl.Dataflow, spark: SparkSession, made: Callable[[bl.Stream], bl.Stream], says: str
) -> None:
    made(bl.Stream(flow, "orders")).sink("kept", bl.sqlite("out.db", table="kept", key=["product"]))
    with pytest.raises(
        bl.InvalidError, match=r"\[BAD_OPTION\] sink kept has the key product, on which rows of"
    ) as caught:
        run(flow, spark)
    assert says in str(caught.value)


TOTALS_OF_IDS = "SELECT id, count(*) AS n, max(pieces) AS p FROM orders GROUP BY id, product"


def test_a_user_vouches_for_a_key_and_a_duplicate_loses_nothing(flow: bl.Dataflow, spark: SparkSession) -> None:
    """Each id has one product, which no plan shows; then a row comes with another one."""
    flow.sql("v", TOTALS_OF_IDS).sink("out", bl.sqlite("out.db", table="t", key=["id"], unique=True))
    counted = bl.Stream(flow, "orders").group_by("id").agg("counted", F.count("*").alias("n"))
    counted.sink("counted-out", bl.sqlite("out.db", table="counted", key=["id"], unique=True))
    run(flow, spark)
    write(3, [(i * 3, each, BEGIN, None, 9) for i, each in enumerate("aba")])
    run(flow, spark)
    good = {row[0]: (row[0], 1, row[4]) for step in range(3) for row in orders_of(step)}
    good |= {each: (each, 2, 9) for each in (0, 3, 6)}
    assert held("t") == sorted(good.values(), key=repr)
    assert held("counted") == sorted([row[:2] for row in good.values()], key=repr)
    write(4, [(1, "b", BEGIN, None, 9), (0, "x", BEGIN, None, 9)])
    write(5, [(3, "b", BEGIN, None, 9)])
    for _ in range(2):
        with pytest.raises(bl.InvalidError, match=r"\[DUPLICATE_KEY\] a step has a second row for key \(0,\) \(id\)"):
            run(flow, spark)
        assert held("t") == sorted(good.values(), key=repr), "nothing of step 4"
