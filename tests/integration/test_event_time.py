"""Event time on Spark, step by step beside plain Python: late rows, windows that end, duplicates, timers."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.spark.jobs import planner
from boatlift.spark.jobs.row_steps import JobSteps
from boatlift.spark.jobs.state_parts import HeldRuns, StateParts
from support.pages import ROOT
from support.rows.event_time import SECOND, drawn_steps, first_rows, judged, windows_of
from support.rows.stepped_rows import Fields, rows_of, run, steps_of, write_steps

MINUTE = 60 * SECOND


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=[True, False], ids=["one task", "divided"])
def _tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(planner, "ONE_TASK_BYTES", 0)


@pytest.mark.usefixtures("_tasks")
def test_rows_windows_and_duplicates_are_those_of_plain_python(spark: SparkSession) -> None:
    steps = drawn_steps(7, nulls=True)
    write_steps(steps)
    flow = bl.Dataflow("event-time")
    timely = rows_of(flow).with_watermark("timely", "at", "1 minute")
    timely.sink("timely-out", bl.parquet("out/timely"))
    timely.late_rows("late").sink("late-out", bl.parquet("out/late"))
    aggregates = F.count("*").alias("n"), F.sum("v").alias("v")
    for name, window in (
        ("minutes", bl.window("at", "1 minute")),
        ("sliding", bl.window("at", "3 minutes", "1 minute")),
    ):
        made = timely.group_by(window, "k").agg(name, *aggregates, emit="final")
        made.sink(f"{name}-out", bl.parquet(f"out/{name}"))
    timed = timely.transform("timed", lambda df: df.where("at IS NOT NULL"))
    timed.drop_duplicates("first", ["k"], within="3 minutes").sink("first-out", bl.parquet("out/first"))
    run(flow, spark)

    expected, late, bounds = judged(steps, MINUTE)
    assert sum(map(len, late)) > 5, "the steps have late rows"

    def as_counts(rows: list[Fields]) -> Counter[tuple[Any, ...]]:
        return Counter((row["k"], row["v"], row["at"]) for row in rows)

    assert list(map(as_counts, steps_of("out/timely"))) == list(map(as_counts, expected))
    assert list(map(as_counts, steps_of("out/late"))) == list(map(as_counts, late))
    for name, length in (("minutes", MINUTE), ("sliding", 3 * MINUTE)):
        found = [
            Counter((row["window_start"], row["k"], row["n"], row["v"]) for row in rows)
            for rows in steps_of(f"out/{name}")
        ]
        ended = windows_of(expected, bounds, length, MINUTE)
        assert found == ended
        assert sum(map(len, found)) > 10
    status = bl.status("store")
    assert status.event_times.keys() == {"timely", "late"}
    times = status.event_times["timely"]
    assert times.late == sum(map(len, late))
    assert bounds.after[-1] is not None
    assert times.bound == round(bounds.after[-1].timestamp() * 1000)
    with_time = [[row for row in rows if row["at"] is not None] for rows in expected]
    found_first = [Counter((row["k"], row["at"]) for row in rows) for rows in steps_of("out/first")]
    assert found_first == first_rows(with_time, bounds, 3 * MINUTE)
    assert sum(map(len, found_first)) > 4


def test_timers_in_event_time_fire_when_the_bound_has_passed_them(spark: SparkSession) -> None:
    steps = drawn_steps(11)
    write_steps(steps)

    def remind(key: Any, rows: Any, _state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
        if context.timer is not None:
            yield key.k, context.timer, context.bound
        for row in rows:
            if row.v % 2:
                context.set_timer(row.at.replace(microsecond=0) + timedelta(seconds=20))

    flow = bl.Dataflow("reminders")
    timely = rows_of(flow).with_watermark("timely", "at", "1 minute")
    made = timely.group_by("k").process(
        "remind", remind, output="k STRING, timer TIMESTAMP, bound TIMESTAMP", timers="event"
    )
    made.sink("out", bl.parquet("out"))
    run(flow, spark)

    expected, _, bounds = judged(steps, MINUTE)
    waiting: set[tuple[str, datetime]] = set()
    fired = []
    for number, rows in enumerate(expected):
        bound = bounds.after[number - 1] if number else None
        due = {each for each in waiting if bound is not None and each[1] <= bound}
        waiting -= due
        fired.append(Counter((key, at, bound) for key, at in due))
        waiting |= {(row["k"], row["at"].replace(microsecond=0) + 20 * SECOND) for row in rows if row["v"] % 2}
    found = [Counter((row["k"], row["timer"], row["bound"]) for row in rows) for rows in steps_of("out")]
    assert found == fired
    assert sum(map(len, found)) > 10


def test_sessions_of_a_view_come_once_when_they_are_final(spark: SparkSession) -> None:
    steps = drawn_steps(3, steps=10)
    write_steps(steps)
    flow = bl.Dataflow("sessions")
    rows_of(flow).with_watermark("timely", "at", "1 minute")
    sessions = flow.sql(
        "sessions",
        "SELECT k, session_window.start AS begins, session_window.end AS ends, count(*) AS n "
        "FROM timely GROUP BY k, session_window(at, '20 seconds')",
    )
    sessions.final("closed", "ends").sink("out", bl.parquet("out"))
    run(flow, spark)

    expected, _, bounds = judged(steps, MINUTE)
    gap = 20 * SECOND
    given: set[tuple[str, datetime]] = set()
    for number, found in enumerate(steps_of("out")):
        came = [row for rows in expected[: number + 1] for row in rows]
        ended: Counter[tuple[Any, ...]] = Counter()
        for key in sorted({row["k"] for row in came}):
            times = sorted(row["at"] for row in came if row["k"] == key)
            begins = [
                at for before, at in zip([None, *times], times, strict=False) if before is None or at >= before + gap
            ]
            for begin, following in zip(begins, [*begins[1:], None], strict=True):
                inside = [at for at in times if begin <= at and (following is None or at < following)]
                end, bound = inside[-1] + gap, bounds.after[number]
                if bound is not None and end <= bound and (key, begin) not in given:
                    given.add((key, begin))
                    ended[key, begin, end, len(inside)] += 1
        assert Counter((row["k"], row["begins"], row["ends"], row["n"]) for row in found) == ended
    assert len(given) > 15


def test_time_passes_at_a_step_whose_rows_spark_knows_to_be_none(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: such a step has no task of its own; windows that its bound ends are given all the same."""
    steps = drawn_steps(9)
    write_steps(steps)
    job, without_task = JobSteps._job, []

    def no_task(self: JobSteps, takes: Any, held: Any, clocks: Any) -> Any:
        if self._unit.name == "minutes" and takes[0].number == 5:
            without_task.append(held())
            return [[] for _ in takes], 0.0
        return job(self, takes, held, clocks)

    monkeypatch.setattr(JobSteps, "_job", no_task)
    flow = bl.Dataflow("no-task")
    timely = rows_of(flow).with_watermark("timely", "at", "1 minute")
    made = timely.group_by(bl.window("at", "1 minute"), "k").agg("minutes", F.sum("v").alias("v"), emit="final")
    made.sink("out", bl.parquet("out"))
    run(flow, spark)
    expected, _, bounds = judged(steps, MINUTE)
    expected[5] = []
    found = [Counter((row["window_start"], row["k"], row["v"]) for row in rows) for rows in steps_of("out")]
    assert found[5], "windows end at that step"
    ended = windows_of(expected, bounds, MINUTE, MINUTE)
    assert found == [Counter((begin, key, v) for begin, key, _, v in step) for step in ended]
    assert len(without_task) == 1


REFUSED: dict[str, tuple[Callable[[bl.Stream], Any], str, str]] = {
    "lateness of tables": (
        lambda rows: rows.recompute("all", lambda df: df).with_watermark("x", "at", "1 minute"),
        "BAD_LATENESS",
        "gives whole tables",
    ),
    "lateness of two columns": (
        lambda rows: rows.dataflow.source(
            "y", bl.files("y", schema="a DATE", format="csv"), lateness={"a": "1 hour", "b": "1 hour"}
        ),
        "BAD_OPTION",
        "write one column and a period",
    ),
    "no such column": (lambda rows: rows.with_watermark("x", "when", "1 minute"), "SCHEMA_MISMATCH", "goes by when"),
    "no timestamp": (lambda rows: rows.with_watermark("x", "v", "1 minute"), "TYPE_REFUSED", "v, a bigint"),
    "no period": (lambda rows: rows.with_watermark("x", "at", "a while"), "BAD_OPTION", "write a number and a unit"),
    "late rows of nothing": (lambda rows: rows.late_rows("x"), "BAD_OPTION", "drops no late rows"),
    "final without lateness": (
        lambda rows: rows.group_by(bl.window("at", "1 hour")).agg("x", F.count("*").alias("n"), emit="final"),
        "NO_LATENESS",
        r"put \.with_watermark\('NAME', 'at'",
    ),
    "final by another column": (
        lambda rows: (
            rows.transform("two", lambda df: df.withColumn("seen", F.col("at")))
            .with_watermark("timely", "seen", "1 minute")
            .group_by(bl.window("at", "1 hour"))
            .agg("x", F.count("*").alias("n"), emit="final")
        ),
        "NO_LATENESS",
        "timely says by seen how late its rows can be",
    ),
    "final without a window": (
        lambda rows: rows.group_by("k").agg("x", F.count("*").alias("n"), emit="final"),
        "BAD_WINDOW",
        "group by bl.window",
    ),
    "windows and process": (
        lambda rows: rows.group_by(bl.window("at", "1 hour")).process("x", print, output="n LONG"),
        "BAD_WINDOW",
        "windows go with agg",
    ),
    "two windows": (
        lambda rows: rows.group_by(bl.window("at", "1 hour"), bl.window("at", "2 hours")),
        "BAD_WINDOW",
        "give one window",
    ),
    "a slide beyond the window": (lambda rows: bl.window("at", "1 hour", "2 hours"), "BAD_OPTION", "in no window"),
    "final rows of what never is": (lambda rows: rows.final("x", "at"), "NO_LATENESS", "does not say how late"),
    "duplicates without lateness": (
        lambda rows: rows.drop_duplicates("x", ["k"], within="1 hour"),
        "NO_LATENESS",
        "drops duplicates within a time",
    ),
    "recent by a number": (lambda rows: rows.recent("x", "v", "1 hour"), "TYPE_REFUSED", "x goes by v"),
    "no operator": (lambda rows: rows.group_by("k").custom("x", 5, output="n LONG"), "BAD_PROCESSOR", "is 5: give"),
    "no checkpoint": (
        lambda rows: rows.group_by("k").process(
            "x", print, output="n LONG", deterministic=False, policy=bl.Lazy(every=None)
        ),
        "BAD_POLICY",
        "a checkpoint alone lets its rows be seen",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_before_it_runs(spark: SparkSession, name: str) -> None:
    build, condition, words = REFUSED[name]
    write_steps(drawn_steps(1))
    flow = bl.Dataflow("refused")

    def build_and_run() -> None:
        build(rows_of(flow)).sink("out", bl.parquet("out"))
        run(flow, spark)

    with pytest.raises(bl.InvalidError, match=words) as refused:
        build_and_run()
    assert refused.value.condition == condition


def test_a_function_without_timers_has_the_clock_and_the_chance_of_its_step(spark: SparkSession) -> None:
    write_steps([[{"k": "a", "v": step, "at": None}] for step in range(3)])

    def draw(_key: Any, _rows: Any, _state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
        yield context.now, context.random.random()

    flow = bl.Dataflow("clock")
    rows_of(flow).group_by("k").process("drawn", draw, output="now TIMESTAMP, chance DOUBLE").sink(
        "out", bl.parquet("out")
    )
    before = datetime.now(UTC)
    run(flow, spark)
    drawn = [row for step in steps_of("out") for row in step]
    assert all(before - SECOND <= row["now"] <= datetime.now(UTC) for row in drawn)
    assert len({row["chance"] for row in drawn}) == 3


def test_state_stays_flat_while_time_passes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: state of windows that have ended, and of duplicates that are over, goes: run by run."""
    count, rows = 40, 50
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    steps = [
        [
            {"k": f"k{number}-{step}", "v": 1, "at": begin + timedelta(minutes=step, seconds=number)}
            for number in range(rows)
        ]
        for step in range(count)
    ]
    write_steps(steps)
    flow = bl.Dataflow("flat")
    timely = rows_of(flow).with_watermark("timely", "at", "1 minute")
    counted = F.count("*").alias("n")
    timely.group_by(bl.window("at", "1 minute"), "k").agg("final", counted, emit="final").sink("a", bl.parquet("a"))
    timely.group_by(bl.window("at", "1 minute"), "k").agg("changes", counted).sink("b", bl.parquet("b"))
    timely.drop_duplicates("first", ["k"], within="1 minute").sink("c", bl.parquet("c"))
    sessions = flow.sql(
        "sessions",
        "SELECT k, session_window.end AS ends, count(*) AS n FROM timely GROUP BY k, session_window(at, '20 seconds')",
    )
    ended = sessions.final("ended", "ends")
    ended.sink("d", bl.parquet("d"))
    ended.drop_duplicates("once", ["k", "n"], within="1 minute").sink("e", bl.parquet("e"))
    sizes: dict[str, list[int]] = {"final": [], "changes": [], "first": [], "sessions": [], "ended": [], "once": []}
    grown = StateParts.grown

    def watch(self: StateParts, held: HeldRuns, step: int, passed: Mapping[str, int]) -> None:
        sizes[self._name].append(sum(run.rows for runs in held.values() for run in runs))
        grown(self, held, step, passed)

    monkeypatch.setattr(StateParts, "grown", watch)
    run(flow, spark)
    for name, each in sizes.items():
        assert len(each) == count, name
        assert max(each[-10:]) <= max(each[:10]) <= 5 * rows, (name, each)
    assert sum(map(len, steps_of("a"))) == rows * (count - 2)
    assert rows * (count - 2) < sum(map(len, steps_of("d"))) < rows * count
    first, ended_rows = ([sorted(step, key=repr) for step in steps_of(path)] for path in ("e", "d"))
    assert first == ended_rows
    assert sum(map(len, steps_of("b"))) == sum(map(len, steps_of("c"))) == rows * count


def test_recent_rows_leave_when_nothing_comes(spark: SparkSession) -> None:
    """Law: after a step those rows hold that are later than the recorded clock less the period; ticks bring steps."""
    now = datetime.now(UTC)
    ages = {"old": 3600, "aging": -2, "new": -4, "timeless": None}
    rows = [{"k": k, "v": 1, "at": None if age is None else now - age * SECOND} for k, age in ages.items()]
    write_steps([[*rows, rows[2]]])
    flow = bl.Dataflow("recent", tick="1 second")
    rows_of(flow).recent("recent", "at", "3 seconds").sink("out", bl.parquet("out"))
    running = bl.start(flow, store="store", spark=spark)
    end = time.monotonic() + 120

    def held() -> Counter[str]:
        total: Counter[str] = Counter()
        for row in (row for step in steps_of("out") for row in step):
            total[row["k"]] += row["_weight"]
        return +total

    while time.monotonic() < end and running.is_active and not (steps_of("out") and not held()):
        time.sleep(0.1)
    running.stop()
    steps = steps_of("out")
    came = Counter(row["k"] for step in steps for row in step if row["_weight"] == 1)
    assert came == {"aging": 1, "new": 2}
    assert not held()
    gone = {row["k"]: number for number, step in enumerate(steps) for row in step if row["_weight"] == -1}
    assert gone["aging"] < gone["new"], "the row that is older leaves at an earlier step"


PAGE = (ROOT / "docs" / "time.md").read_text(encoding="utf-8")


def test_the_pages_programs_run_as_printed(spark: SparkSession) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    Path("readings").mkdir()

    def write(number: int, *rows: tuple[str, float, int]) -> None:
        lines = [f"{sensor},{celsius},{now - minutes * MINUTE:%Y-%m-%dT%H:%M:%SZ}" for sensor, celsius, minutes in rows]
        draft = Path("readings/_draft")
        draft.write_text("sensor,celsius,at\n" + "".join(f"{line}\n" for line in lines))
        draft.rename(f"readings/{number}.csv")

    write(0, ("a", 20, 100), ("b", 30, 99), ("a", 22, 100), ("a", 22, 50))
    Path("alarms").mkdir()
    Path("alarms/0.csv").write_text(f"sensor,at\na,{now - 99 * MINUTE:%Y-%m-%dT%H:%M:%SZ}\n")
    Path("gateway").mkdir()
    Path("gateway/0.csv").write_text(f"sensor,celsius,at\nc,9,{now - 20 * MINUTE:%Y-%m-%dT%H:%M:%SZ}\n")
    names: dict[str, Any] = {"__name__": "sensors"}
    exec(compile("".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), "sensors.py", "exec"), names)
    running = bl.start(names["flow"], store="store", spark=spark)

    def until(there: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not there() and time.monotonic() < end and running.is_active:
            time.sleep(0.1)

    def rows(path: str) -> list[Fields]:
        return [row for step in steps_of(path) for row in step]

    until(lambda: len(rows("minutes")) == 2)
    write(1, ("a", 25, 70), ("b", 18, 30), ("b", 18, 30))
    until(lambda: len(rows("silent")) == 2 and len(rows("late")) == 1)
    running.stop()
    minutes = {(row["sensor"], row["n"]): row["celsius"] for row in rows("minutes")}
    assert minutes.keys() >= {("a", 2), ("b", 1)}
    assert sorted((row["sensor"], row["celsius"]) for row in rows("late")) == [("a", 25.0)]
    assert Counter(row["sensor"] for row in rows("first")) == {"a": 2, "b": 2}
    assert Counter(row["sensor"] for row in rows("silent")) == {"a": 1, "b": 1}
    assert Counter((row["sensor"], row["n"]) for row in rows("closed")) == {("a", 2): 1, ("b", 1): 1, ("a", 1): 1}
    hours: dict[datetime, float] = {}
    for celsius, ago in ((22.0, 100), (30.0, 99), (22.0, 50), (18.0, 30), (9.0, 20)):
        begin = (now - ago * MINUTE).replace(minute=0, second=0)
        if begin + 60 * MINUTE <= now - 32 * MINUTE:  # the least watermark: that of `timely`
            hours[begin] = max(celsius, hours.get(begin, celsius))
    assert {row["window_start"]: row["celsius"] for row in rows("hours")} == hours
    warmest: Counter[tuple[str, float]] = Counter()
    for row in rows("warmest"):
        warmest[row["sensor"], row["celsius"]] += row["_weight"]
    assert +warmest == {("a", 22.0): 1, ("b", 18.0): 1}
    assert [(row["sensor"], row["celsius"]) for row in rows("explained")] == [("a", 22.0)]
    warm = [("a", 20.0), ("a", 22.0), ("b", 18.0), ("b", 30.0)]
    assert sorted((row["sensor"], row["celsius"]) for row in rows("warm")) == warm
    fresh: Counter[tuple[str, int]] = Counter()
    for row in rows("fresh"):
        fresh[row["sensor"], row["n"]] += row["_weight"]
    assert +fresh == {("a", 1): 1, ("b", 2): 1}
    ages: Counter[tuple[str, int]] = Counter()
    for row in rows("ages"):
        ages[row["sensor"], row["minutes"]] += row["_weight"]
    held = sorted((+ages).elements())
    ago = [("a", 50), ("a", 70), ("a", 100), ("a", 100), ("b", 30), ("b", 30), ("b", 99)]
    assert [sensor for sensor, _ in held] == [sensor for sensor, _ in ago]
    assert all(0 <= age - minutes <= 5 for (_, age), (_, minutes) in zip(held, ago, strict=True))
