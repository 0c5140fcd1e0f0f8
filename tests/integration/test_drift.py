"""What a process began with holds while it runs: the session's settings, the plans, the static tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl

pytestmark = pytest.mark.spark

STEPS = 5


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(spark: SparkSession, function: Callable[[DataFrame], DataFrame], at_step_1: Callable[[], object]) -> None:
    made = bl.Dataflow("drift")
    rows = made.source("rows", bl.generator({"k": "id % 3", "v": "id * 0.5D"}, rows_per_step=9, steps=STEPS))
    rows.transform("mine", function).sink("out", bl.parquet("out"))

    def watch(progress: bl.Progress) -> None:
        if progress.what == "commit" and progress.time == 1:
            at_step_1()

    bl.run(made, "store", available_now=True, spark=spark, on_progress=watch)


def test_a_setting_that_results_depend_on_may_not_change(spark: SparkSession) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        with pytest.raises(
            bl.DataError, match=r"\[ENVIRONMENT_CHANGED\].*timeZone was UTC and is Asia/Tokyo: set them back"
        ):
            run(spark, lambda df: df, lambda: spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    run(spark, lambda df: df, lambda: spark.conf.set("spark.sql.shuffle.partitions", "7"))  # on which nothing depends
    assert spark.read.parquet(str(Path("out").absolute())).count() == 9 * STEPS


def test_a_function_that_builds_another_plan_later_is_refused(spark: SparkSession) -> None:
    factor = 1

    def grow() -> None:
        nonlocal factor
        factor = 2

    with pytest.raises(bl.InvalidError, match=r"\[NOT_DETERMINISTIC\] mine builds another plan now"):
        run(spark, lambda df: df.withColumn("v", F.col("v") * factor), grow)
    factor = 1
    run(spark, lambda df: df.withColumn("v", F.col("v") * factor), lambda: None)
    assert spark.read.parquet(str(Path("out").absolute())).count() == 9 * STEPS


def test_a_udf_that_closes_over_something_else_later_is_refused(spark: SparkSession) -> None:
    class Factor:
        value = 1

    def times(df: DataFrame) -> DataFrame:
        factor = Factor.value
        return df.withColumn("v", F.udf(lambda v: v * factor, "double")("v"))

    made = bl.Dataflow("drift")
    rows = made.source("rows", bl.generator({"v": "id * 0.5D"}, rows_per_step=9, steps=STEPS))
    rows.transform("mine", times, deterministic=True).sink("out", bl.parquet("out"))

    def watch(progress: bl.Progress) -> None:
        Factor.value = 2 if progress.time == 1 else 1

    with pytest.raises(bl.InvalidError, match=r"\[NOT_DETERMINISTIC\] mine builds another plan now"):
        bl.run(made, "store", available_now=True, spark=spark, on_progress=watch)


def test_a_static_table_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    lookup = str(tmp_path / "lookup")

    def write(word: str) -> None:
        names = spark.range(3).select(F.col("id").alias("k"), F.lit(word).alias("name"))
        import pyarrow.parquet as pq

        (tmp_path / "lookup").mkdir(exist_ok=True)
        pq.write_table(names.toArrow(), f"{lookup}/part.parquet")  # as another program would, unseen by this session

    def join(df: DataFrame) -> DataFrame:
        return df.join(spark.read.parquet(lookup), "k")

    write("old")
    run(spark, join, lambda: write("new"))
    assert {
        row.name for row in spark.read.parquet(str(Path("out").absolute())).select("name").distinct().collect()
    } == {"old"}
    with pytest.raises(bl.DataError, match=r"\[PROGRAM_CHANGED\].*mine changed"):
        run(spark, join, lambda: None)
    write("old")
    run(spark, join, lambda: None)
