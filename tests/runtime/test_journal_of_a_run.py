"""What a run leaves in the journal of its store: its last failure, and failures just before it is killed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from boatlift.errors import FencedError, InvalidError, UnavailableError
from boatlift.runtime.engine import StepResult
from boatlift.runtime.host import failures, run_report
from boatlift.runtime.machine.instructions import Execute
from boatlift.storage.journal import JournalReader
from boatlift.storage.records.journal import RunEvent
from support.engine.hosts import PATIENCE, Background, RaisingEngine, open_store, run
from support.engine.memory_engine import MemoryEngine, World
from support.waiting import until


def told(folder: Path) -> list[RunEvent]:
    reader = JournalReader(open_store(folder))
    reader.catch_up()
    return list(reader.events)


class Refuses(MemoryEngine):
    """An engine whose sums raise what no retry mends."""

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        if order.processor == "sums":
            raise InvalidError("SCHEMA_MISMATCH", "a column is gone")
        return super().run(order)


def test_the_error_that_ends_a_run_is_its_last_event(tmp_path: Path) -> None:
    with pytest.raises(InvalidError):
        run(Refuses(World()), open_store(tmp_path))
    last = told(tmp_path)[-1]
    assert (last.kind, last.who, last.step, last.said) == ("failure", "flow", -1, "[SCHEMA_MISMATCH] a column is gone")


def test_an_error_of_no_condition_is_told_with_its_type(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(RaisingEngine(World()), open_store(tmp_path))
    assert [each.said for each in told(tmp_path)] == ["ZeroDivisionError: of the engine"]


def test_a_clean_stop_and_a_newer_owner_are_no_failures(tmp_path: Path) -> None:
    def taken_over() -> None:
        run(MemoryEngine(world), open_store(tmp_path), take_over=True)

    world = World(rows=3)
    with pytest.raises(FencedError):
        run(RaisingEngine(world, taken_over), open_store(tmp_path))
    assert [each for each in told(tmp_path) if each.kind == "failure"] == []


class FailsThenWaits(MemoryEngine):
    """An engine whose sums fail once, and then wait until a test lets them go."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.failed, self.go_on = False, threading.Event()

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        if order.processor == "sums":
            if not self.failed:
                self.failed = True
                raise UnavailableError("STEP_FAILED", "the executor is gone")
            assert self.go_on.wait(PATIENCE)
        return super().run(order)


def test_a_failure_is_in_the_journal_with_the_next_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(run_report, "WRITE_SECONDS", 0.01)
    monkeypatch.setattr(run_report, "JOURNAL_REPORTS", 10**9)  # its turn never comes
    engine = FailsThenWaits(World())
    running = Background(lambda: run(engine, open_store(tmp_path)))
    try:
        found = until(lambda: told(tmp_path), PATIENCE)
    finally:
        engine.go_on.set()
    assert running.result() is None
    assert [(each.kind, each.who, each.said) for each in found] == [
        ("failure", "sums", "[STEP_FAILED] the executor is gone")
    ]
