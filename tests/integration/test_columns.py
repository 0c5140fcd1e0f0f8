"""Columns: keys of sinks, names that are ours, dots, maps."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl

pytestmark = pytest.mark.spark

ROWS = bl.generator({"k": "id % 3", "g": "id % 2", "v": "id * 0.5D"}, rows_per_step=10, steps=4)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def flow(keys: list[str], sink_key: list[str]) -> bl.Dataflow:
    made = bl.Dataflow("flow")
    rows = made.source("rows", ROWS)
    counts = rows.group_by(*keys).agg("counts", F.count("*").alias("n"))
    counts.sink("table", bl.sqlite("answers.db", table="answers", key=sink_key))
    return made


def test_a_sink_with_a_longer_key_than_the_aggregate_has_its_old_rows_deleted(spark: SparkSession) -> None:
    bl.run(flow(["k"], ["n", "k"]), "store", available_now=True, spark=spark)
    with sqlite3.connect("answers.db") as database:
        assert sorted(database.execute("SELECT k, n FROM answers")) == [(0, 14), (1, 13), (2, 13)]


def test_a_sink_whose_key_does_not_distinguish_groups_is_refused(spark: SparkSession) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] sink table has the key k, but counts groups by k, g"):
        bl.run(flow(["k", "g"], ["k"]), "store", available_now=True, spark=spark)
    with pytest.raises(bl.InvalidError, match=r"\[SCHEMA_MISMATCH\] sink table .*no column x"):
        bl.run(flow(["k"], ["k", "x"]), "store", available_now=True, spark=spark)


def test_another_key_at_a_sink_is_another_program(spark: SparkSession) -> None:
    bl.run(flow(["k"], ["k"]), "store", available_now=True, spark=spark)
    with pytest.raises(bl.DataError, match=r"\[PROGRAM_CHANGED\].*table changed"):
        bl.run(flow(["k"], ["k", "n"]), "store", available_now=True, spark=spark)


@pytest.mark.parametrize("name", ["_weight", "_position", "_HASH", "_row_hash", "_argument0", "_ordinal"])
def test_names_that_are_ours_are_refused(spark: SparkSession, name: str) -> None:
    made = bl.Dataflow("names")
    rows = made.source("rows", ROWS)
    rows.transform("named", lambda df: df.select("k", F.col("v").alias(name))).sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=rf"\[RESERVED_NAME\] named has a column {name}"):
        bl.run(made, "store", available_now=True, spark=spark)
    made = bl.Dataflow("names")
    made.source("rows", ROWS).group_by("k").agg("sums", F.sum("v").alias(name)).sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=r"\[RESERVED_NAME\]|\[SCHEMA_MISMATCH\]"):
        bl.run(made, "store", available_now=True, spark=spark)


def test_names_with_dots_and_backticks_are_names(spark: SparkSession) -> None:
    made = bl.Dataflow("dots")
    rows = made.source("rows", ROWS).transform("dotted", lambda df: df.withColumnsRenamed({"k": "a.b", "g": "c`d"}))
    rows.sink("rows-out", bl.parquet("rows"))
    rows.group_by("a.b", "c`d").agg("counts", F.count("*").alias("n.n")).sink("out", bl.parquet("out"))
    bl.run(made, "store", available_now=True, spark=spark)
    assert spark.read.parquet(str(Path("rows").absolute())).columns == ["a.b", "c`d", "v"]
    held = (
        spark.read.parquet(str(Path("out").absolute()))
        .groupBy("`a.b`", "`c``d`", "`n.n`")
        .sum("_weight")
        .where("`sum(_weight)` = 1")
    )
    assert {tuple(row)[:3] for row in held.collect()} == {
        (0, 0, 7), (0, 1, 7), (1, 0, 6), (1, 1, 7), (2, 0, 7), (2, 1, 6)
    }  # fmt: skip


def test_maps_are_refused_before_anything_runs(spark: SparkSession) -> None:
    def mapped(df: DataFrame) -> DataFrame:
        return df.select(F.array(F.create_map("k", "v")).alias("m"))

    made = bl.Dataflow("maps")
    made.source("rows", ROWS).transform("mapped", mapped).sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=r"\[TYPE_REFUSED\] column m of mapped holds a map"):
        bl.run(made, "store", available_now=True, spark=spark)
    for query in ("SELECT map(k, v) AS m FROM rows ORDER BY k LIMIT 1", "SELECT map(k, map(k, v)) AS m FROM rows"):
        made = bl.Dataflow("maps")
        made.source("rows", ROWS)
        made.sql("mapped", query).sink("out", bl.parquet("out"))
        with pytest.raises(bl.InvalidError, match=r"\[TYPE_REFUSED\] column m of .*mapped.* holds a map"):
            bl.run(made, "store", available_now=True, spark=spark)
    assert not Path("out").exists()


def test_maps_of_rows_that_only_come_are_passed_on(spark: SparkSession) -> None:
    made = bl.Dataflow("maps")
    made.source("rows", ROWS)
    made.sql("mapped", "SELECT k, map(k, v) AS m FROM rows").sink("out", bl.parquet("out"))
    bl.run(made, "store", available_now=True, spark=spark)
    rows = pq.read_table("out").to_pylist()
    assert rows
    assert all([row["k"]] == [key for key, _ in row["m"]] for row in rows)


def test_what_arrow_has_no_type_for_is_refused(spark: SparkSession) -> None:
    months = "make_ym_interval(1, CAST(v AS INT)) AS i"
    made = bl.Dataflow("intervals")
    made.source("rows", ROWS).transform("t", lambda df: df.selectExpr("k", months)).sink("out", bl.parquet("out"))
    view = bl.Dataflow("view")
    view.source("rows", ROWS)
    view.sql("q", f"SELECT k, {months} FROM rows").sink("out", bl.parquet("view"))
    for flow in (made, view):
        with pytest.raises(
            bl.InvalidError, match=r"\[TYPE_REFUSED\] column i of .* interval .*AS INTERVAL MONTH\) AS INT\)"
        ):
            bl.run(flow, "store", available_now=True, spark=spark)


def test_a_value_that_does_not_fit_an_expression_is_the_programs_fault_not_a_reason_to_try_again(
    spark: SparkSession,
) -> None:
    made = bl.Dataflow("casts")
    rows = made.source("rows", ROWS).transform("cast", lambda df: df.select(F.concat(F.lit("x"), "k").cast("int")))
    rows.sink("out", bl.parquet("out"))
    with pytest.raises(bl.UserCodeError, match=r"\[USER_CODE\] an expression of cast failed at step 0: .*CAST_INVALID"):
        bl.run(made, "store", available_now=True, spark=spark)
