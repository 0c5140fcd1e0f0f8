"""A function that hangs in a job of several steps: the job is cancelled, and each step is executed once more."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import boatlift as bl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 5


def test_the_steps_of_a_job_that_was_given_up_are_not_executed_one_by_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for number in range(FILES):
        (tmp_path / "rows" / f"{number}.csv").write_text(f"v\n{number}\n")
    hangs, called, taken = tmp_path / "hangs", tmp_path / "called", tmp_path / "taken"
    hangs.touch()

    @F.udf("int", useArrow=True)  # type: ignore[untyped-decorator]
    def noted(value: int) -> int:
        with called.open("a") as file:
            file.write(f"{value}\n")
        # The first step lasts until all others wait; the second one is planned by then, the third has a job with them.
        while hangs.exists() and (value >= 2 or not taken.exists()):
            time.sleep(0.02)
        return value

    seen: list[bl.Progress] = []

    def watch(progress: bl.Progress) -> None:
        seen.append(progress)
        if progress.what == "take" and progress.time == FILES - 1:
            taken.touch()
        if progress.what == "failure":
            hangs.unlink()

    flow = bl.Dataflow("hangs")
    rows = flow.source("rows", bl.files(tmp_path / "rows/*.csv", schema="v INT", max_files_per_step=1))
    passed = rows.transform("noted", lambda df: df.withColumn("v", noted("v")), deterministic=True)
    passed.agg("sums", F.sum("v").alias("v")).sink("out", bl.parquet(tmp_path / "out"))
    bl.run(flow, tmp_path / "store", available_now=True, spark=spark, step_timeout=6.0, on_progress=watch)
    assert [(each.processor, each.time) for each in seen if each.what == "failure"] == [("sums", 2)]
    assert "stage" in [each.said for each in seen if each.what == "stuck"][-1]
    calls = called.read_text().split()
    assert calls.count("2") == 2
    held = [row for row in pq.read_table(tmp_path / "out").to_pylist() if row["_weight"] == 1]
    assert sorted(row["v"] for row in held) == [0, 1, 3, 6, 10]
