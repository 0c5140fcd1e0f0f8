"""Transforms whose rows depend on their places in a step's input: another division of the files changes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl

pytestmark = pytest.mark.spark

Function = Callable[[Any], Any]

BY_PLACE: dict[str, Function] = {
    "a column": lambda df: df.withColumn("n", F.col("_position") * 2),
    "a filter": lambda df: df.where("_position < 3"),
    "the whole row": lambda df: df.select("k", F.struct("*").alias("whole")),
}

BY_ROW: dict[str, Function] = {
    "other columns": lambda df: df.withColumn("n", F.col("k") * 2),
    "the place passed on": lambda df: df.select("k", "_position"),
}


def why(spark: SparkSession, folder: Path, function: Function) -> str:
    flow = bl.Dataflow("flow")
    (folder / "in").mkdir()
    rows = flow.source("rows", bl.files(f"{folder}/in/*.parquet", schema="k INT", max_files_per_step=4))
    named = rows.transform("named", function).transform("more", lambda df: df.withColumn("one", F.lit(1)))
    named.sink("desk", bl.foreach(lambda rows, step: None, key=["k"]))
    return bl.plan(flow, spark=spark).unawaited["desk"]


@pytest.mark.parametrize("function", BY_PLACE.values(), ids=BY_PLACE)
def test_rows_that_depend_on_their_place_wait_for_the_log(
    spark: SparkSession, tmp_path: Path, function: Function
) -> None:
    said = why(spark, tmp_path, function)
    assert said == "named computes with _position, which another division may change"


@pytest.mark.parametrize("function", BY_ROW.values(), ids=BY_ROW)
def test_other_rows_wait_for_nothing(spark: SparkSession, tmp_path: Path, function: Function) -> None:
    assert why(spark, tmp_path, function) == ""
