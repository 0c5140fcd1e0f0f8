"""Sources that meet, by a host: all of their rows are taken, whichever of them is idle, ended or cannot be reached."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest

import boatlift as bl
from boatlift.dataflow import Json, Plan, plan
from boatlift.errors import UnavailableError
from boatlift.runtime.engine import StepResult
from boatlift.runtime.host import failures
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.instructions import StepInput
from boatlift.runtime.machine.machine import StateMachine
from support.any_connector import ANY
from support.engine.hosts import check_store, open_store
from support.engine.memory_engine import ROWS_A_STEP, World
from support.engine.memory_flows import FlowEngine


def united(retry_for: str = "1 minute") -> Plan:
    flow = bl.Dataflow("flow")
    long, short = flow.source("long", ANY), flow.source("short", ANY, retry_for=retry_for)
    long.union("both", short).sink("out", ANY)
    return plan(flow)


class TwoSources(FlowEngine):
    """`long` has ten steps of rows, `short` three; the engine notes what each step of `both` takes."""

    steps: ClassVar = {"long": 10, "short": 3}

    def __init__(self, world: World, planned: Plan) -> None:
        super().__init__(world, planned)
        self.taken: dict[int, dict[str, tuple[int, int]]] = {}

    def poll(self, source: str, cursor: Json) -> Json | None:
        start = cursor["taken"]
        return {"start": start, "end": start + ROWS_A_STEP} if start < self.steps[source] * ROWS_A_STEP else None

    def _step(self, unit: str, take: StepInput, state: Any) -> StepResult:
        positions = {message.edge.partition("->")[0]: message.payload["position"] for message in take.inputs}
        self.taken[take.time] = {name: (at["start"], at["end"]) for name, at in positions.items()}
        return super()._step(unit, take, state)

    def check(self) -> None:
        """All rows were taken, once, in order."""
        for source, steps in self.steps.items():
            rows = [row for time in sorted(self.taken) for row in range(*self.taken[time].get(source, (0, 0)))]
            assert rows == list(range(steps * ROWS_A_STEP))


def run(engine: FlowEngine, root: Path, **options: Any) -> None:
    Host(engine, open_store(root), RunOptions(available_now=True, **options)).run()


def test_everything_that_is_there_is_taken(tmp_path: Path) -> None:
    engine = TwoSources(World(), united())
    run(engine, tmp_path)
    engine.check()
    assert len(engine.taken) == 10, "the steps are as many as those of the longer source"
    check_store(tmp_path)


def test_it_is_seen_that_a_source_that_has_nothing_stops_its_partners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deliberate fault: to the simulation such sinks wait as sinks may, for a source that keeps no rows."""
    monkeypatch.setattr(StateMachine, "_has_nothing", lambda _self, _source: False)
    engine = TwoSources(World(), united())
    run(engine, tmp_path)
    with pytest.raises(AssertionError):
        engine.check()


class KilledError(BaseException):
    """Ends a run as it stands."""


@pytest.mark.parametrize("calls", range(1, 9))
def test_a_run_goes_on_where_another_was_killed(tmp_path: Path, calls: int) -> None:
    world = World()
    left = calls

    def kill(progress: Progress) -> None:
        nonlocal left
        left -= progress.what == "step"
        if not left:
            raise KilledError

    first = TwoSources(world, united())
    with pytest.raises(KilledError):
        run(first, tmp_path, on_progress=kill)
    second = TwoSources(world, united())
    run(second, tmp_path)
    both = TwoSources(world, united())
    both.taken = {**first.taken, **second.taken}
    assert all(first.taken[time] == second.taken[time] for time in first.taken.keys() & second.taken.keys())
    both.check()
    check_store(tmp_path)


class Away(TwoSources):
    """`short` cannot be reached for some polls from its second step on."""

    polls = 3

    def poll(self, source: str, cursor: Json) -> Json | None:
        if source == "short" and cursor["taken"] and self.polls:
            self.polls -= 1
            raise UnavailableError("INPUT_UNAVAILABLE", "short does not answer")
        return super().poll(source, cursor)


def test_a_source_that_cannot_be_reached_delays_no_other_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(failures, "FIRST_POLL_BACKOFF_SECONDS", 0.01)
    seen: list[Progress] = []
    engine = Away(World(), united())
    with caplog.at_level(logging.WARNING):
        run(engine, tmp_path, on_progress=seen.append)
    engine.check()
    told = [(progress.what, progress.processor) for progress in seen if progress.what in ("unreachable", "reached")]
    assert told == [("unreachable", "short"), ("reached", "short")]
    assert "short does not answer" in caplog.text
    assert sum("short" in taken for taken in engine.taken.values()) == 3
    check_store(tmp_path)


def test_the_run_ends_when_the_retries_do_with_all_that_others_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(Away):
        polls = 10**9

    world = World()
    monkeypatch.setattr(failures, "FIRST_POLL_BACKOFF_SECONDS", 0.01)
    engine = Gone(world, united("1 second"))
    with pytest.raises(UnavailableError, match="short does not answer"):
        run(engine, tmp_path)
    rows = [row for time in sorted(engine.taken) for row in range(*engine.taken[time]["long"])]
    assert rows == list(range(10 * ROWS_A_STEP))
    check_store(tmp_path)
    again = TwoSources(world, united())
    run(again, tmp_path)
    again.taken = {**engine.taken, **again.taken}
    again.check()


@pytest.mark.parametrize("retry_for", ["soon", "", "1", "-1 seconds", 5])
def test_retry_for_is_a_period(retry_for: Any) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] retry_for=.*'15 minutes'"):
        bl.Dataflow("flow").source("rows", ANY, retry_for=retry_for)
