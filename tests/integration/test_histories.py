"""`History` of processors without state, on Spark: what they take is durable, and what comes before runs no more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.runtime.host import term
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, LoggedInput, LoggedMessage
from boatlift.storage.verify import verify
from support.crash.dying import DiesError, dying_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

STEPS, STEP = 4, 10


def doubled(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.withColumn("value", F.col("value") * 2)


def counted(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.groupBy("k").agg(F.count("*").alias("value"))


def made(
    kind: str, stream: bl.Stream, *, history: bool, function: Callable[[DataFrame], DataFrame] = counted
) -> bl.Stream:
    """Return the processor under test, which is named `middle`."""
    epochs = bl.Batch(rows=2 * STEP)  # so that both runs have the same epochs
    if kind == "transform":
        return stream.transform("middle", doubled, policy=bl.History() if history else None)
    policy = bl.History(epochs) if history else epochs
    if kind == "gather":
        return stream.gather("middle", policy=policy)
    return stream.recompute("middle", function, over="batch", policy=policy, deterministic=True)


def flow_of(kind: str, *, history: bool = True, steps: int = STEPS) -> bl.Dataflow:
    """A cleaner, the processor under test, and what begins at the start after every failure."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("histories")
    numbers = flow.source("numbers", bl.generator({"value": "id"}, rows_per_step=STEP, steps=steps))
    clean = numbers.transform("clean", lambda df: df.withColumn("k", F.col("value") % 7))
    middle = made(kind, clean, history=history)
    if kind == "recompute":  # a table is no stream of new rows
        middle.sink("out", bl.parquet("out"))
    else:
        sums = middle.group_by("k").agg("sums", F.sum("value").alias("total"), policy=bl.Lazy(every=None))
        sums.sink("out", bl.parquet("out"))
    return flow


def out() -> dict[str, list[str]]:
    return {path.name: sorted(map(repr, pq.read_table(path).to_pylist())) for path in Path("out").glob("*.parquet")}


def run(flow: bl.Dataflow, spark: SparkSession) -> dict[str, list[int]]:
    """Run to the end, verify every byte, find nothing left over; return the steps that each unit executed."""
    executed: dict[str, list[int]] = {}

    def note(progress: bl.Progress) -> None:
        if progress.what == "step":
            executed.setdefault(progress.processor, []).append(progress.time)

    bl.run(flow, "store", available_now=True, spark=spark, on_progress=note)
    assert list(map(str, verify(LocalStore.open(Path("store"), create=False)))) == []
    return executed


def logged(edge: str) -> set[Any]:
    records = Log.open(LocalStore.open(Path("store"), create=False), None).history.live_records
    return {fact.time for fact in records.facts() if isinstance(fact, LoggedMessage) and fact.edge == edge}


@pytest.mark.parametrize("kind", ["transform", "gather", "recompute"])
def test_it_is_restored_from_what_it_took_and_its_sender_does_not_run_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    for place in ("undisturbed", "attacked"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "undisturbed")
    run(flow_of(kind, history=False), spark)
    expected = out()
    monkeypatch.chdir(tmp_path / "attacked")
    dies = dying_at("commit", "out", nth=1 if kind == "recompute" else 2)
    with pytest.raises(DiesError):
        bl.run(flow_of(kind), "store", available_now=True, spark=spark, on_progress=dies)
    kept = logged("clean->middle")
    assert kept, "what it took is durable"
    assert not logged("middle->sums") | logged("middle->out"), "what it made is not"
    executed = run(flow_of(kind), spark)
    assert not kept.intersection(executed.get("clean", [])), "its sender is not asked again"
    if kind == "recompute":
        assert executed["middle"] == [1], "a table that no sink holds is computed again"
    else:
        first = 0 if kind == "transform" else 1  # for the reader of a batch an epoch is the step that ended it
        assert (executed["middle"][0], executed["sums"][0]) == (0, first), "from the start: nothing else is durable"
    assert out() == expected


def keeping(kind: str, policy: bl.Lazy | bl.History) -> bl.Dataflow:
    """A processor that keeps state, which it makes again out of all that it took."""
    flow = bl.Dataflow("keeping")
    columns = {"k": "id % 7", "to": "id % 5", "value": "id"}
    clean = flow.source("clean", bl.generator(columns, rows_per_step=STEP, steps=STEPS))
    if kind == "upserts":
        made = clean.upserts("middle", key=["k"], order="value", policy=policy)
    else:
        made = flow.sql("middle", QUERIES[kind], policy=policy)
    made.sink("out", bl.parquet("out"))
    return flow


QUERIES = {
    "view": "SELECT a.k, count(*) AS n, sum(b.value) AS s FROM clean a JOIN clean b ON a.k = b.to GROUP BY a.k",
    "loop": "WITH RECURSIVE reach(k, to, n) AS (SELECT k, to, 1 FROM clean UNION ALL SELECT reach.k, clean.to, n + 1 "
    "FROM reach JOIN clean ON reach.to = clean.k WHERE n < 3) SELECT k, to, count(*) AS ways FROM reach GROUP BY k, to",
}


@pytest.mark.parametrize("kind", ["view", "loop", "upserts"])
def test_state_is_made_again_from_all_that_it_took(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    for place in ("undisturbed", "attacked"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "undisturbed")
    run(keeping(kind, bl.Lazy()), spark)
    expected = out()
    assert sum(map(len, expected.values())) > STEPS
    monkeypatch.chdir(tmp_path / "attacked")
    dies = dying_at("commit", "out", nth=3)
    with pytest.raises(DiesError):
        bl.run(keeping(kind, bl.History()), "store", available_now=True, spark=spark, on_progress=dies)
    facts = list(Log.open(LocalStore.open(Path("store"), create=False), None).history.live_records.facts())
    assert {fact.time for fact in facts if isinstance(fact, LoggedInput)} >= {0, 1, 2}, "what it took is durable"
    assert not [fact for fact in facts if isinstance(fact, Checkpoint)], "its state is not"
    assert run(keeping(kind, bl.History()), spark)["middle"] == [*range(STEPS)]
    assert out() == expected


def test_facts_without_a_reader_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(term, "COLLECT_AFTER", 1)
    run(flow_of("recompute", steps=12), spark)
    assert len(logged("clean->middle")) < 4


def test_a_table_that_comes_out_otherwise_stops_the_dataflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """Law: `deterministic=True` is believed, and a table that is computed again is compared with the one before."""
    monkeypatch.chdir(tmp_path)
    drawn = count(100)

    def drifting(df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return df.groupBy("k").agg(F.count("*").alias("value")).withColumn("drawn", F.lit(next(drawn)))

    def flow() -> bl.Dataflow:
        flow = bl.Dataflow("drifting")
        rows = flow.source("numbers", bl.generator({"k": "id"}, rows_per_step=STEP, steps=STEPS))
        clean = rows.transform("clean", lambda df: df.filter("k >= 0"))
        table = made("recompute", clean, history=True, function=drifting)
        table.sink("out", bl.parquet("out"))
        joined = clean.lookup("joined", table=table.by("k"), policy=bl.Lazy(every=None))
        joined.sink("joined_out", bl.parquet("joined"))
        return flow

    with pytest.raises(DiesError):
        bl.run(flow(), "store", available_now=True, spark=spark, on_progress=dying_at("commit", "out"))
    before = out()
    with pytest.raises(bl.DivergedError, match=r"\[DIVERGED\]"):
        bl.run(flow(), "store", available_now=True, spark=spark)
    assert out() == before
