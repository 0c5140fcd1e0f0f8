"""The counters of a run are what its reports say, and what the log and the sinks got."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from boatlift.dataflow import Outcome
from boatlift.dataflow.contracts.durations import BOUNDS, Durations
from boatlift.errors import DataError, UnavailableError
from boatlift.runtime.engine import StepResult
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.counters import Counters
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.run_report import FILE, RunReport
from boatlift.runtime.inspect.status import status_at
from boatlift.runtime.machine.instructions import Execute
from support.engine.hosts import open_store
from support.engine.memory_engine import MemoryEngine, World, make_plan


class Counted:
    """A run to its end, with its reports and its counters."""

    def __init__(self, folder: Path, engine: MemoryEngine) -> None:
        self.reports: list[Progress] = []
        options = RunOptions(available_now=True, on_progress=self.reports.append)
        host = Host(engine, open_store(folder), options)
        self._host = host
        host.claim()
        assert host._term is not None
        self.counters: Counters = host._term._counters
        self.error: Exception | None = None
        try:
            host.run()
        except Exception as error:  # noqa: BLE001 - a test looks at it
            self.error = error

    def recovered(self) -> dict[str, int]:
        """Cause to the recoveries that are over."""
        assert self._host._term is not None
        return {cause: sum(each.counts) for cause, each in self._host._term._events.recoveries.items()}

    def of(self, what: str, name: str) -> list[Progress]:
        return [each for each in self.reports if (each.what, each.processor) == (what, name)]


def test_they_are_the_sums_of_what_was_reported(tmp_path: Path) -> None:
    done = Counted(tmp_path, MemoryEngine(World()))
    assert done.error is None
    for name, unit in done.counters.units.items():
        steps = done.of("step", name)
        assert (unit.steps, unit.rows, unit.rows_out) == (
            len(steps), sum(each.numInputRows for each in steps), sum(each.numOutputRows for each in steps),
        )  # fmt: skip
        assert sum(unit.durations.counts) == unit.steps > 0
        assert (unit.replayed, unit.failures) == (0, {})
        assert unit.checkpoints == len(done.of("checkpoint", name))
    assert done.counters.units["sums"].checkpoint_at > 0
    for name, sink in done.counters.sinks.items():
        commits = done.of("commit", name)
        assert (sink.written, sink.dropped, sink.left_out) == (len(commits), 0, 0)
        assert sum(sink.commits.counts) >= sink.written > 0
    assert done.counters.sources["rows"].steps == len(done.of("take", "rows")) > 0
    assert done.counters.sources["rows"].rows == sum(each.newInputRows for each in done.reports) > 0
    assert done.counters.recoveries == {"start": 1, "failure": 0}
    assert done.recovered() == done.counters.recoveries
    written = {path.stat().st_size for path in (tmp_path / "log").iterdir()}
    assert done.counters.log.bytes >= max(written)
    assert sum(done.counters.log.writes.counts) == done.counters.log.objects > 0


class StepFails(MemoryEngine):
    """The third step of `sums` fails once."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._steps = count(1)

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        if order.processor == "sums" and next(self._steps) == 3:
            raise UnavailableError("STEP_FAILED", "an executor is gone")
        return super().run(order)


class CommitFails(MemoryEngine):
    """The second commit of `totals` fails once."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._commits = count(1)

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        if sink == "totals" and next(self._commits) == 2:
            raise UnavailableError("SINK_FAILED", "it does not answer")
        return super().commit(sink, time, payload)


@pytest.mark.parametrize(
    ("engine", "of_unit", "of_sink"),
    [(StepFails, {"STEP_FAILED": 1}, {}), (CommitFails, {}, {"SINK_FAILED": 1})],
    ids=["a step", "a commit"],
)
def test_a_failure_counts_by_its_condition(
    tmp_path: Path, engine: type[MemoryEngine], of_unit: dict[str, int], of_sink: dict[str, int]
) -> None:
    world = World()
    done = Counted(tmp_path, engine(world))
    assert done.error is None
    world.check()
    counted = done.counters
    assert (counted.units["sums"].failures, counted.units["clean"].failures) == (of_unit, {})
    assert (counted.sinks["totals"].failures, counted.sinks["all"].failures) == (of_sink, {})
    assert counted.recoveries == {"start": 1, "failure": len(of_unit)}
    for name, sink in counted.sinks.items():  # the failed commit is none, and is handed over again
        assert sum(sink.commits.counts) == len(world.held[name])


class DiesAtTheEnd(MemoryEngine):
    def run(self, order: Execute) -> tuple[StepResult, ...]:
        if order.takes[0].number == 3 and order.processor == "sums":
            raise DataError("CORRUPT", "a file is gone")
        return super().run(order)


def test_a_run_after_a_crash_counts_from_0_and_tells_replays_from_new_steps(tmp_path: Path) -> None:
    world = World()
    assert Counted(tmp_path, DiesAtTheEnd(world)).error is not None
    again = Counted(tmp_path, MemoryEngine(world))
    assert again.error is None
    world.check()
    assert again.counters.recoveries == {"takeover": 1, "failure": 0}
    assert again.recovered() == again.counters.recoveries
    for name, unit in again.counters.units.items():
        assert unit.replayed == sum(each.replay for each in again.of("step", name))
    assert sum(unit.replayed for unit in again.counters.units.values()) > 0
    dropped = Counter(each.processor for each in again.reports if each.what == "commit")
    for name, sink in again.counters.sinks.items():
        assert sink.written + sink.dropped == dropped[name]


class Waits(MemoryEngine):
    """`sums` waits at a step, until a test has looked."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.waits, self.looked = threading.Event(), threading.Event()

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        if order.processor == "sums" and order.takes[-1].number >= 3:
            self.waits.set()
            assert self.looked.wait(60)
        return super().run(order)


def test_a_report_of_a_run_has_them_all_and_status_reads_it(tmp_path: Path) -> None:
    engine = Waits(World())
    host = Host(engine, open_store(tmp_path), RunOptions(available_now=True))
    thread = threading.Thread(target=host.run)
    thread.start()
    try:
        assert engine.waits.wait(60)
        report = tmp_path / "scratch" / "1" / FILE
        found = None
        while found is None or not found.activity or found.activity.units["clean"].steps < 3:
            found = msgspec.json.decode(report.read_bytes(), type=RunReport) if report.exists() else None
        status = status_at(tmp_path)
        assert status.activity is not None
        assert status.activity.units["clean"].steps >= 3
        assert status.activity.process.resident_bytes > 1 << 20
        assert status.activity.process.cpu_seconds > 0
        assert msgspec.json.decode(msgspec.json.encode(status.as_json()["activity"]))["sources"]["rows"]["steps"] >= 3
    finally:
        engine.looked.set()
        thread.join()


def test_a_unit_is_busy_while_a_step_is_under_way_and_by_those_that_failed() -> None:
    now = 1_000
    counters = Counters(make_plan(), lambda: now)
    clean = counters.units["clean"]
    with suppress(ValueError), counters.under_way("clean"):
        assert (clean.since, clean.busy) == (1_000, 0)
        now = 4_000
        raise ValueError
    assert (clean.since, clean.busy, clean.milliseconds) == (0, 3_000, 0)


def test_a_source_is_held_for_as_long_as_too_much_waits_behind_it() -> None:
    class Machine:
        now, by = 1_000, ""

        def held_by(self, source: str) -> str:
            return self.by

        def __getattr__(self, name: str) -> Any:
            return lambda _of: 0

    machine = Machine()
    counters = Counters(MemoryEngine(World()).plan, lambda: machine.now)
    for machine.now, machine.by in [
        (3_000, "steps"),
        (5_000, "steps"),
        (7_500, ""),
        (9_500, "bytes"),
        (9_000, "bytes"),
    ]:
        counters.look(machine)  # type: ignore[arg-type]
    assert counters.sources["rows"].held == {"steps": 4.0, "bytes": 2.0}


def test_a_duration_counts_in_the_first_bucket_that_holds_it() -> None:
    durations = Durations()
    for bound in BOUNDS:
        durations.add(bound)
    durations.add(BOUNDS[-1] + 1)
    assert durations.counts == [1] * (len(BOUNDS) + 1)
