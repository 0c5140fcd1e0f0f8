"""A store of yesterday takes the program of today: what is recorded of each operator stays as it was.

`recorded_program.json` is the record of an earlier version, without hashes, which depend on Python and Spark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import plan
from boatlift.spark.compile.program import compile_program
from operators.laws import SCHEMA, all_cases, dataflow_of, write_rows

HASHES = {"plan", "code", "written", "layout"}
RECORDED = json.loads(Path(__file__).with_name("recorded_program.json").read_text(encoding="utf-8"))


def every_operator() -> bl.Dataflow:
    flow = dataflow_of(all_cases())
    rows = flow.source("others", bl.files("rows", format="parquet", schema=SCHEMA))
    timed = rows.transform("t", lambda df: df.selectExpr("k", "v", "timestamp_seconds(60 * v) AS at"))
    timely = timed.with_watermark("w", "at", "1 hour")
    timely.sink("w-out", bl.parquet("out/w"))
    timely.late_rows("late").sink("late-out", bl.parquet("out/late"))
    cut = flow.sql("cut", "SELECT * FROM t WHERE at > now() - INTERVAL 1 HOUR")
    cut.sink("cut-out", bl.parquet("out/cut"))
    return flow


def test_the_recorded_program_is_that_of_yesterday(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(seed=1)
    program = compile_program(spark, plan(every_operator()), ON_SPARK)
    program.close()
    found: dict[str, Any] = {
        name: {key: value for key, value in about.items() if key not in HASHES}
        for name, about in program.identity.items()
    }
    assert json.loads(json.dumps(found)) == RECORDED
