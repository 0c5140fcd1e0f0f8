"""The hash of a transform: the same with and without the position of rows, unless its function uses the position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import plan
from boatlift.spark.compile.program import compile_program


def hash_of(spark: SparkSession, function: Callable[[DataFrame], DataFrame], first: Any) -> str:
    """Return the hash of a transform behind another one, which is fused with it or is a unit of its own."""
    flow = bl.Dataflow("identity")
    rows = flow.source("rows", bl.files("rows", format="parquet", schema="k STRING, v LONG"))
    made = rows.transform("first", lambda df: df.where("v > 0"), policy=first).transform("made", function)
    made.sink("out", bl.parquet("out"))
    program = compile_program(spark, plan(flow), ON_SPARK)
    program.close()
    assert program.units["made"].leaves.keys() == ({"rows"} if first is None else {"first"})
    return str(program.identity["processor made"]["plan"])


@pytest.mark.parametrize(
    ("function", "same"),
    [
        (lambda df: df.select("k"), True),
        (lambda df: df.where("v > 2").withColumn("w", F.col("v") * 2), True),
        (lambda df: df.select("*", F.upper("k").alias("u")), True),
        (lambda df: df.select("k", F.to_json(F.struct("*")).alias("j")), False),
        (lambda df: df.withColumn("h", F.xxhash64("*")), False),
    ],
    ids=["select", "computed", "star", "struct of all", "hash of all"],
)
def test_a_hash_depends_on_the_division_only_where_rows_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: Any, same: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    pq.write_table(pa.table({"k": ["a"], "v": pa.array([1], pa.int64())}), "rows/part.parquet")
    assert (hash_of(spark, function, None) == hash_of(spark, function, bl.Eager())) is same
