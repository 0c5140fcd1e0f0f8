"""Branches of one plan: each row gets the values of its own branch, and raises the errors of no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from boatlift.dataflow.columns import BRANCH, MARK
from boatlift.spark.plans.branches import Branch, Branches, is_a_stream
from boatlift.spark.plans.catalyst import empty_frame, frame_of, map_in_arrow, optimised, plan_of
from boatlift.spark.plans.common_plan import LONGEST_EXPRESSIONS, NotRowByRowError
from boatlift.tasks.long_running import SlotPlace

Frame = Callable[[DataFrame], DataFrame]


def expanded(frame: DataFrame) -> DataFrame:
    """Return the rows below an aggregate: each row several times, with NULL for keys that a total leaves out."""
    expand = plan_of(frame).child()
    assert expand.nodeName() == "Expand"
    rows = frame_of(frame.sparkSession, expand)
    return rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))  # keys have the names of columns


SCHEMA = "k LONG NOT NULL, v INT, s STRING, l ARRAY<INT>, n STRING NOT NULL"
ROWS: list[tuple[Any, ...]] = [
    (1, 0, "a", [1, 2], "p"),
    (2, 5, None, None, "q"),
    (3, None, "c", [], ""),
    (4, 7, "x", [None, 9], "s"),
]

FRAMES: dict[str, Frame] = {
    "columns": lambda df: df.selectExpr(
        "s", "n || s AS t", "n", "k * 2 AS k", "v + 1 AS w", "CAST(NULL AS INT) AS nothing"
    ),
    "fails for others": lambda df: df.where("v > 0").selectExpr("k DIV v AS d", "CAST(v AS STRING) AS t"),
    "filter behind": lambda df: df.selectExpr("k", "coalesce(v, -1) AS v").where("v <> 0").where("k < 4"),
    "explode": lambda df: df.select("k", F.explode("l").alias("e")).where("e IS NOT NULL OR k > 1"),
    "explode outer": lambda df: df.select("k", F.posexplode_outer("l")),
    "rollup": lambda df: expanded(df.rollup("k", "n").count()),
    "cube": lambda df: expanded(df.cube("s", "k").count()),
    "windows": lambda df: df.select(
        F.window(F.expr("timestamp_seconds(600 * k)"), "30 minutes", "10 minutes"), "s", "v"
    ),
    "windows of none": lambda df: df.select("k", F.window(F.expr("timestamp_seconds(v)"), "2 hours", "1 hour").start),
    "union": lambda df: df.select("k", "s").unionAll(df.where("v > 0").selectExpr("k + 10", "upper(s)")),
    "union of unions": lambda df: df.select("k").unionAll(df.select("k").unionAll(df.select("k"))).where("k > 1"),
    "struct": lambda df: df.selectExpr("1 AS _input", "struct(k, s) AS _input_1", "CAST(NULL AS STRUCT<a: INT>) AS z"),
    "null struct": lambda df: df.selectExpr("k", "IF(v > 0, named_struct('a', v), NULL) AS _input_1"),
    "aliases": lambda df: df.alias("a").selectExpr("a.k AS `a.b`", "a.l AS list").coalesce(1),
}


def leaf(spark: SparkSession) -> tuple[DataFrame, int]:
    schema = spark.createDataFrame([], SCHEMA).schema
    frame = empty_frame(spark, schema)
    return frame, int(plan_of(frame).rdd().id())


def value(row: Any, place: SlotPlace) -> Any:
    if isinstance(place, tuple):
        return tuple(value(row, each) for each in place)
    return None if place is None else plain(row[place])


def plain(each: Any) -> Any:
    return tuple(map(plain, each)) if isinstance(each, tuple) else each


def results(spark: SparkSession, frames: list[Frame], given: dict[int, list[tuple[Any, ...]]]) -> list[list[Any]]:
    """Each frame's rows, when the rows that are given for it go through the common plan, in one stage."""
    branches, added = Branches(spark), list[list[Branch]]()
    for each in frames:
        rows, number = leaf(spark)
        frame = each(rows)
        added.append(branches.add(frame, frame.columns, {number}))
    registers = branches.registers
    handed = [[3, -1, *[None] * (len(registers) - 2)]]
    for at, ways in enumerate(added):
        for way in ways:
            for row in given[at]:
                values = dict(zip(way.registers, row, strict=True))
                handed.append([-3, way.rows.number, *(values.get(place) for place in range(len(registers) - 2))])
    made = branches.plan(spark.createDataFrame(handed, registers), spark)
    assert made.columns == branches.results
    found = made.collect()
    assert [row[MARK] for row in found if row[BRANCH] == -1] == [3], "the marker passes, once"
    return [
        [
            tuple(value(row[2:], place) for place in way.rows.slots)
            for way in ways
            for row in found
            if row[BRANCH] == way.rows.number
        ]
        for ways in added
    ]


def alone(spark: SparkSession, frame: Frame, rows: list[tuple[Any, ...]]) -> list[Any]:
    return [plain(tuple(row)) for row in frame(spark.createDataFrame(rows, SCHEMA)).collect()]


@pytest.fixture(params=["true", "false"])
def whole_stage(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Plans of more fields than a setting says are computed node by node."""
    before = spark.conf.get("spark.sql.codegen.wholeStage")
    spark.conf.set("spark.sql.codegen.wholeStage", request.param)
    yield
    spark.conf.set("spark.sql.codegen.wholeStage", before)


@pytest.fixture(params=[LONGEST_EXPRESSIONS, 0])
def longest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 0, each branch that has a projection has nodes of its own."""
    monkeypatch.setattr("boatlift.spark.plans.common_plan.LONGEST_EXPRESSIONS", request.param)


@pytest.mark.usefixtures("whole_stage", "longest")
def test_each_row_has_the_values_of_its_own_branch(spark: SparkSession) -> None:
    frames = list(FRAMES.values())
    given = {at: ROWS if at != 1 else ROWS[1:] for at in range(len(frames))}
    found = results(spark, frames, given)
    for name, at in zip(FRAMES, range(len(frames)), strict=True):
        assert sorted(map(repr, found[at])) == sorted(map(repr, alone(spark, frames[at], given[at]))), name


@pytest.mark.usefixtures("longest")
def test_a_row_raises_no_error_of_another_branch(spark: SparkSession) -> None:
    fails = FRAMES["fails for others"]
    divides: Frame = lambda df: df.selectExpr("10 DIV v AS d")  # noqa: E731
    found = results(spark, [FRAMES["columns"], divides, fails], {0: ROWS, 1: [], 2: ROWS})
    assert len(found[0]) == len(ROWS)
    assert found[1] == []
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        results(spark, [divides], {0: ROWS})


def test_a_second_condition_meets_no_row_that_the_first_one_drops(spark: SparkSession) -> None:
    twice: Frame = lambda df: df.where("v > 0").selectExpr("10 DIV v AS d", "s").where("10 DIV d > 1")  # noqa: E731
    rows = [*ROWS, (5, 100, "never", None, "z")]  # 10 DIV 100 is 0: the second condition fails for this row alone
    assert results(spark, [twice], {0: ROWS})[0] == alone(spark, twice, ROWS)
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        results(spark, [twice], {0: rows})
    only: Frame = lambda df: df.where("v < 50").where("10 DIV (100 - v) >= 0")  # noqa: E731
    assert sorted(map(repr, results(spark, [only], {0: rows})[0])) == sorted(map(repr, alone(spark, only, rows)))


def test_all_branches_of_projections_and_filters_share_one_projection(spark: SparkSession) -> None:
    branches = Branches(spark)
    for at in range(40):
        rows, number = leaf(spark)
        frame = rows.where(f"v <> {at}").selectExpr(f"k + {at} AS a", "s", "v").where("a > 0").selectExpr("a", "v * a")
        branches.add(frame, frame.columns, {number})
    rows = spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, branches.registers)
    plan = optimised(branches.plan(rows, spark))._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Filter ") == 1
    assert plan.count("Project [") <= 2


def test_the_common_plan_passes_on_each_row_before_the_next(spark: SparkSession) -> None:
    branches = Branches(spark)
    for each in FRAMES.values():
        rows, number = leaf(spark)
        frame = each(rows)
        branches.add(frame, frame.columns, {number})
    rows = spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, branches.registers)
    made = map_in_arrow(branches.plan(rows, spark), branches.results, lambda batches: batches, StructType([]))
    assert is_a_stream(optimised(made))


def test_a_constant_that_fails_is_no_null(spark: SparkSession) -> None:
    rows, number = leaf(spark)
    (branch,) = Branches(spark).add(rows.selectExpr("CAST('x' AS INT) AS c"), ["c"], {number})
    assert branch.rows.slots == (0,)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (lambda df: df.groupBy("k").count(), "Aggregate"),
        (lambda df: df.orderBy("k"), "Sort"),
        (lambda df: df.join(df.sparkSession.range(3).withColumnRenamed("id", "k"), "k"), "Join"),
        (lambda df: df.select(F.udf(lambda v: v, "int", useArrow=False)("v")), "say useArrow=True"),
        (lambda df: df.limit(2), "Limit"),
        (lambda df: df.select(F.explode(F.create_map("k", "v"))), "Generate"),
        (lambda df: df.repartition(2), "Repartition"),
    ],
)
def test_a_frame_that_needs_several_rows_is_named(spark: SparkSession, frame: Frame, why: str) -> None:
    rows, number = leaf(spark)
    made = frame(rows)
    with pytest.raises(NotRowByRowError, match=why):
        Branches(spark).add(made, made.columns, {number})
