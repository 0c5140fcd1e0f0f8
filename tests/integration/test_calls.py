"""Answers of the outside world: asked more than once perhaps, but one answer is recorded, and only that is seen; on
Spark.

The world here never answers the same twice, and remembers all that it said.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.runtime.host import failures
from boatlift.runtime.inspect.explanation import explanation_of
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.crash.dying import DiesError, dying_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 4  # of a file, and so of a step


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("said").mkdir()
    add(range(6))


def add(files: range) -> None:
    Path("rows").mkdir(exist_ok=True)
    for file in files:
        rows = "".join(f"{file * ROWS + i},{'ab'[i % 2]}\n" for i in range(ROWS))
        Path(f"rows/{file:03d}.csv").write_text(f"id,k\n{rows}")


def asks(deterministic: bool | None = False) -> tuple[bl.Dataflow, bl.Stream]:
    """A flow, and in it a stream with an answer for each row."""
    folder = str(Path("said").absolute())

    def answer(row: int) -> int:
        given = int.from_bytes(os.urandom(5), "big")
        Path(folder, f"{row}-{given}").touch()
        return given

    def asked(df: DataFrame) -> DataFrame:
        return df.withColumn("answer", bl.call(answer, "id", returns="long"))

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("rows/*.csv", schema="id LONG, k STRING"))
    return flow, rows.transform("read", lambda df: df.where("id >= 0")).transform(
        "asked", asked, deterministic=deterministic
    )


def flow_of() -> bl.Dataflow:
    """What was answered goes to one sink as it is, and to another as sums."""
    from pyspark.sql import functions as F

    flow, asked = asks()
    asked.sink("answers", bl.parquet("answers"))
    sums = asked.group_by("k").agg("sums", F.sum("answer").alias("total"), policy=bl.Lazy(every=100))
    sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    return flow


def run(
    spark: SparkSession, flow: bl.Dataflow, watch: Callable[[bl.Progress], None] = lambda _: None, **options: Any
) -> list[int]:
    """Runs until nothing is new; gives the steps at which questions were asked."""
    steps: list[int] = []

    def note(progress: bl.Progress) -> None:
        if (progress.what, progress.processor) == ("step", "asked"):
            steps.append(progress.time)
        watch(progress)

    bl.run(flow, "store", available_now=True, spark=spark, on_progress=note, **options)
    return steps


def answers() -> list[tuple[int, str, int]]:
    if not Path("answers").exists():
        return []
    return [(row["id"], row["k"], row["answer"]) for row in pq.read_table("answers").to_pylist()]


def said() -> list[str]:
    """All that was ever answered."""
    return [path.name for path in Path("said").iterdir()]


def check(files: int = 6) -> None:
    """Each question has one answer, of those that were given, and all that followed follows from it."""
    held = answers()
    assert sorted(row for row, _, _ in held) == list(range(files * ROWS))
    assert {f"{row}-{answer}" for row, _, answer in held} <= set(said())
    with closing(sqlite3.connect("out.db")) as db:
        totals = dict(db.execute("SELECT k, total FROM sums"))
    assert totals == {k: sum(answer for _, key, answer in held if key == k) for k in "ab"}


def test_each_is_asked_once_if_nothing_fails(spark: SparkSession) -> None:
    run(spark, flow_of())
    check()
    assert len(said()) == 6 * ROWS


@pytest.mark.parametrize(
    ("what", "processor"), [("step", "asked"), ("step", "sums"), ("commit", "answers"), ("commit", "out")]
)
@pytest.mark.parametrize("nth", [1, 4])
def test_what_was_seen_of_an_answer_is_what_is_recorded(
    spark: SparkSession, what: str, processor: str, nth: int
) -> None:
    with pytest.raises(DiesError):
        run(spark, flow_of(), dying_at(what, processor, nth))
    before = answers()
    run(spark, flow_of())
    check()
    assert set(before) <= set(answers())


def test_no_step_asks_again_once_an_answer_is_durable(spark: SparkSession) -> None:
    with pytest.raises(DiesError):
        run(spark, flow_of(), dying_at("commit", "out", 4))
    assert (seen := {row for row, _, _ in answers()})
    again = run(spark, flow_of())
    check()
    assert not {row // ROWS for row in seen} & set(again), "what a sink had was asked again"


def test_a_processor_that_fails_alone_goes_on_from_the_recorded_answers(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "BACKOFF_SECONDS", 0.01)
    failed = Path("failed").absolute()

    def fails_once(k: str) -> str:
        if not failed.exists():
            failed.touch()
            raise ValueError(k)
        return k

    from pyspark.sql import functions as F

    flow, asked = asks()
    asked.sink("answers", bl.parquet("answers"))
    behind = asked.transform("behind", lambda df: df.withColumn("k", F.udf(fails_once)("k")), deterministic=True)
    sums = behind.group_by("k").agg("sums", F.sum("answer").alias("total"), policy=bl.Lazy(every=3))
    sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    run(spark, flow)
    check()
    assert failed.exists()
    assert len(said()) == 6 * ROWS, "who asked did not fail"


def test_behind_a_merge_and_before_a_lookup(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    flow, asked = asks()
    other = flow.source("other", bl.files("rows/*.csv", schema="id LONG, k STRING"))
    sums = other.group_by("k").agg("sums", F.count("*").alias("n"))
    asked.lookup("found", sums=sums.by("k")).sink("answers", bl.parquet("answers"))
    both = flow.source("third", bl.files("rows/*.csv", schema="id LONG, k STRING")).merge("both", other)
    both.transform("drawn", lambda df: df.withColumn("r", F.rand()), deterministic=False).sink(
        "draws", bl.parquet("draws")
    )
    with pytest.raises(DiesError):
        run(spark, flow, dying_at("commit", "draws", 3))
    before = pq.read_table("draws").to_pylist()
    run(spark, flow)
    draws = pq.read_table("draws").to_pylist()
    assert all(row in draws for row in before)
    assert sorted(row["id"] for row in draws) == sorted(2 * list(range(6 * ROWS)))
    assert sorted(row for row, _, _ in answers()) == list(range(6 * ROWS))


def test_with_one_reader_nothing_is_seen_before_it_is_durable(spark: SparkSession) -> None:
    flow, asked = asks()
    asked.sink("answers", bl.parquet("answers"))

    def is_durable(progress: bl.Progress) -> None:
        if (progress.what, progress.processor) == ("commit", "answers"):
            log = Log.open(LocalStore.open(Path("store"), create=False), None)
            assert progress.time in log.history.live_records.sent.get("asked->answers", {}), "it could be asked again"

    run(spark, flow, is_durable)
    assert sorted(row for row, _, _ in answers()) == list(range(6 * ROWS))


def test_what_is_recomputed_may_ask_as_it_is(spark: SparkSession) -> None:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("rows/*.csv", schema="id LONG, k STRING"))

    def fit(df: DataFrame) -> DataFrame:
        return df.groupBy("k").count().withColumn("answer", bl.call(lambda k: f"{k}!", "k"))

    rows.recompute("fit", fit).sink("out", bl.sqlite("out.db", table="fits", key=["k"]))
    run(spark, flow)
    with closing(sqlite3.connect("out.db")) as db:
        assert dict(db.execute("SELECT k, answer FROM fits")) == {"a": "a!", "b": "b!"}


def test_explain_knows_that_it_is_not_executed_again(spark: SparkSession) -> None:
    with pytest.raises(DiesError):
        run(spark, flow_of(), dying_at("commit", "out", 3))
    told = explanation_of(Log.open(LocalStore.open(Path("store"), create=False), None), frozenset()).processors
    assert not told["sums"].restored_to, "it has no checkpoint yet"
    assert max(told["asked"].restored_to) >= 2, "what a sink holds is not asked again"


def test_it_must_be_declared(spark: SparkSession) -> None:
    flow, asked = asks(deterministic=None)
    asked.sink("answers", bl.parquet("answers"))
    with pytest.raises(bl.InvalidError, match=r"\[NOT_DETERMINISTIC\] asked calls answer.*deterministic=False"):
        run(spark, flow)
    assert not Path("store/log").exists()
