"""Spark's watermarks do nothing in a transform, so they are refused with what to write instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import plan
from boatlift.errors import InvalidError
from boatlift.spark.compile.program import compile_program

CALLS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "withWatermark": (lambda rows: rows.withWatermark("t", "10 minutes"), "stream.with_watermark"),
    "dropDuplicatesWithinWatermark": (lambda rows: rows.dropDuplicatesWithinWatermark(["k"]), "stream.drop_duplicates"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_watermark_is_refused_with_what_to_write(spark: SparkSession, tmp_path: object, call: str) -> None:
    function, instead = CALLS[call]
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.generator({"k": "id", "t": "timestamp_seconds(id)"}, rows_per_step=2, steps=1))
    rows.transform("made", function).sink("out", bl.parquet(f"{tmp_path}/out"))
    own = type(spark.range(1)).withWatermark
    with pytest.raises(InvalidError, match=f"made calls {call}, which does nothing.*{instead}") as refused:
        compile_program(spark, plan(flow), ON_SPARK)
    assert refused.value.condition == "NOT_ON_A_STREAM"
    assert type(spark.range(1)).withWatermark is own, "other code may use watermarks"
