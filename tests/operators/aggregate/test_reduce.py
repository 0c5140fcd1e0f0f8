"""Reductions: the aggregates of each step by itself, which keep nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    for number in range(3):
        keys = ["a", "b", None, "a"][: 4 - number]
        rows = pa.table({"k": pa.array(keys, pa.string()), "v": pa.array(range(len(keys)), pa.int64())})
        pq.write_table(rows, f"rows/part-{number}.parquet")
    return tmp_path


def source(flow: bl.Dataflow) -> bl.Stream:
    return flow.source("rows", bl.files("rows", format="parquet", schema="k STRING, v LONG", max_files_per_step=1))


def flow_of(policy: Any = None) -> bl.Dataflow:
    flow = bl.Dataflow("reduced")
    sums = source(flow).group_by("k").reduce("sums", F.sum("v").alias("v"), F.count("*").alias("n"), policy=policy)
    sums.sink("out", bl.parquet("out"))
    sums.group_by("k").agg("total", F.sum("v").alias("v"), F.sum("n").alias("n")).sink("totals", bl.parquet("totals"))
    return flow


def held(folder: str) -> list[list[dict[str, Any]]]:
    return [sorted(pq.read_table(path).to_pylist(), key=repr) for path in sorted(Path(folder).glob("*.parquet"))]


def facts() -> list[object]:
    return list(Log.open(LocalStore.open(Path("store"), create=False), None).history.live_records.facts())


@pytest.mark.parametrize("policy", [None, bl.Eager()], ids=repr)
def test_each_step_has_the_sums_of_its_own_rows_and_nothing_is_kept(spark: SparkSession, policy: Any) -> None:
    bl.run(flow_of(policy), "store", available_now=True, spark=spark)
    a, b, none = ({"k": key, "v": v, "n": n} for key, v, n in (("a", 3, 2), ("b", 1, 1), (None, 2, 1)))
    assert held("out") == [
        [a, b, none],
        [{"k": "a", "v": 0, "n": 1}, b, none],
        [{"k": "a", "v": 0, "n": 1}, b],
    ]
    states = {fact.processor for fact in facts() if isinstance(fact, Checkpoint)}
    assert states == {"total"}


def test_a_reduction_shares_the_job_of_the_transforms_before_it(spark: SparkSession) -> None:
    flow = bl.Dataflow("fused")
    clean = source(flow).transform("clean", lambda df: df.where("k = 'a'"))
    clean.group_by("k").reduce("sums", F.max("v").alias("v")).sink("out", bl.parquet("out"))
    steps: set[str] = set()
    bl.run(
        flow,
        "store",
        available_now=True,
        spark=spark,
        on_progress=lambda p: steps.add(p.processor) if p.what == "step" else None,
    )
    assert steps == {"sums"}
    assert held("out") == [[{"k": "a", "v": 3}], [{"k": "a", "v": 0}], [{"k": "a", "v": 0}]]


def test_a_sum_that_overflows_is_reported_at_its_step(spark: SparkSession) -> None:
    big = pa.table({"k": ["a", "a"], "v": pa.array([2**63 - 1, 1], pa.int64())})
    pq.write_table(big, "rows/part-9.parquet")
    with pytest.raises(bl.DataError, match=r"\[OVERFLOW\]"):
        bl.run(flow_of(), "store", available_now=True, spark=spark)
    assert len(held("out")) == 3, "the steps before it stand"
