"""Clock and chance that no expression shows: refused as constants, and no timestamp where rows bring them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from pyspark.errors import DateTimeException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.errors import InternalError, UserCodeError
from boatlift.spark.plans.catalyst import jvm
from boatlift.spark.plans.clock import dated
from boatlift.spark.plans.fingerprint import fingerprint
from boatlift.spark.plans.row_wise import check_expressions, check_row_wise
from boatlift.views.deterministic import check_deterministic

pytestmark = pytest.mark.spark

SCHEMA = "k INT, v INT, s STRING, at TIMESTAMP"
OF_THE_DAY = [
    "at < DATE 'today'",
    "at < date'Tomorrow UTC'",
    "at > TIMESTAMP 'yesterday'",
    "at > timestamp r'now'",
    "TIMESTAMP_NTZ 'now'",
    "TIMESTAMP '12:30'",
    "CAST('12:30' AS TIMESTAMP)",
    "try_cast(concat('T', '12') AS TIMESTAMP)",
    "CAST('today' AS DATE)",
    "CAST(nvl('now', 'x') AS TIMESTAMP)",
    "at > 'yesterday'",
    "to_timestamp('12:30')",
    "to_date('today')",
    "transform(array(at), x -> x > DATE 'today')",
    "CAST(array(s) AS ARRAY<TIMESTAMP>)",
    "CAST(named_struct('a', map(1, s)) AS STRUCT<a: MAP<INT, TIMESTAMP>>)",
    "CAST(parse_json(s) AS TIMESTAMP)",
    "from_json(s, 'a ARRAY<STRUCT<t: TIMESTAMP>>')",
    "from_csv(s, 't TIMESTAMP', map('dateFormat', 'yyyy'))",
    "from_xml(s, 't TIMESTAMP')",
    "variant_get(parse_json(s), '$', 'timestamp')",
]
ADVICE = (r"bl\.now\(\)", "a cast of each text", "a STRING there, and cast it", "its option timestampFormat")
CONSTANT = [
    "at < DATE '2026-01-01' AND at > TIMESTAMP '2026-01-01 12:30' AND at > TIMESTAMP 'epoch'",
    "at > '2026-01-01T12:30:00Z' AND s > 'today' AND s <> '12:30'",
    "to_timestamp('12:30', 'HH:mm') < at AND to_date(s) > '2026' AND CAST(s AS DATE) > DATE '2026-01-01'",
    "CAST(array(at) AS ARRAY<DATE>)",
    "from_json(s, 't TIMESTAMP', map('TimestampFormat', 'yyyy-MM-dd HH:mm')).t > at",
    "from_json(s, 't TIMESTAMP_NTZ, d DATE, timestamp STRING').d > DATE '2026-01-01'",
    "CAST(variant_get(parse_json(s), '$', 'string') AS TIMESTAMP) > at",
]


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], SCHEMA)


def refused_as(check: Callable[[], object]) -> str | None:
    """Return the condition with which a check refuses, and its text; None if it does not."""
    try:
        check()
    except bl.InvalidError as error:
        return str(error)
    return None


def test_a_constant_of_the_day_is_refused_in_transforms_aggregates_and_views(rows: DataFrame) -> None:
    ways: list[Callable[[Column], object]] = [
        lambda column: check_row_wise(rows, lambda df: df.select(column.alias("x")), "clean"),
        lambda column: check_expressions(rows.select(column.alias("x")), "the aggregate x"),
        lambda column: check_deterministic(rows.select(column.alias("x")), "view", deterministic=None),
    ]
    conditions = ("NOT_DETERMINISTIC", "NOT_DETERMINISTIC", "NOT_INCREMENTAL")
    for text in OF_THE_DAY:
        said = [refused_as(lambda way=way: way(F.expr(text))) for way in ways]  # type: ignore[misc]  # noqa: B023
        for condition, each in zip(conditions, said, strict=True):
            assert each is not None, text
            assert each.startswith(f"[{condition}]"), each
            assert re.search(
                r"use (bl\.now\(\)|a cast of each text|a STRING there|its option timestampFormat)", each
            ), each
    for text in CONSTANT:
        assert [refused_as(lambda way=way: way(F.expr(text))) for way in ways] == [None] * 3, text  # type: ignore[misc]  # noqa: B023


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT k FROM t WHERE at < DATE 'today'", "holds DATE 'today', which differs from run to run: use bl.now()"),
        ("SELECT k FROM t WHERE k IN (SELECT k FROM u WHERE at > DATE 'today')", "holds DATE 'today'"),
        ("WITH c AS (SELECT k FROM t WHERE at > TIMESTAMP '12:30') SELECT * FROM c", "holds TIMESTAMP '12:30'"),
        ("SELECT k FROM t JOIN VALUES (1, DATE 'today') AS d(i, day) ON i = k", "holds DATE 'today'"),
        (
            "SELECT k FROM t WHERE at > (SELECT c FROM VALUES (CAST('12:30' AS TIMESTAMP)) AS d(c))",
            "holds CAST('12:30' AS",
        ),
        ("SELECT (SELECT max(k) FROM u WHERE rand() > 0.5) AS x FROM t", "uses rand()"),
        ("SELECT java_method('java.lang.System', 'nanoTime') AS x FROM t", "a function of Java's (call_method"),
        ("SELECT try_reflect('java.util.UUID', 'randomUUID') AS x FROM t", "a function of Java's (call_method"),
        ("SELECT t.k, u.v FROM t JOIN u EXACT NEAREST 1 BY DISTANCE abs(t.v - u.v)", "that Spark computes with uuid()"),
    ],
)
def test_a_view_is_refused_for_what_a_subquery_or_a_rewrite_holds(
    spark: SparkSession, rows: DataFrame, query: str, says: str
) -> None:
    for name in ("t", "u"):
        rows.createOrReplaceTempView(name)
    said = refused_as(lambda: check_deterministic(spark.sql(query), "view", deterministic=None))
    assert said is not None
    assert said.startswith("[NOT_INCREMENTAL] view ")
    assert says in said


def test_a_table_of_constants_is_no_clock(spark: SparkSession, rows: DataFrame) -> None:
    rows.createOrReplaceTempView("t")
    query = "SELECT k FROM t JOIN VALUES (1, DATE '2026-01-01', 'today'), (2, NULL, '12:30') AS d(i, day, s) ON i = k"
    check_deterministic(spark.sql(query), "view", deterministic=None)


def test_a_constant_without_a_value_is_a_fault_of_the_query(spark: SparkSession, rows: DataFrame) -> None:
    rows.createOrReplaceTempView("t")
    for query in ("SELECT k, 1 / 0 AS x FROM t", "SELECT k, CAST(CAST('x' AS INT) AS STRING) AS x FROM t"):
        with pytest.raises(UserCodeError, match=r"^\[USER_CODE\] Spark cannot compute a constant of view: \["):
            check_deterministic(spark.sql(query), "view", deterministic=None)


def test_an_error_of_sparks_optimiser_is_no_traceback(rows: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boatlift.spark.plans.clock.kinds_of_optimised", lambda _: jvm().java.util.ArrayList().get(7))
    with pytest.raises(InternalError, match=r"^\[PLAN_REFUSED\] Spark cannot optimise view: Index 7 out of bounds"):
        check_deterministic(rows, "view", deterministic=None)


def test_a_python_function_in_a_subquery_is_seen(spark: SparkSession, rows: DataFrame) -> None:
    rows.createOrReplaceTempView("t")

    def query(added: int) -> DataFrame:
        spark.udf.register("more", lambda x: x + added, "int")
        return spark.sql("SELECT k FROM t WHERE k > (SELECT max(more(k)) FROM t)")

    said = refused_as(lambda: check_deterministic(query(1), "view", deterministic=None))
    assert said is not None
    assert "calls a Python function" in said
    assert fingerprint(query(1)) == fingerprint(query(1)) != fingerprint(query(2))


def test_a_text_without_a_date_is_no_timestamp(spark: SparkSession) -> None:
    there, alone = {"2026-01-02 12:30", "2026", " 2026-01-02T12 "}, {"12:30", " 2:3:4.5+01:00", "T12"}
    given = spark.createDataFrame([(text,) for text in (*there, *alone, "x", None)], "s STRING")
    given.createOrReplaceTempView("texts")
    made = [
        given.select("s", F.col("s").try_cast("timestamp").alias("x")),
        given.select("s", F.try_to_timestamp("s").alias("x")),
        given.select("s", F.transform(F.array("s"), lambda x: x.try_cast("timestamp"))[0].alias("x")),
        spark.sql("WITH c AS (SELECT s, try_cast(s AS TIMESTAMP) AS x FROM texts) SELECT s, x FROM c"),
        spark.sql("SELECT s, (SELECT max(try_cast(u.s AS TIMESTAMP)) FROM texts u WHERE u.s = t.s) AS x FROM texts t"),
        spark.sql("SELECT s, try_cast(collate(s, 'UTF8_LCASE') AS TIMESTAMP) AS x FROM texts"),
    ]
    for frame in made:
        assert {row.s for row in frame.collect() if row.x is not None} == there | alone
        once = dated(frame)
        assert {row.s for row in once.collect() if row.x is not None} == there
        assert dated(once) is once
    cast = dated(given.where("s LIKE '%:30'").select(F.col("s").cast("timestamp").alias("x")))
    with pytest.raises(DateTimeException, match=r"'12:30 \(a time without a date\)'.*cannot be cast"):
        cast.collect()
    assert dated(given) is given
