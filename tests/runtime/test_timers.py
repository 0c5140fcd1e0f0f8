"""Timers of a host, by a clock that tests set; alarms go by the real one. And the clock of steps, which is steady."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.runtime.host.clock import HostTimers, SteadyClock, clock_of
from boatlift.runtime.host.context import HostContext, RunOptions
from boatlift.runtime.host.event_loop import EventQueue
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine import events, instructions
from support.any_connector import ANY
from support.engine.hosts import PATIENCE, Background, open_store
from support.engine.memory_engine import MemoryEngine, World
from support.engine.memory_flows import FlowEngine


class Clock:
    """Milliseconds that a test sets; a timer that looks too early moves them on."""

    def __init__(self, *readings: int) -> None:
        self._readings = list(readings)

    def __call__(self) -> int:
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]


def shared(queue: EventQueue) -> HostContext:
    return cast("HostContext", SimpleNamespace(queue=queue))


def timer(deadline: int, incarnation: int = 0) -> instructions.SetTimer:
    return instructions.SetTimer("fit", incarnation, deadline)


def test_a_timer_fires_once_the_clock_has_reached_its_deadline() -> None:
    queue = EventQueue()
    timers = HostTimers(
        shared(queue), Clock(995, 998, 998, 1000)
    )  # set; the first alarm looks, and waits again; the second
    timers.set(timer(1000))
    assert list(queue.next()()) == [], "two milliseconds early"
    assert list(queue.next()()) == [events.TimerFired("fit", 0, 1000)]


def test_a_later_timer_replaces_an_earlier_one() -> None:
    queue = EventQueue()
    timers = HostTimers(shared(queue), lambda: 2000)
    timers.set(timer(1000))
    timers.set(timer(2000, incarnation=1))
    fired = [event for _ in range(2) for event in queue.next()()]
    assert fired == [events.TimerFired("fit", 1, 2000)]


def test_each_batch_has_a_timer_of_its_own() -> None:
    queue = EventQueue()
    timers = HostTimers(shared(queue), lambda: 2000)
    timers.set(timer(1000))
    timers.set(instructions.SetTimer("other", 0, 1000))
    assert {event.processor for _ in range(2) for event in queue.next()()} == {"fit", "other"}  # type: ignore[union-attr]


def test_a_payload_without_a_clock_has_none() -> None:
    assert clock_of({"clock": 7, "runs": []}) == 7
    assert clock_of({"runs": []}) is None
    assert clock_of({"position": {}, "clock": 8, "seed": 1}) == 8


def test_a_state_is_saved_by_the_clock_though_nothing_comes_any_more(tmp_path: Path) -> None:
    world, saved = World(rows=6), threading.Event()

    def watch(progress: Progress) -> None:
        if progress.what == "checkpoint" and progress.processor == "sums":
            saved.set()
            host.stop()

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY).group_by("k")
    rows.agg("sums", ANY, policy=bl.Lazy(every=100, seconds=0.2)).sink("totals", ANY)
    host = Host(FlowEngine(world, plan(flow)), open_store(tmp_path), RunOptions(on_progress=watch))
    running = Background(host.run)
    assert saved.wait(PATIENCE)
    assert running.result() is None


def test_a_clock_that_was_set_back_goes_on_at_half_its_speed_until_it_has_caught_up() -> None:
    passed = [0]
    readings = Clock(10_000, 4_000, 4_000, 4_001, 9_000, 12_000)
    clock = SteadyClock(readings, 1_000_000, elapsed=lambda: passed[0] * 1_000_000)
    given = []
    for milliseconds in (0, 0, 3, 4, 5_000, 6_000):
        passed[0] = milliseconds
        given.append(clock())
    assert given == [10_000, 10_000, 10_001, 10_002, 12_500, 13_000], "no half of a millisecond is lost"
    clock.at_least(20_000)
    assert clock() == 20_000


def test_steps_have_clocks_that_do_not_go_back_within_a_run_and_from_run_to_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(rows=8)
    options = RunOptions(available_now=True)
    back = Clock(*(10**12 - 60_000 * n for n in range(40)))
    Host(MemoryEngine(world), open_store(tmp_path), options, clock=back).run()
    assert [r.getMessage() for r in caplog.records if "clock of this machine" in r.getMessage()]
    within = len(world.held["all"])
    world.rows = 16
    caplog.clear()
    Host(MemoryEngine(world), open_store(tmp_path), options, clock=lambda: 10**12 - 86_400_000).run()
    assert any("is 1 day, 0:0" in r.getMessage() for r in caplog.records), "a day, and what the test took"
    clocks = [held["clock"] for held in world.held["all"]]
    assert 1 < within < len(clocks)
    assert clocks == sorted(clocks)
    assert 10**12 <= clocks[0] <= clocks[-1] < 10**12 + 600_000, "half of the time that the test took"


def test_an_alarm_that_falls_due_while_the_wait_is_interrupted_is_taken() -> None:
    """The process is held up, here by a signal, between the begin of a wait and its end."""

    signals = []

    def hold_up(number: int, *_: object) -> None:
        signals.append(number)
        assert len(signals) == 1, "the queue waits on, although its alarm is due"
        time.sleep(0.1)

    queue = EventQueue()
    queue.after(0.05, lambda: ())
    before = signal.signal(signal.SIGALRM, hold_up)
    signal.setitimer(signal.ITIMER_REAL, 0.01, PATIENCE)
    try:
        assert queue.next()() == ()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert signals == [signal.SIGALRM]
