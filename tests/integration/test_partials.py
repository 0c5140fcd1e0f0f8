"""Partial aggregates of the streams of a union: work for one stream is neither delayed nor undone by another's."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.runtime.host import failures

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

pytestmark = pytest.mark.spark

STEPS, BAD = 6, 34
TASK_ATTEMPTS = 2
"""So often Spark tries a task before the step is a failure."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(failures, "BACKOFF_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def aggregates() -> list[Column]:
    from pyspark.sql import functions as F

    return [
        F.count("*").alias("n"),
        F.sum("x").alias("x"),
        F.avg("value").alias("mean"),
        F.stddev("x").alias("deviation"),
        F.min("x").alias("least"),
        F.max("text").alias("last"),
    ]


def flow_of(*, partials: bool, slow: Any = None, keyed: bool = True) -> bl.Dataflow:
    """The aggregates of two streams; one goes through a function."""
    from pyspark.sql import functions as F

    columns = {"value": "id", "k": "id % 3", "x": "IF(id % 7 = 0, NULL, sqrt(id) * 1e-3)", "text": "CAST(id AS STRING)"}
    flow = bl.Dataflow("partials")
    left = flow.source("left", bl.generator(columns, rows_per_step=10, steps=STEPS))
    right = flow.source("right", bl.generator(columns, rows_per_step=5, steps=STEPS))
    if slow is not None:
        left = left.transform(
            "slow", lambda df: df.withColumn("value", F.udf(slow, "long")("value")), deterministic=False
        )
    both = left.union("both", right)
    stream = both.group_by("k") if keyed else both
    stream.agg("totals", *aggregates(), partials=partials).sink("out", bl.parquet("out", key=["k"] if keyed else None))
    return flow


def held() -> list[list[str]]:
    return [sorted(map(repr, pq.read_table(path).to_pylist())) for path in sorted(Path("out").glob("*.parquet"))]


def fails(folder: Path) -> Callable[[int], int]:
    """Return a function that fails at a number, in so many attempts that the step fails."""
    failed = str(folder / "failed")  # a path changes when it is looked at, a text does not

    def at_a_number(value: int) -> int:
        if value == BAD and (not Path(failed).exists() or Path(failed).stat().st_size < TASK_ATTEMPTS):
            with Path(failed).open("a") as tries:
                tries.write("x")
            raise ConnectionError("the outside does not answer")
        return value

    return at_a_number


def waits(folder: Path) -> Callable[[int], int]:
    """Return a function that waits at its first number for a file."""
    done = str(folder / "done")

    def at_the_first(value: int) -> int:
        ends = time.monotonic() + 30  # a worker knows no module of the tests
        while value == 0 and not Path(done).exists() and time.monotonic() < ends:
            time.sleep(0.005)
        return value

    return at_the_first


@pytest.mark.parametrize("keyed", [True, False], ids=["by key", "all rows"])
def test_each_step_has_the_same_bits_with_and_without_partials(spark: SparkSession, keyed: bool) -> None:
    found = []
    for partials in (False, True):
        bl.run(flow_of(partials=partials, keyed=keyed), "store", available_now=True, spark=spark)
        found.append(held())
        shutil.rmtree("out")
        shutil.rmtree("store")
    assert found[0] == found[1]
    assert len(found[0]) == STEPS


def test_what_was_done_for_one_stream_is_not_done_again_after_a_failure_of_the_other(
    here: Path, spark: SparkSession
) -> None:
    """Falkirk Wheel, Figure 3: the work of B at the times of A that are lost is kept."""
    seen: list[bl.Progress] = []
    flow = flow_of(partials=True, slow=fails(here))
    bl.run(flow, "store", available_now=True, spark=spark, on_progress=seen.append)
    steps = Counter((p.processor, p.time) for p in seen if p.what == "step")
    assert [(p.processor, p.time) for p in seen if p.what == "failure"] == [("slow", BAD // 10)]
    assert all(steps[name, number] == 1 for name in ("totals_of_right", "totals") for number in range(STEPS)), steps
    after_failure = held()
    shutil.rmtree("out")
    bl.run(flow_of(partials=False), "other", available_now=True, spark=spark)
    assert after_failure == held()


def test_a_stream_is_aggregated_while_the_other_is_slow(here: Path, spark: SparkSession) -> None:
    seen: list[tuple[str, int]] = []

    def watch(progress: bl.Progress) -> None:
        if progress.what == "step":
            seen.append((progress.processor, progress.time))
            if [name for name, _ in seen].count("totals_of_right") == STEPS:
                (here / "done").touch()

    flow = flow_of(partials=True, slow=waits(here))
    bl.run(flow, "store", available_now=True, spark=spark, on_progress=watch)
    assert seen[:STEPS] == [("totals_of_right", number) for number in range(STEPS)]
    assert len(held()) == STEPS


def test_what_cannot_be_divided_is_refused(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def flow(build: Any) -> bl.Dataflow:
        flow = bl.Dataflow("refused")
        left = flow.source("left", bl.generator({"k": "id % 3"}, rows_per_step=10, steps=1))
        right = flow.source("right", bl.generator({"k": "id % 3"}, rows_per_step=10, steps=1))
        build(left, right).sink("out", bl.parquet("out", key=["k"]))
        return flow

    def of_no_union(left: bl.Stream, right: bl.Stream) -> bl.Stream:
        united = left.union("both", right).transform("more", lambda df: df)
        return united.group_by("k").agg("n", F.count("*").alias("n"), partials=True)

    def read_twice(left: bl.Stream, right: bl.Stream) -> bl.Stream:
        both = left.union("both", right)
        both.sink("rows", bl.parquet("rows"))
        return both.group_by("k").agg("n", F.count("*").alias("n"), partials=True)

    def of_other_types(left: bl.Stream, right: bl.Stream) -> bl.Stream:
        wide = left.transform("wide", lambda df: df.withColumn("v", F.col("k").cast("double")))
        whole = right.transform("whole", lambda df: df.withColumn("v", F.col("k").cast("int")))
        return wide.union("both", whole).group_by("k").agg("n", F.sum("v").alias("n"), partials=True)

    def of_other_kinds(left: bl.Stream, right: bl.Stream) -> bl.Stream:
        text = left.transform("text", lambda df: df.withColumn("v", F.col("k").cast("string")))
        whole = right.transform("whole", lambda df: df.withColumn("v", F.col("k").cast("int")))
        return text.union("both", whole).group_by("k").agg("n", F.max("v").alias("n"), partials=True)

    for build, message in (
        (of_no_union, r"\[BAD_UNION\] n takes partials .*more is none: let it read the union itself"),
        (read_twice, r"\[BAD_UNION\] n .* whose rows rows reads, too: unite the streams once more for n"),
        (
            of_other_types,
            r"\[SCHEMA_MISMATCH\] n aggregates columns that have other types in n_of_whole than in n_of_w",
        ),
    ):
        with pytest.raises(bl.InvalidError, match=message):
            bl.run(flow(build), "store", available_now=True, spark=spark)


def test_changes_and_new_rows_are_aggregated_together(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def flow_of(*, partials: bool) -> bl.Dataflow:
        flow = bl.Dataflow("changes")
        left = flow.source("left", bl.generator({"k": "id % 3", "v": "id"}, rows_per_step=10, steps=STEPS))
        right = flow.source("right", bl.generator({"k": "id % 3", "v": "id"}, rows_per_step=4, steps=STEPS))
        sums = left.group_by("k").agg("sums", F.sum("v").alias("v"))
        both = sums.union("both", right)
        totals = both.group_by("k").agg("totals", F.sum("v").alias("v"), F.count("*").alias("n"), partials=partials)
        totals.sink("out", bl.parquet("out", key=["k"]))
        return flow

    found = []
    for partials in (False, True):
        bl.run(flow_of(partials=partials), "store", available_now=True, spark=spark)
        found.append(held())
        shutil.rmtree("out")
        shutil.rmtree("store")
    assert found[0] == found[1]
    assert len(found[0]) == STEPS


def test_a_key_that_is_null_in_one_stream_alone_is_a_key(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("nulls")
    left = flow.source("left", bl.generator({"k": "id"}, rows_per_step=2, steps=1))
    right = flow.source("right", bl.generator({"k": "IF(id = 0, NULL, id)"}, rows_per_step=2, steps=1))
    known = left.transform("known", lambda df: df.withColumn("k", F.coalesce("k", F.lit(0))))
    totals = known.union("both", right).group_by("k").agg("totals", F.count("*").alias("n"), partials=True)
    totals.transform("none", lambda df: df.where("k IS NULL")).sink("out", bl.parquet("out"))
    bl.run(flow, "store", available_now=True, spark=spark)
    (rows,) = (pq.read_table(path).to_pylist() for path in Path("out").glob("*.parquet"))
    assert rows == [{"k": None, "n": 1, "_weight": 1}]
