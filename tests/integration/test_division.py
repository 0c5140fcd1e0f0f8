"""A transform's policy changes between two runs, which divides the program into other Spark jobs: nothing is lost."""

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
from boatlift.storage.verify import verify


class DiesError(Exception):
    """Ends a run in the middle."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()


def write(number: int) -> None:
    rows = pa.table({"k": [f"k{n % 3}" for n in range(9)], "v": pa.array(range(number, number + 9), pa.int64())})
    pq.write_table(rows, f"rows/part-{number:03}.parquet")


def flow_of(policy: Any) -> bl.Dataflow:
    flow = bl.Dataflow("divided")
    rows = flow.source("rows", bl.files("rows", format="parquet", schema="k STRING, v LONG", max_files_per_step=1))
    clean = rows.transform("clean", lambda df: df.where("v % 2 = 0"), policy=policy)
    doubled = clean.transform("doubled", lambda df: df.selectExpr("k", "v * 2 AS v"))
    doubled.group_by("k").agg("sums", F.sum("v").alias("v"), policy=bl.Lazy(every=2)).sink("out", bl.parquet("out"))
    return flow


def run(spark: SparkSession, policy: Any, *, dies_at: int | None = None) -> set[str]:
    """Run all files; return the processors that executed steps."""
    executed: set[str] = set()

    def watch(progress: bl.Progress) -> None:
        if progress.what == "step":
            executed.add(progress.processor)
        if progress.what == "commit" and progress.time == dies_at:
            raise DiesError

    bl.run(flow_of(policy), "store", available_now=True, spark=spark, on_progress=watch)
    return executed


def history() -> dict[str, list[str]]:
    return {path.name: sorted(map(repr, pq.read_table(path).to_pylist())) for path in Path("out").glob("*.parquet")}


def test_after_a_clean_stop_a_transform_becomes_a_job_of_its_own_and_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = []
    for number, policy in enumerate([None, bl.Eager(), None, bl.Eager(), None]):
        write(3 * number)
        write(3 * number + 1)
        executed.append(run(spark, policy))
        assert list(map(str, verify(LocalStore.open(Path("store"), create=False)))) == []
    assert executed == [{"sums"}, {"clean", "sums"}, {"sums"}, {"clean", "sums"}, {"sums"}]
    found = history()
    (tmp_path / "undisturbed").mkdir()
    (tmp_path / "rows").rename(tmp_path / "undisturbed" / "rows")
    monkeypatch.chdir(tmp_path / "undisturbed")
    run(spark, None)
    assert found == history()
    assert len(found) == 10


@pytest.mark.parametrize(("before", "after"), [(None, bl.Eager()), (bl.Eager(), None)], ids=["to eager", "from eager"])
def test_after_a_crash_the_old_division_has_to_end_first(spark: SparkSession, before: Any, after: Any) -> None:
    for number in range(5):
        write(number)
    with pytest.raises(DiesError):
        run(spark, before, dies_at=3)
    with pytest.raises(bl.DataError, match=r"\[PROGRAM_CHANGED\] .* run it once more as it was"):
        run(spark, after)
    run(spark, before)
    write(5)
    run(spark, after)
    assert len(history()) == 6


def test_an_aggregate_that_never_makes_a_checkpoint_keeps_the_messages_that_it_is_made_of(spark: SparkSession) -> None:
    def flow(policy: Any) -> bl.Dataflow:
        flow = bl.Dataflow("divided")
        rows = flow.source("rows", bl.files("rows", format="parquet", schema="k STRING, v LONG", max_files_per_step=1))
        clean = rows.transform("clean", lambda df: df.where("v % 2 = 0"), policy=policy)
        sums = clean.group_by("k").agg("sums", F.sum("v").alias("v"), policy=bl.Lazy(every=None))
        sums.sink("out", bl.parquet("out"))
        return flow

    for number in range(3):
        write(number)
    bl.run(flow(bl.Eager()), "store", available_now=True, spark=spark)
    with pytest.raises(bl.DataError, match=r"\[PROGRAM_CHANGED\] .* messages wait on clean->sums"):
        bl.run(flow(None), "store", available_now=True, spark=spark)
    write(3)
    bl.run(flow(bl.Eager()), "store", available_now=True, spark=spark)
    assert len(history()) == 4
