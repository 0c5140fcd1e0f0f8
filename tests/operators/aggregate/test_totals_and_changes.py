"""Aggregates of all rows, and aggregates over the changes of others, down to a table that holds what is true now."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import plan
from boatlift.spark.compile.program import compile_program


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    return tmp_path


def write(number: int, *rows: tuple[str | None, int]) -> None:
    table = pa.table(
        {"k": pa.array([key for key, _ in rows], pa.string()), "v": pa.array([value for _, value in rows], pa.int64())}
    )
    pq.write_table(table, f"rows/part-{number}.parquet")


def source(flow: bl.Dataflow) -> bl.Stream:
    return flow.source("rows", bl.files("rows", format="parquet", schema="k STRING, v LONG", max_files_per_step=1))


def run(flow: bl.Dataflow, spark: SparkSession) -> None:
    bl.run(flow, "store", available_now=True, spark=spark)


def table(columns: str) -> list[Any]:
    with sqlite3.connect("out.db") as connection:
        return sorted(connection.execute(f"SELECT {columns} FROM t").fetchall(), key=repr)


def history() -> list[list[dict[str, Any]]]:
    return [
        sorted(pq.read_table(path).to_pylist(), key=lambda row: (row["_weight"], repr(row)))
        for path in sorted(Path("out").glob("*.parquet"))
    ]


def total() -> bl.Dataflow:
    flow = bl.Dataflow("total")
    rows = source(flow).transform("some", lambda df: df.where("v < 100"))
    rows.agg("total", F.sum("v").alias("v"), F.count("*").alias("n")).sink("out", bl.parquet("out"))
    return flow


def test_a_running_total_is_one_row_and_each_step_changes_it(spark: SparkSession) -> None:
    write(0, ("a", 500))
    run(total(), spark)
    assert history() == [[]], "no row before the first row of input"
    write(1, ("a", 1), (None, 2))
    write(2, ("b", 3))
    write(3, ("b", 400))
    run(total(), spark)
    first, second = {"v": 3, "n": 2}, {"v": 6, "n": 3}
    assert history()[1:] == [
        [{**first, "_weight": 1}],
        [{**first, "_weight": -1}, {**second, "_weight": 1}],
        [],
    ]


def sizes() -> bl.Dataflow:
    """How many keys have each count, in a keyed table."""
    flow = bl.Dataflow("sizes")
    counts = source(flow).group_by("k").agg("counts", F.count("*").alias("n"), policy=bl.Lazy(every=2))
    sizes = counts.group_by("n").agg("sizes", F.count("*").alias("keys"), F.sum("n").alias("rows"))
    sizes.sink("table", bl.sqlite("out.db", table="t", key=["n"]))
    sizes.sink("out", bl.parquet("out"))
    return flow


def test_a_group_of_changes_ends_when_its_last_row_is_taken_back(spark: SparkSession) -> None:
    write(0, ("a", 1), ("b", 1))
    run(sizes(), spark)
    assert table("n, keys, rows") == [(1, 2, 2)]
    write(1, ("a", 1), ("b", 1))
    run(sizes(), spark)
    assert table("n, keys, rows") == [(2, 2, 4)], "nobody has one row any more"
    assert history()[1] == [
        {"n": 1, "keys": 2, "rows": 2, "_weight": -1},
        {"n": 2, "keys": 2, "rows": 4, "_weight": 1},
    ]
    write(2, ("a", 1), ("c", 1))
    run(sizes(), spark)
    assert table("n, keys, rows") == [(1, 1, 1), (2, 1, 2), (3, 1, 3)]


def test_changes_that_cancel_change_nothing(spark: SparkSession) -> None:
    flow = bl.Dataflow("parity")
    counts = source(flow).group_by("k").agg("counts", F.count("*").alias("n"))
    signs = counts.transform("signs", lambda df: df.selectExpr("n > 0 AS there"))
    signs.group_by("there").agg("keys", F.count("*").alias("n")).sink("out", bl.parquet("out"))
    write(0, ("a", 1), ("b", 1))
    write(1, ("a", 1))
    run(flow, spark)
    assert history() == [[{"there": True, "n": 2, "_weight": 1}], []]


@pytest.mark.parametrize("function", [F.min, F.max])
def test_an_extreme_of_changes_is_refused_with_what_to_do(spark: SparkSession, function: Any) -> None:
    flow = bl.Dataflow("extreme")
    counts = source(flow).group_by("k").agg("counts", F.count("*").alias("n"))
    counts.agg("most", function("n").alias("most")).sink("out", bl.parquet("out"))
    write(0, ("a", 1))
    with pytest.raises(
        bl.InvalidError,
        match=r"\[UNSUPPORTED_AGGREGATE\] most: (min|max) over the changes .* write a view with flow.sql",
    ):
        compile_program(spark, plan(flow), ON_SPARK)


def test_a_keyless_aggregate_of_changes_takes_back_what_it_gave(spark: SparkSession) -> None:
    flow = bl.Dataflow("keys")
    counts = source(flow).group_by("k").agg("counts", F.count("*").alias("n"))
    counts.agg("keys", F.count("*").alias("keys"), F.avg("n").alias("mean")).sink("out", bl.parquet("out"))
    write(0, ("a", 1), ("b", 1))
    write(1, ("a", 1))
    run(flow, spark)
    assert history()[1] == [
        {"keys": 2, "mean": 1.0, "_weight": -1},
        {"keys": 2, "mean": 1.5, "_weight": 1},
    ]
