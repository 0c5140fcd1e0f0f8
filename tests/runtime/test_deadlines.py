"""Deadlines: a call without progress is reported, and begins again if a task of it is running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Outcome, plan
from boatlift.errors import InvalidError, UnavailableError
from boatlift.runtime.engine import Activity, StepResult
from boatlift.runtime.host import deadlines
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.deadlines import Deadlines
from boatlift.runtime.host.event_loop import Answer
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.events import Event
from boatlift.runtime.machine.instructions import Execute
from support.any_connector import ANY
from support.engine.hosts import check_store, open_store
from support.engine.memory_engine import MemoryEngine, World
from support.engine.memory_flows import FlowEngine

TASK = "job 7, stage 8, task 9 on somewhere"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LEAST_SECONDS", 0.2), ("LOOK_SECONDS", 0.01), ("EXAMINE_SECONDS", 0.02)):
        monkeypatch.setattr(deadlines, name, seconds)


class Hanging(MemoryEngine):
    """The first runs of `sums`, or commits to `totals`, wait until they are cancelled, or until `go` is set."""

    def __init__(self, world: World, where: str, times: int = 1, tasks: str = TASK) -> None:
        super().__init__(world)
        self._where, self.left, self._tasks = where, times, tasks
        self.go = threading.Event()
        self.asked = self.deaf = 0

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        self._hang(order.processor)
        return super().run(order)

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        self._hang(sink)
        return super().commit(sink, time, payload)

    def _hang(self, processor: str) -> None:
        if processor == self._where and self.left:
            self.left -= 1
            cancelled = self._cancelled = threading.Event()
            while not cancelled.wait(0.01):
                if self.go.is_set():
                    return
            raise UnavailableError("STEP_FAILED", "it was cancelled")

    def activity(self, processor: str) -> Activity:
        self.asked += 1
        return Activity("", self._tasks)

    def cancel_steps(self, processor: str) -> None:
        if processor == self._where and not self.deaf:
            self._cancelled.set()
        self.deaf = max(0, self.deaf - 1)

    def cancel(self) -> None:
        super().cancel()
        self._cancelled.set()


def run(engine: MemoryEngine, root: Path, **options: Any) -> list[Progress]:
    seen: list[Progress] = []
    host = Host(engine, open_store(root), RunOptions(available_now=True, on_progress=seen.append, **options))
    host.run()
    check_store(root)
    return seen


def run_until_stuck(engine: Hanging, root: Path) -> list[Progress]:
    """Runs, and lets a call go on as soon as it was reported."""
    seen: list[Progress] = []

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if progress.what == "stuck":
            engine.go.set()

    Host(engine, open_store(root), RunOptions(available_now=True, on_progress=watch)).run()
    return seen


@pytest.mark.parametrize("given", [None, 0.1])
def test_a_step_that_hangs_is_reported_and_executed_again(tmp_path: Path, given: float | None) -> None:
    world = World(rows=20)
    seen = run(Hanging(world, "sums"), tmp_path, step_timeout=given)
    world.check()
    told = [each for each in seen if each.what in ("stuck", "failure")]
    assert [(each.what, each.processor) for each in told] == [("stuck", "sums"), ("failure", "sums")]
    assert told[0].said == TASK


def test_a_step_whose_task_begins_after_it_was_cancelled_is_cancelled_again(tmp_path: Path) -> None:
    engine = Hanging(World(rows=20), "sums")
    engine.deaf = 2
    seen = run(engine, tmp_path)
    engine.world.check()
    assert sum(each.what == "failure" for each in seen) == 1


def test_guessed_deadlines_never_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "LEAST_SECONDS", 0.02)
    world = World(rows=9)
    seen = run(Hanging(world, "sums", times=6), tmp_path)
    world.check()
    assert sum(each.what == "failure" for each in seen) == 6


def test_given_deadlines_end_a_run_in_which_each_try_hangs(tmp_path: Path) -> None:
    world = World(rows=9)
    with pytest.raises(UnavailableError, match=r"\[STEP_TIMEOUT\] step 0 of sums .*job 7.*step_timeout=0.1"):
        run(Hanging(world, "sums", times=100), tmp_path, step_timeout=0.1)
    run(MemoryEngine(world), tmp_path)
    world.check()


def test_a_step_that_makes_progress_is_not_stuck_however_long_it_takes(tmp_path: Path) -> None:
    class Slow(Hanging):
        def activity(self, processor: str) -> Activity:
            super().activity(processor)
            if self.asked == 40:  # four deadlines, if it had made no progress
                self.go.set()
            return Activity(self.asked, TASK)

    world = World(rows=9)
    seen = run(Slow(world, "sums"), tmp_path)
    world.check()
    assert not [each for each in seen if each.what in ("stuck", "failure")]


def test_a_step_without_a_running_task_is_only_reported(tmp_path: Path) -> None:
    engine = Hanging(World(rows=9), "sums", tasks="")
    seen = run_until_stuck(engine, tmp_path)
    engine.world.check()
    assert [each.said for each in seen if each.what == "stuck"] == [
        "no task of it is running: it waits for a slot, or for its driver"
    ]
    assert not [each for each in seen if each.what == "failure"]


def test_a_commit_that_hangs_begins_again_if_a_deadline_is_given(tmp_path: Path) -> None:
    world = World(rows=9)
    seen = run(Hanging(world, "totals"), tmp_path, step_timeout=0.1)
    world.check()
    told = [(each.what, each.processor) for each in seen if each.what in ("stuck", "failure")]
    assert told == [("stuck", "totals"), ("failure", "totals")]


def test_a_commit_that_hangs_is_only_reported_if_the_deadline_is_a_guess(tmp_path: Path) -> None:
    engine = Hanging(World(rows=9), "totals")
    seen = run_until_stuck(engine, tmp_path)
    engine.world.check()
    assert [each.processor for each in seen if each.what == "stuck"] == ["totals"]
    assert not [each for each in seen if each.what == "failure"]


def test_a_batch_may_take_any_time(tmp_path: Path) -> None:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    rows.recompute("fit", ANY, over="batch", policy=bl.Batch(epochs=2)).sink("fits", ANY)

    class Asked(FlowEngine):
        def run(self, order: Execute) -> tuple[StepResult, ...]:
            assert order.processor == "fit"
            started.append(order.processor)
            threading.Event().wait(0.3)  # more than a deadline
            return super().run(order)

    started: list[str] = []
    seen = run(Asked(World(rows=6), plan(flow)), tmp_path, step_timeout=0.05)
    assert started
    assert not [each for each in seen if each.what in ("stuck", "failure")]


@pytest.mark.parametrize("given", [0, -1.0, float("inf"), float("nan"), "30", True])
def test_a_step_timeout_is_a_number_of_seconds(given: Any) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] step_timeout=.*number of seconds above 0"):
        RunOptions(step_timeout=given)


# -- the length of a deadline -----------------------------------------------------------------------------------------


class Watch:
    """Deadlines at a clock that stands still until it is set; calls of the engine are answered when asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, given: float | None = None) -> None:
        monkeypatch.setattr(deadlines, "LEAST_SECONDS", 30.0)
        monkeypatch.setattr(deadlines, "EXAMINE_SECONDS", 5.0)
        monkeypatch.setattr("boatlift.runtime.host.deadlines.time.monotonic", lambda: self.now)
        self.now, self.answers, self.activity = 1000.0, True, Activity("", TASK)
        self.seen: list[Progress] = []
        self.given_up: list[UnavailableError] = []
        context: Any = SimpleNamespace(
            engine=SimpleNamespace(activity=lambda _: self.activity),
            queue=SimpleNamespace(after=lambda *_: None),
            workers=SimpleNamespace(submit=self._submit),
            options=RunOptions(step_timeout=given, on_progress=self.seen.append),
        )
        self.deadlines = Deadlines(context, lambda: 5_000_000)

    def _submit(self, function: Callable[..., Answer], *arguments: Any) -> None:
        if self.answers:
            list(function(*arguments)())

    def take(self, seconds: float, *, steps: int = 1) -> None:
        """Execute steps that take so long altogether."""
        with self.deadlines.watched("p", 0, None, steps=steps):
            self.now += seconds

    def seconds_until_it_is_given_up(self, *, steps: int = 1) -> float:
        """Return how long a call without progress lasts."""
        before, began = len(self.given_up), self.now
        with suppress(UnavailableError), self.deadlines.watched("p", 0, self._give_up, steps=steps):
            while len(self.given_up) == before:
                self.now += 1
                list(self.deadlines._look())
            raise self.given_up[-1]
        return self.now - began

    def _give_up(self, error: UnavailableError) -> Iterable[Event]:
        self.given_up.append(error)
        return ()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    return Watch(monkeypatch)


def test_a_deadline_is_thirty_seconds_and_twice_that_after_each_guess_that_was_wrong(watch: Watch) -> None:
    assert [watch.seconds_until_it_is_given_up() for _ in range(3)] == [30, 60, 120]
    watch.take(1)
    assert watch.seconds_until_it_is_given_up() == 30


def test_a_deadline_is_twenty_times_the_longest_of_the_last_hundred_steps(watch: Watch) -> None:
    watch.take(1000)  # the first step starts workers, and does not count
    assert watch.seconds_until_it_is_given_up() == 30
    watch.take(10, steps=2)
    for _ in range(99):
        watch.take(0.125)
    assert watch.seconds_until_it_is_given_up() == 100
    watch.take(0.125)
    assert watch.seconds_until_it_is_given_up() == 30
    watch.take(4)
    assert watch.seconds_until_it_is_given_up(steps=2) == 160


def test_a_given_deadline_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, given=50.0)
    watch.take(1)
    watch.take(100)
    assert [watch.seconds_until_it_is_given_up() for _ in range(3)] == [50, 50, 50]


def test_a_call_is_stuck_from_its_last_progress_until_it_ends(watch: Watch) -> None:
    with watch.deadlines.watched("p", 3, None):
        for mark in range(12):
            watch.activity = Activity(mark, TASK)
            watch.now += 5
            list(watch.deadlines._look())
        assert watch.deadlines.stuck() == []
        for _ in range(7):
            watch.now += 5
            list(watch.deadlines._look())
        (stuck,) = watch.deadlines.stuck()
        assert (stuck.processor, stuck.step, stuck.since, stuck.why) == ("p", 3, 5_000_000 - 35_000, TASK)
        watch.activity = Activity("more", TASK)
        watch.now += 5
        list(watch.deadlines._look())
        assert watch.deadlines.stuck() == []
    assert [each.what for each in watch.seen] == ["stuck"]


def test_a_call_is_stuck_if_spark_does_not_answer(watch: Watch) -> None:
    watch.answers = False
    with watch.deadlines.watched("p", 3, watch._give_up):
        for _ in range(31):
            watch.now += 1
            list(watch.deadlines._look())
        assert [each.why for each in watch.deadlines.stuck()] == ["Spark does not answer"]
    assert not watch.given_up
