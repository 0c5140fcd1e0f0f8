"""Laws of a sink whose process is killed or stopped at any line of its commit, with real processes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import ClassVar

import pytest

from boatlift.dataflow.contracts import Committed, Outcome, Sink
from boatlift.errors import UnavailableError
from connectors.conformance import (
    AnyCase,
    Row,
    context,
    put,
    rows_of,
    stage,
    visible,
)
from connectors.interrupted import Child, Tracer

NOTE = b"of the owner that is killed"


def commit_traced(tracer: Tracer, case: AnyCase, folder: Path, token: int, step: int) -> tuple[str, int]:
    """In another process: opens the sink and commits one step, traced."""
    sink = case.make(folder)
    sink.open(context(token))
    receipts = stage(sink, folder, step)
    if (keeps := sink.capabilities.keeps_note) is not None:
        keeps.note(NOTE)
    with tracer.on():
        outcome = sink.commit(step, len(rows_of(step)), f"digest {step}", receipts)
    sink.close()
    return outcome.name, tracer.lines


def commit_forever(tracer: Tracer, case: AnyCase, folder: Path, token: int) -> None:
    """In another process: commits steps until it is killed, telling the number of each beforehand."""
    sink = case.make(folder)
    newest = sink.open(context(token))
    step = 0 if newest is None else newest.step + 1
    while True:
        receipts = stage(sink, folder, step)
        tracer.tell(step)
        sink.commit(step, len(rows_of(step)), f"digest {step}", receipts)
        step += 1


def open_unless_locked(sink: Sink) -> tuple[Committed | None, bool]:
    """Open a sink as owner 3; return also whether another process holds its lock."""
    try:
        return sink.open(context(3)), False
    except UnavailableError as error:
        if error.condition != "SINK_LOCKED":
            raise
        return None, True


class SinkCrashLaws:
    """What `Sink` promises when real processes are killed or stopped in the middle of `commit`."""

    case: ClassVar[AnyCase]

    stride: ClassVar[int] = 1
    """A commit is killed at every `stride`-th point, and stopped at every fourth of those; always at the last point."""

    def points(self, tmp_path: Path, stride: int) -> list[int]:
        """Return the points to kill or stop a commit at."""
        last = self.lines_of_a_commit(tmp_path) - 1
        return sorted({*range(0, last, stride), last})

    def lines_of_a_commit(self, tmp_path: Path) -> int:
        """How many points there are."""
        place = tmp_path / "counted"
        for step in range(2):
            answer = Child(commit_traced, self.case, place, 1 + step, step).answer()
            assert answer is not None
            assert answer[0] == "APPENDED"
        self.case.remove(place)
        return int(answer[1])

    def assert_seen(self, there: list[Row], folder: Path, successor: Sink, steps: int) -> None:
        """Assert that rows seen at once and now are the successor's steps; at once one step less, if the sink lags."""
        assert self.case.read(folder) == visible(successor, steps)
        if not (self.case.lags and steps and there == visible(successor, steps - 1)):
            assert there == visible(successor, steps)

    @pytest.mark.crash
    def test_killed_at_any_line_of_a_commit_all_of_the_step_is_there_or_nothing(self, tmp_path: Path) -> None:
        seen = {1: 0, 2: 0}
        for point in self.points(tmp_path, self.stride):
            folder = tmp_path / "place"
            first = self.case.make(folder)
            first.open(context(1))
            put(first, folder, 0)
            first.close()
            child = Child(commit_traced, self.case, folder, 2, 1, point=point)
            answer = child.answer()
            assert answer is None, f"at line {point}: {answer}"
            assert child.was_killed, f"at line {point}"
            successor = self.case.make(folder)
            there = self.case.read_at_once(folder)  # before anything mends it
            newest = successor.open(context(3))
            assert newest is not None
            steps = newest.step + 1
            self.assert_seen(there, folder, successor, steps)
            if (keeps := successor.capabilities.keeps_note) is not None and successor.capabilities.parts == 1:
                assert list(keeps.notes()) == ([NOTE] if steps == 2 else []), f"at line {point}"
            seen[steps] += 1
            assert put(successor, folder, 1) is (Outcome.DROPPED if steps == 2 else Outcome.APPENDED)
            assert put(successor, folder, 2) is Outcome.APPENDED
            assert self.case.read(folder) == visible(successor, 3)
            successor.close()
            self.case.remove(folder)
        assert min(seen.values()) > 0, f"points before and after the act: {seen}"

    @pytest.mark.crash
    def test_killed_from_outside_at_any_time_steps_are_whole(self, tmp_path: Path) -> None:
        folder = tmp_path / "place"
        steps = 0
        for token in range(1, 13):
            child = Child(commit_forever, self.case, folder, token)
            for _ in range(token % 3 + 1):
                told = child.hear()
            child.kill()  # falls wherever the process is by then: in the system, in C, between two lines
            child.process.join()
            assert child.was_killed
            there = self.case.read_at_once(folder)
            successor = self.case.make(folder)
            newest = successor.open(context(token))
            before, steps = steps, 0 if newest is None else newest.step + 1
            self.assert_seen(there, folder, successor, steps)
            assert steps >= told >= before, "what was committed before is still there"
            successor.close()

    @pytest.mark.crash
    def test_stopped_at_any_line_of_a_commit_an_owner_is_fenced_and_nothing_is_lost_or_doubled(
        self, tmp_path: Path
    ) -> None:
        fenced = committed = 0
        for point in self.points(tmp_path, 4 * self.stride):
            folder = tmp_path / "place"
            first = self.case.make(folder)
            first.open(context(1))
            put(first, folder, 0)
            first.close()
            child = Child(commit_traced, self.case, folder, 2, 1, point=point, number=signal.SIGSTOP)
            assert child.stopped()
            successor = self.case.make(folder)
            newest, locked = open_unless_locked(successor)
            if locked:  # it was stopped while it held a lock that no process may break
                child.go_on()
                answer = child.answer()
                successor.open(context(3))
            else:
                held = newest.step if newest else None
                assert put(successor, folder, 1) is (Outcome.DROPPED if held == 1 else Outcome.APPENDED)
                child.go_on()
                answer = child.answer()
                # What it had not made visible before `open` returned it never will.
                assert held == 1 or answer == "FENCED", f"at line {point}: {answer}"
            fenced += answer == "FENCED"
            committed += answer != "FENCED"
            put(successor, folder, 1)
            assert put(successor, folder, 2) is Outcome.APPENDED
            assert self.case.read(folder) == visible(successor, 3), f"at line {point}"
            successor.close()
            self.case.remove(folder)
        assert fenced
        assert committed
