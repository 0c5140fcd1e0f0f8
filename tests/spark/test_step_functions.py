"""bl.now(), bl.rand(), bl.uuid(): the same on replay, for any division of the rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from boatlift.errors import InvalidError
from boatlift.spark.plans.row_wise import apply
from boatlift.spark.plans.step_functions import StepContext, call, now, rand, step_context, uuid


def test_outside_a_step_they_are_refused() -> None:
    for function in (now, rand, uuid):
        with pytest.raises(InvalidError, match=rf"\[OUTSIDE_STEP\] bl\.{function.__name__}\(\)"):
            function()


def test_over_changes_they_are_refused() -> None:
    with step_context(StepContext(0, 0, "late", True, changes=True)):
        for draw in (now, lambda: rand("a"), lambda: uuid("a")):
            with pytest.raises(InvalidError, match=r"\[NOT_DETERMINISTIC\].*late.*before the aggregate"):
                draw()


def test_the_outside_is_asked_only_where_answers_are_recorded() -> None:
    def ask(value: str) -> str:
        return value

    with pytest.raises(InvalidError, match=r"\[OUTSIDE_STEP\] bl\.call\(ask\)"):
        call(ask, "a")
    with (
        step_context(StepContext(0, 0, "late", True, changes=True, durable=True)),
        pytest.raises(InvalidError, match=r"\[NOT_DETERMINISTIC\] bl\.call\(ask\) in late.*before the aggregate"),
    ):
        call(ask, "a")
    with (
        step_context(StepContext(0, 0, "clean", True)),
        pytest.raises(InvalidError, match=r"\[NOT_DETERMINISTIC\] clean calls ask.*deterministic=False"),
    ):
        call(ask, "a")


def test_without_positions_columns_must_be_named() -> None:
    with step_context(StepContext(0, 0, "clean", False)):
        for function in (rand, uuid):
            with pytest.raises(InvalidError, match=r"\[NO_ROW_POSITION\] .*clean"):
                function()


def test_a_context_ends() -> None:
    with step_context(StepContext(0, 0, "clean", False)):
        pass
    with pytest.raises(InvalidError, match="OUTSIDE_STEP"):
        now()


def drawn(
    spark: SparkSession, columns: Callable[[], list[Column]], parts: int = 2, **context: int
) -> list[tuple[object, ...]]:
    rows = spark.range(0, 2000, 1, parts).withColumnRenamed("id", "_position")
    with step_context(StepContext(context.get("clock", 0), context.get("seed", 1), "clean", True)):
        frame = rows.select("_position", *columns())
    return sorted(tuple(row) for row in frame.collect())  # type: ignore[type-var]


@pytest.mark.spark
def test_now_is_the_recorded_clock(spark: SparkSession) -> None:
    clock = 1_766_000_000_123
    with step_context(StepContext(clock, 0, "clean", False)):
        frame = spark.range(3).select(now().alias("now"), now().cast("double").alias("seconds"))
    assert frame.schema["now"].dataType.simpleString() == "timestamp"
    assert {row.seconds for row in frame.collect()} == {clock / 1000}
    with step_context(StepContext(-1, 0, "clean", False)):
        before = spark.range(1).select(F.unix_millis(now())).collect()[0][0]
    assert before == -1
    assert datetime.fromtimestamp(clock / 1000, UTC).year == 2025


@pytest.mark.spark
def test_values_depend_on_seed_call_and_row_alone(spark: SparkSession) -> None:
    def columns() -> list[Column]:
        return [rand(), uuid()]

    first = drawn(spark, columns)
    assert drawn(spark, columns, parts=7) == first
    assert drawn(spark, columns, clock=99) == first
    assert not {row[1] for row in drawn(spark, columns, seed=2)} & {row[1] for row in first}


@pytest.mark.spark
def test_two_calls_are_independent(spark: SparkSession) -> None:
    rows = drawn(spark, lambda: [rand(), rand(), uuid(), uuid()])
    xs, ys = [row[1] for row in rows], [row[2] for row in rows]
    assert abs(_correlation(xs, ys)) < 0.1  # type: ignore[arg-type]
    assert len({value for row in rows for value in row[3:]}) == 2 * len(rows)


@pytest.mark.spark
def test_processors_draw_different_values(spark: SparkSession) -> None:
    values = []
    for name in ("one", "two"):
        with step_context(StepContext(0, 1, name, True)):
            values.append({row[0] for row in spark.range(100).toDF("_position").select(rand()).collect()})
    assert not values[0] & values[1]


@pytest.mark.spark
def test_rand_is_uniform(spark: SparkSession) -> None:
    values = sorted(row[1] for row in drawn(spark, lambda: [rand()]))  # type: ignore[type-var]
    assert values[0] >= 0  # type: ignore[operator]
    assert values[-1] < 1  # type: ignore[operator]
    # Kolmogorov–Smirnov: 2000 uniform values exceed 2/√n with a chance of 0.07%, and these are always the same ones.
    distance = max(abs(value - index / len(values)) for index, value in enumerate(values))  # type: ignore[operator]
    assert distance < 2 / math.sqrt(len(values))


@pytest.mark.spark
def test_uuids_are_version_4(spark: SparkSession) -> None:
    values = {row[1] for row in drawn(spark, lambda: [uuid()])}
    assert len(values) == 2000
    pattern = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert all(pattern.fullmatch(value) for value in values)  # type: ignore[call-overload]
    assert {value[19] for value in values} == set("89ab")  # type: ignore[index]


@pytest.mark.spark
def test_named_columns_identify_rows_null_included(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(None, 1), (1, None), (1, 1), (1, 1)], "a int, b int")
    with step_context(StepContext(0, 1, "clean", False)):
        values = [row[0] for row in rows.select(rand("a", "b")).collect()]
    assert len(set(values)) == 3
    assert values[2] == values[3]


@pytest.mark.spark
def test_a_draw_from_a_position_that_was_dropped_is_refused(spark: SparkSession) -> None:
    rows = spark.range(3).toDF("_position").withColumn("a", F.lit(1))

    def lost(df: DataFrame) -> DataFrame:
        return df.select("a").withColumn("r", rand())

    with (
        step_context(StepContext(0, 1, "clean", True)),
        pytest.raises(InvalidError, match=r"NO_ROW_POSITION.*has dropped that column"),
    ):
        apply(rows, lost, "clean")
    with step_context(StepContext(0, 1, "clean", True)):
        kept = apply(rows, lambda df: df.select("a"), "first")
        with pytest.raises(InvalidError, match="NO_ROW_POSITION"):
            apply(kept, lambda df: df.withColumn("r", rand()), "second")


def _correlation(xs: list[float], ys: list[float]) -> float:
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covariance / math.sqrt(sum((x - mean_x) ** 2 for x in xs) * sum((y - mean_y) ** 2 for y in ys))
