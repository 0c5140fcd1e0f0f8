"""Epochs that many steps share: by count, by the clock, by event time, by what rows say; in arrival order; on Spark."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.runtime.inspect.explanation import explanation_of
from boatlift.spark.jobs import row_questions
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.crash.dying import DiesError, dying_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, v INT, at TIMESTAMP"
HOURS = [9, 9, 9, 10, 9, 10, 11, 12]


def rows_of(stream: str, file: int) -> list[tuple[str, int, str]]:
    hour = HOURS[file % len(HOURS)]
    return [("ABC"[(file + i) % 3], file * 10 + i, f"2026-03-0{file // 8 + 1} {hour:02d}:{i:02d}:00") for i in range(4)]


def add(stream: str, files: range) -> None:
    Path(stream).mkdir(exist_ok=True)
    for file in files:
        rows = "".join(f"{k},{v},{at}\n" for k, v, at in rows_of(stream, file))
        Path(f"{stream}/{file:03d}.csv").write_text(f"k,v,at\n{rows}")


def source(flow: bl.Dataflow, name: str) -> Any:
    return flow.source(name, bl.files(name, format="csv", schema=SCHEMA, max_files_per_step=1))


def gathered(policy: bl.Batch, *, merged: bool = True) -> bl.Dataflow:
    """Sums of what was gathered, and of each gathering how many rows and files it had."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = source(flow, "east")
    rows = rows.merge("both", source(flow, "west")) if merged else rows
    hours = rows.gather("hours", policy=policy)
    sums = hours.group_by("k").agg("sums", F.sum("v").alias("total"), F.count("*").alias("n"), policy=bl.Lazy(every=2))
    sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    hours.sink("all", bl.parquet("all"))
    return flow


def run(
    spark: SparkSession, flow: bl.Dataflow, watch: Callable[[bl.Progress], None] = lambda _: None
) -> dict[str, list[int]]:
    """Runs until nothing is new; gives the rows of the steps that each processor executed."""
    executed: dict[str, list[int]] = {}

    def note(progress: bl.Progress) -> None:
        if progress.what == "step":
            executed.setdefault(progress.processor, []).append(progress.numInputRows)
        watch(progress)

    bl.run(flow, "store", available_now=True, spark=spark, on_progress=note)
    return executed


def check(**files: int) -> None:
    came = [row for stream, count in files.items() for file in range(count) for row in rows_of(stream, file)]
    with closing(sqlite3.connect("out.db")) as db:
        found = {k: (total, n) for k, total, n in db.execute("SELECT k, total, n FROM sums")}
    assert found == {k: (sum(v for key, v, _ in came if key == k), sum(key == k for key, _, _ in came)) for k in "ABC"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_comes_as_it_comes_is_one_step_again_when_an_epoch_is_over(spark: SparkSession) -> None:
    add("east", range(5))
    add("west", range(2))
    executed = run(spark, gathered(bl.Batch(epochs=3)))
    assert len(executed["both"]) == 7
    assert sum(executed["hours"]) == 28
    assert all(rows >= 12 for rows in executed["hours"][:-1])
    assert executed["sums"] == executed["hours"], "a step of what was gathered is one step behind it"
    check(east=5, west=2)
    add("west", range(2, 6))
    run(spark, gathered(bl.Batch(epochs=3)))
    check(east=5, west=6)


@pytest.mark.parametrize(
    ("what", "processor", "nth"),
    [("step", "both", 4), ("step", "hours", 1), ("step", "hours", 2), ("step", "sums", 1), ("commit", "out", 2)],
)
@pytest.mark.parametrize(
    "policy", [bl.Batch(epochs=2), bl.Batch(event_time="at", every="1 hour")], ids=["count", "event time"]
)
def test_a_crash_anywhere_loses_nothing_and_doubles_nothing(
    spark: SparkSession, what: str, processor: str, nth: int, policy: bl.Batch
) -> None:
    add("east", range(4))
    add("west", range(4))
    with pytest.raises(DiesError):
        run(spark, gathered(policy), dying_at(what, processor, nth))
    run(spark, gathered(policy))
    check(east=4, west=4)


def test_epochs_end_where_event_time_reaches_another_period(spark: SparkSession) -> None:
    add("east", range(8))
    executed = run(spark, gathered(bl.Batch(event_time="at", every="1 hour"), merged=False))
    # 9 9 9 10 | 9 10 | 11 12 |, if steps came one by one; what is there when an epoch is over is of it
    assert sum(executed["hours"]) == 32
    assert executed["hours"][0] == 16, "the fourth step ends the first"
    assert len(executed["hours"]) > 1
    check(east=8)


def test_epochs_end_where_rows_say_so(spark: SparkSession) -> None:
    add("east", range(6))
    policy = bl.Batch(when="max(v) > 32")
    flow = gathered(policy, merged=False)
    with pytest.raises(DiesError):
        run(spark, flow, dying_at("commit", "all", 1))
    run(spark, gathered(policy, merged=False))
    check(east=6)
    add("east", range(6, 8))
    assert len(run(spark, gathered(policy, merged=False))["hours"]) == 2, "each says so"
    check(east=8)


def test_a_live_epoch_ends_by_the_clock_though_nothing_comes(spark: SparkSession) -> None:
    """Two files come and no more: without the clock the run would have nothing to do, and never be stopped."""
    add("east", range(2))
    done = threading.Event()

    def watch(progress: bl.Progress) -> None:
        if (progress.what, progress.processor) == ("commit", "out"):
            done.set()

    query = bl.start(gathered(bl.Batch(seconds=1.5), merged=False), "store", spark=spark, on_progress=watch)
    try:
        assert done.wait(60)
    finally:
        query.stop()
    check(east=2)


ENDS = [
    bl.Batch(epochs=100),
    bl.Batch(event_time="at", every="1 hour"),
    bl.Batch(event_time="at", every="1 day"),
    bl.Batch(when="max(v) > 1000"),
    bl.Batch(seconds=3600),
]


@pytest.mark.parametrize("ends", ["crash", "stop"])
@pytest.mark.parametrize("merged", [False, True])
def test_another_end_of_epochs_is_no_other_program(ends: str, merged: bool, spark: SparkSession) -> None:
    """Each time something waits for the end of an epoch, and another policy takes over."""
    add("west", range(1))
    for n, policy in enumerate(ENDS):
        add("east", range(n, n + 1))
        waiting = threading.Event()
        query = bl.start(
            gathered(policy, merged=merged), "store", spark=spark, on_progress=partial(note_if_all_waits, waiting)
        )
        try:
            assert waiting.wait(60)
        finally:
            query.stop()
        if ends == "crash":
            add("east", range(n + 1, n + 2))
            with pytest.raises(DiesError):
                run(spark, gathered(policy, merged=merged), dying_at("idle", "east"))
        explanation_of(Log.open(LocalStore.open(Path("store"), create=False), None), frozenset({"hours"}))
    executed = run(spark, gathered(bl.Batch(epochs=100), merged=merged))
    assert len(executed["hours"]) == 1, "no epoch had ended"
    check(east=len(ENDS) + (ends == "crash"), west=int(merged))


def minutes() -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    source(flow, "east").sink("all", bl.parquet("all", every="1 hour"))
    return flow


@pytest.mark.parametrize("at", [None, ("step", "all_gathered", 1), ("commit", "all", 1), ("idle", "east", 1)])
def test_a_sink_that_gathers_has_a_file_an_epoch_and_each_row_once(
    spark: SparkSession, at: tuple[str, str, int] | None
) -> None:
    add("east", range(5))
    if at is not None:
        with pytest.raises(DiesError):
            run(spark, minutes(), dying_at(*at))
    add("east", range(5, 7))
    executed = run(spark, minutes())
    files = sorted(Path("all").glob("*.parquet"))
    assert len(files) <= 2, "steps of an hour are one"
    assert len(files) == 1 or at in (("step", "all_gathered", 1), ("commit", "all", 1))
    assert set(executed) <= {"all_gathered"}
    found = sorted(row["v"] for path in files for row in pq.read_table(path).to_pylist())
    assert found == sorted(v for file in range(7) for _, v, _ in rows_of("east", file))


def bounded(kind: str) -> bl.Dataflow:
    """A sink of which a file has ten rows, or a few more; a row in four is dropped before it."""
    flow = bl.Dataflow("flow")
    rows = source(flow, "east")
    if kind == "durable, then transformed":
        rows = rows.transform("every", lambda df: df.where("v >= 0"), policy=bl.Eager())
    if kind != "read":
        policy = bl.Eager() if kind == "made durable" else bl.Ephemeral()
        rows = rows.transform("most", lambda df: df.where("v % 10 < 3"), policy=policy)
    rows.sink("all", bl.parquet("all", every="1 hour", rows=10))
    return flow


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("read", [12, 12, 8]),
        ("transformed", [12, 12]),
        ("made durable", [12, 12]),
        ("durable, then transformed", [12, 12]),
    ],
)
@pytest.mark.parametrize("at", [None, ("step", "all_gathered", 2), ("commit", "all", 1), ("idle", "east", 1)])
def test_a_file_of_a_sink_that_gathers_ends_at_its_bound_of_rows(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    files: list[int],
    at: tuple[str, str, int] | None,
) -> None:
    probed: list[Any] = []
    real = row_questions.unsealing  # around the job of each probe
    monkeypatch.setattr(row_questions, "unsealing", lambda *given: probed.append(given) or real(*given))
    add("east", range(8))
    if at is not None:
        with pytest.raises(DiesError):
            run(spark, bounded(kind), dying_at(*at))
    run(spark, bounded(kind))
    tables = [pq.read_table(path).to_pylist() for path in sorted(Path("all").glob("*.parquet"))]
    assert [len(rows) for rows in tables] == files
    wanted = [v for file in range(8) for _, v, _ in rows_of("east", file) if kind == "read" or v % 10 < 3]
    assert [v for rows in tables for v in sorted(row["v"] for row in rows)] == wanted, "those of whole steps, each once"
    assert bool(probed) == (kind != "made durable"), "rows that were counted are not counted again"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": 10}, "give every, too"),
        ({"every": "1 minute", "rows": 0}, "rows is 0: give a whole number from 1"),
        ({"every": "1 minute", "rows": "10"}, "rows is '10'"),
        ({"every": "1 minute", "rows": True}, "rows is True"),
        ({"every": "1 minute", "rows": 10, "key": ["k"]}, "every gathers new rows"),
    ],
)
def test_a_bound_of_rows_that_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(bl.InvalidError, match=rf"\[BAD_OPTION\].*{said}"):
        bl.parquet("all", **options)


def note_if_all_waits(waiting: threading.Event, progress: bl.Progress) -> None:
    """Nothing more comes, so that everything there is waits."""
    if (progress.what, progress.processor) == ("idle", "east"):
        waiting.set()


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            bl.Batch(event_time="when", every="1 day"),
            "event_time is when, which its rows do not have: they have k, v, at",
        ),
        (bl.Batch(event_time="v", every="1 day"), "event_time is v, which is int: choose a date or a timestamp"),
        (bl.Batch(when="v > 3"), "Spark cannot ask 'v > 3' of all rows of a step"),
        (bl.Batch(when="max(w) > 3"), "Spark cannot ask 'max\\(w\\) > 3' of all rows of a step"),
        (bl.Batch(when="max(v) >"), "Spark cannot ask 'max\\(v\\) >' of all rows of a step"),
        (bl.Batch(when="max(v)"), "'max\\(v\\)' is int: write a condition"),
        (bl.Batch(when="max(at) < DATE 'today'"), ".* holds DATE 'today', which differs .* or let epochs end by the"),
        (bl.Batch(when="max(at) < current_date()"), ".* holds CurrentDate, which differs from run to run: ask columns"),
    ],
)
def test_ends_that_cannot_be_asked_of_rows_are_refused(policy: bl.Batch, said: str, spark: SparkSession) -> None:
    add("east", range(1))
    with pytest.raises(bl.InvalidError, match=rf"\[BAD_POLICY\] hours: {said}"):
        run(spark, gathered(policy, merged=False))
    assert not Path("store").exists() or not list(Path("store").rglob("*.log"))


def test_a_table_may_be_computed_of_what_a_merge_gave_since_the_last_one(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def summed(df: DataFrame) -> DataFrame:
        return df.groupBy("k").agg(F.sum("v").alias("total"), F.count("*").alias("n"))

    flow = bl.Dataflow("flow")
    both = source(flow, "east").merge("both", source(flow, "west"))
    both.recompute("fit", summed, over="batch", policy=bl.Batch(epochs=100)).sink(
        "out", bl.sqlite("out.db", table="sums", key=["k"])
    )
    add("east", range(3))
    add("west", range(2))
    assert len(run(spark, flow)["fit"]) == 1, "until nothing more comes"
    check(east=3, west=2)


def test_what_was_looked_up_for_is_looked_up_for_again_and_merged(spark: SparkSession) -> None:
    """Two lookups in a row, then a merge of what they gave with another stream: each has times of its own."""
    from pyspark.sql import functions as F

    def flow_of() -> bl.Dataflow:
        flow = bl.Dataflow("flow")
        east, west = source(flow, "east"), source(flow, "west")
        count, most = F.count("*").alias("n"), F.max("v").alias("most")
        counts, greatest = west.group_by("k").agg("counts", count), west.group_by("k").agg("greatest", most)
        first = east.lookup("first", of=counts.by("k"))
        second = first.lookup("second", there=greatest.by("k")).transform("told", lambda df: df.select("k", "v", "at"))
        second.merge("both", west).group_by("k").agg("sums", F.sum("v").alias("total"), count).sink(
            "out", bl.sqlite("out.db", table="sums", key=["k"])
        )
        return flow

    add("east", range(4))
    add("west", range(3))
    for what, processor, nth in (("step", "first", 3), ("step", "told", 4), ("step", "both", 1), ("commit", "out", 1)):
        with pytest.raises(DiesError):
            run(spark, flow_of(), dying_at(what, processor, nth))
    run(spark, flow_of())
    check(east=4, west=3)
