"""Watermarks where streams meet: unions, merges, lookups, batches and joins, beside plain Python; idle streams."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.runtime.inspect.status import PathsStatus
from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.spark.jobs.jobs import Jobs, ScratchFiles
from boatlift.storage.records.payloads import NO_WATERMARK, RunsPayload, to_json
from support.rows.event_time import BEGIN, SECOND, drawn_steps, judged, windows_of
from support.rows.stepped_rows import SCHEMA, Fields, rows_of, run, steps_of, write_steps
from support.waiting import until, within

MINUTE = 60 * SECOND
STREAMS = {"left": (7, MINUTE), "right": (8, 90 * SECOND)}
ANSWERED = 60
"""Seconds in which a run must have come to where a test waits for it."""


class KilledError(Exception):
    pass


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def meetings(flow: bl.Dataflow) -> dict[str, bl.Stream]:
    """Return streams in which two streams with a watermark meet, by what brings them together."""
    left, right = (
        rows_of(flow, f"{name}_rows").with_watermark(name, "at", f"{late.seconds} seconds")
        for name, (_, late) in STREAMS.items()
    )
    merged, united = left.merge("merged", right), left.union("united", right)
    table = left.group_by("k").agg("table", F.max("v").alias("most"))
    asked = united.lookup("asked", t=table.by("k"))
    return {
        "union": united,
        "merge": merged,
        "lookup": asked.transform("looked_up", lambda df: df.drop("t_most")),
        "gather": merged.gather("gathered", policy=bl.Batch(epochs=3)),
        "late union": asked.transform("half", lambda df: df.where("v % 2 = 0").drop("t_most")).union(
            "halves", united.transform("other_half", lambda df: df.where("v % 2 = 1"))
        ),
        "view": flow.sql("all", "SELECT * FROM left UNION ALL SELECT * FROM right"),
    }


def test_windows_behind_what_brings_streams_together_are_those_of_all_timely_rows(spark: SparkSession) -> None:
    """Law: each window comes once, with all rows that are not late by their own stream; also after a kill."""
    steps = {name: drawn_steps(seed, nulls=True) for name, (seed, _) in STREAMS.items()}
    for name, drawn in steps.items():
        write_steps(drawn, f"{name}_rows")

    def remind(key: Any, rows: Any, _state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
        if context.timer is not None:
            yield key.k, context.timer
        for row in rows:
            if row.at is not None and row.v % 5 == 0:
                context.set_timer(row.at.replace(microsecond=0) + timedelta(seconds=20))

    def flow_of() -> bl.Dataflow:
        flow = bl.Dataflow("meetings")
        for how, met in meetings(flow).items():
            name = how.replace(" ", "_")
            if how == "view":
                counted = flow.sql(
                    "windows",
                    "SELECT window.start AS window_start, window.end AS e, k, count(*) AS n, sum(v) AS v FROM all "
                    "WHERE at IS NOT NULL GROUP BY window(at, '1 minute'), k",
                )
                counted.final(f"{name}_w", "e").sink(f"{name}_out", bl.parquet(f"out/{name}"))
                continue
            windows = met.group_by(bl.window("at", "1 minute"), "k")
            made = windows.agg(f"{name}_w", F.count("*").alias("n"), F.sum("v").alias("v"), emit="final")
            made.sink(f"{name}_out", bl.parquet(f"out/{name}"))
            timers = met.group_by("k").process(
                f"{name}_timers", remind, output="k STRING, timer TIMESTAMP", timers="event"
            )
            timers.sink(f"{name}_timers_out", bl.parquet(f"out/{name}_timers"))
        return flow

    def kill(progress: bl.Progress) -> None:
        if progress.what == "commit" and progress.processor == "union_out" and progress.time >= 4:
            raise KilledError

    with pytest.raises(KilledError):
        run(flow_of(), spark, on_progress=kill)
    before = steps_of("out/union")
    run(flow_of(), spark)
    assert steps_of("out/union")[: len(before)] == before
    assert any(before[1:])

    timely: list[Fields] = []
    ends: list[datetime] = []
    for name, (_, late) in STREAMS.items():
        own, dropped, bounds = judged(steps[name], late)
        assert any(dropped)
        timely += [row for rows in own for row in rows]
        assert bounds.bound is not None
        ends.append(bounds.bound)
    least = min(ends)
    assert least < max(ends), "one stream holds up the other"
    _, _, bounds = judged([timely], MINUTE)
    bounds.after = [least]
    (expected,) = windows_of([timely], bounds, MINUTE, MINUTE)
    due = Counter(
        (row["k"], at)
        for row in timely
        if row["at"] is not None
        and row["v"] % 5 == 0
        and (at := row["at"].replace(microsecond=0) + 20 * SECOND) <= least
    )
    for how in meetings(bl.Dataflow("names")):
        name = how.replace(" ", "_")
        rows = [row for step in steps_of(f"out/{name}") for row in step]
        assert Counter((row["window_start"], row["k"], row["n"], row["v"]) for row in rows) == expected, how
        if how != "view":
            fired = {(row["k"], row["timer"]) for step in steps_of(f"out/{name}_timers") for row in step}
            assert fired <= due.keys()
            assert len(fired) >= len(due) - 4, "timers of the last step fire at the next"
    assert sum(expected.values()) > 10
    held = bl.status("store").watermarks["union_w"]
    assert isinstance(held, PathsStatus)
    assert held.inputs == {
        f"united/{name}": round(end.timestamp() * 1000) for name, end in zip(STREAMS, ends, strict=True)
    }
    said = held.in_words(str)
    assert said.startswith("its watermark is that of united/right, ")


def test_a_stream_that_is_idle_holds_up_no_other_and_what_comes_then_is_late(spark: SparkSession) -> None:
    """A wrong clock far ahead closes nothing; a tick lets the watermark of an idle stream go on."""

    def now(seconds: float = 0) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=seconds)

    def write(name: str, number: int, *times: datetime | None) -> None:
        rows = [{"k": name, "v": number, "at": at} for at in times]
        write_steps([rows], f"new_{name}_{number}")
        Path(f"{name}_rows").mkdir(exist_ok=True)
        Path(f"new_{name}_{number}/000.parquet").rename(f"{name}_rows/{number:03}.parquet")

    flow = bl.Dataflow("idle", tick="1 second")
    late_by = {"max_ahead": "1 hour", "idle_after": "2 seconds"}
    quiet = rows_of(flow, "quiet_rows").with_watermark("quiet", "at", "1 second", **late_by)
    busy = rows_of(flow, "busy_rows").with_watermark("busy", "at", "1 second", max_ahead="1 hour")
    quiet.late_rows("late").sink("late_out", bl.parquet("late"))
    windows = quiet.union("both", busy).group_by(bl.window("at", "1 second"), "k")
    windows.agg("windows", F.count("*").alias("n"), emit="final").sink("out", bl.parquet("out"))
    write("quiet", 0, now())
    write("busy", 0, now(), now(86_400), None)
    running = bl.start(flow, "store", spark=spark)

    def closed(key: str) -> int:
        return sum(row["n"] for step in steps_of("out") for row in step if row["k"] == key)

    try:
        number, deadline = 0, time.monotonic() + ANSWERED
        while closed("busy") < 3:
            assert time.monotonic() < deadline, "the quiet stream holds up the busy one"
            number += 1
            write("busy", number, now())
            within(0.5, lambda: closed("busy") >= 3)
        write("quiet", 1, now(-60), now())
        until(lambda: any(steps_of("late")), ANSWERED)
    finally:
        running.stop()
    assert [row["v"] for step in steps_of("late") for row in step] == [1]
    times = bl.status("store").event_times
    assert (times["quiet"].late, times["busy"].late) == (1, 0)
    assert (times["busy"].ahead, times["busy"].untimed) == (1, 1)
    assert "1 were too far ahead of the clock to move it; 1 had no time" in times["busy"].in_words(str)
    assert closed("quiet") >= 1


def test_before_the_first_row_of_a_stream_the_clock_is_its_time(spark: SparkSession) -> None:
    flow = bl.Dataflow("silent", tick="1 second")
    Path("silent_rows").mkdir()
    Path("busy_rows").mkdir()
    silent = rows_of(flow, "silent_rows").with_watermark("silent", "at", "0 seconds", idle_after="5 seconds")
    silent.sink("out", bl.parquet("out"))
    running = bl.start(flow, "store", spark=spark)
    until(lambda: len(steps_of("out")) >= 12, 2 * ANSWERED)  # each tick a second behind the one before
    running.stop()
    times = bl.status("store").event_times["silent"]
    assert times.idle
    assert times.bound is not None
    assert "it is idle" in times.in_words(str)


Build = Callable[[bl.Dataflow, bl.Stream, bl.Stream], bl.Stream]


@pytest.mark.parametrize(
    ("build", "said"),
    [
        pytest.param(
            lambda _, timed, plain: timed.union("both", plain),
            "of what comes together in both, plain has no watermark: put .with_watermark('NAME', 'at', '10 minutes') "
            "behind plain",
            id="union",
        ),
        pytest.param(
            lambda _, timed, plain: timed.union("one", plain).transform("same", lambda df: df).merge("both", timed),
            "of what comes together in both, plain has no watermark",
            id="merge of a union",
        ),
        pytest.param(
            lambda _, __, plain: plain.transform("both", lambda df: df.where("v > 1")),
            "both does not say how late its rows can be: put .with_watermark('NAME', 'at', '10 minutes') before it",
            id="none",
        ),
    ],
)
def test_a_stream_without_a_watermark_is_named(spark: SparkSession, build: Build, said: str) -> None:
    def flow_of(*, timed: bool) -> bl.Dataflow:
        flow = bl.Dataflow("lacking")
        source = bl.files("rows", format="parquet", schema=SCHEMA)
        plain = flow.source("plain", source, **({"lateness": {"at": "1 minute"}} if timed else {}))
        own = rows_of(flow).with_watermark("timed", "at", "1 minute")
        own.sink("own_out", bl.parquet("own"))
        met = build(flow, own, plain)
        windows = met.group_by(bl.window("at", "1 minute")).agg("w", F.count("*").alias("n"), emit="final")
        windows.sink("out", bl.parquet("out"))
        return flow

    write_steps([[]])
    with pytest.raises(bl.InvalidError, match=rf"\[NO_LATENESS\] w .*{re.escape(said)}"):
        run(flow_of(timed=False), spark)
    run(flow_of(timed=True), spark)  # what the message says


def test_what_idle_after_needs_is_said() -> None:
    flow = bl.Dataflow("unticked")
    rows = rows_of(flow)
    with pytest.raises(
        bl.InvalidError, match=r"\[BAD_OPTION\] unticked has no ticks: write bl.Dataflow\('unticked', t"
    ):
        rows.with_watermark("timely", "at", "1 minute", idle_after="1 minute")
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] timely: max_ahead"):
        rows.with_watermark("timely", "at", "1 minute", max_ahead="soon")
    flow = bl.Dataflow("ticked", tick="2 seconds")
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] timely: ticks are never idle: leave idle_after out"):
        flow.tick.with_watermark("timely", "at", "1 minute", idle_after="1 minute")
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] timely: idle_after='1 second' is less than the 2 sec"):
        rows_of(flow, "short").with_watermark("timely", "at", "1 minute", idle_after="1 second")
    flow = bl.Dataflow("ticked", tick="1 second")
    merged = rows_of(flow).merge("merged", rows_of(flow, "more"))
    merged.with_watermark("timely", "at", "1 minute", idle_after="1 minute").sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=r"\[BAD_LATENESS\] timely has idle_after, and merged is behind"):
        bl.run(flow, "store", available_now=True)


def test_loops_and_queries_about_time_take_streams_with_different_times(spark: SparkSession) -> None:
    """A query of several streams says what it would say of one; a loop iterates over what has come of all."""
    write_steps([[{"k": key, "v": v, "at": BEGIN} for key, v in zip("abcg", (1, 2, 3, 7), strict=True)]], "edges_rows")
    write_steps([[{"k": "a", "v": 1, "at": BEGIN}]], "begin_rows")
    flow = bl.Dataflow("loop")
    edges = rows_of(flow, "edges_rows")
    rows_of(flow, "begin_rows")
    moved = edges.transform("moved", lambda df: df.selectExpr("concat(k, 'x') AS k", "v + 100 AS v", "at"))
    edges.merge("merged", moved)

    def reached(reached: Any, merged: Any, begin_rows: Any) -> Any:
        further = reached.join(merged, "v").select((F.col("v") + 1).alias("v"))
        return begin_rows.select("v").union(further).distinct()

    flow.iterate("reached", reached, output="v LONG").sink("reached_out", bl.parquet("reached"))

    @flow.view()
    def cut(merged: Any, begin_rows: Any) -> Any:
        timely = begin_rows.withWatermark("at", "1 hour").select("k", F.col("at").alias("since"))
        return merged.withWatermark("at", "1 hour").join(timely, "k").select("k", "v", "since")

    cut.sink("cut_out", bl.parquet("cut"))
    twice = "SELECT x.v, y.v AS w FROM merged x JOIN merged y ON x.v + 1 = y.v JOIN begin_rows b ON b.k = x.k"
    flow.sql("twice", twice).sink("twice_out", bl.parquet("twice"))
    run(flow, spark)

    def held(name: str, *columns: str) -> set[tuple[Any, ...]]:
        total: Counter[tuple[Any, ...]] = Counter()
        for row in (row for step in steps_of(name) for row in step):
            total[tuple(row[column] for column in columns)] += row["_weight"]
        assert set(total.values()) <= {0, 1}
        return {row for row, weight in total.items() if weight}

    assert held("reached", "v") == {(1,), (2,), (3,), (4,)}
    assert held("cut", "k", "v", "since") == {("a", 1, BEGIN)}
    assert held("twice", "v", "w") == {(1, 2)}


def test_a_step_that_is_skipped_lets_no_event_time_pass(spark: SparkSession) -> None:
    """Its rows are still to come, or never: what reads the unit must not act on a watermark that it has not reached."""
    windows: Any = SimpleNamespace(
        name="w",
        columns=SimpleNamespace(has_watermark=True),
        top=SimpleNamespace(goes_by_event_time=True),
        unit=SimpleNamespace(sinks=(), materialised=True),
    )
    plan: Any = SimpleNamespace(units={"reader": SimpleNamespace(name="reader", reads=("w",))})
    unused: Any = None
    made = Jobs(spark, plan, unused, unused, unused, ScratchFiles(Path()), unused)
    sent = RunsPayload((), 1, "0" * 16, 5, 7, bounds_by={"a": (10, 20), "b": (100, 200)})
    take = StepInput(3, (Message("u->w", 3, to_json(sent)),))
    state = to_json(RunsPayload((), bounds=(15, 15), heard={"u/a": 15, "u/b": 100}))
    (message,) = made.skipped(windows, take, state).sent.values()
    assert message["bounds"] == [15, 15]
    assert "bounds_by" not in message
    (first,) = made.skipped(windows, take, None).sent.values()
    assert first["bounds"] == [NO_WATERMARK, NO_WATERMARK]
