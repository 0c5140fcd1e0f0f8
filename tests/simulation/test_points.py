"""Restore points in lives with every failure: each is a moment at which the log alone says all, and costs nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from boatlift.recovery import Kind
from boatlift.runtime.machine import StateMachine
from boatlift.runtime.machine.events import Event, PointRequested
from boatlift.runtime.machine.instructions import Instruction, KeepPoint
from boatlift.simulation.simulation import Simulation
from boatlift.times import maximal_of


class Points:
    """Asks for a point at every few events of a machine, and looks at what each rests on."""

    def __init__(self) -> None:
        self.every, self.at_once, self.events, self.kept = 7, 1, 0, 0
        self._handle = StateMachine.handle

    def handle(self, machine: StateMachine, event: Event) -> list[Instruction]:
        ordered = self._look(machine, self._handle(machine, event))
        self.events += 1
        for _ in range(self.at_once if self.events % self.every == 0 and not machine.finished else 0):
            ordered += self._look(machine, self._handle(machine, PointRequested(f"p{self.events}")))
        return ordered

    def _look(self, machine: StateMachine, ordered: list[Instruction]) -> list[Instruction]:
        points = [each for each in ordered if isinstance(each, KeepPoint)]
        if points:
            self.kept += len(points)
            self._check(machine)
        return ordered

    @staticmethod
    def _check(machine: StateMachine) -> None:
        records = machine.durable.records
        assert not any(sink.waits for sink in machine.sinks)
        for p in machine.processors.values():
            done = maximal_of(p.done)
            if p.vertex.kind is Kind.STATEFUL and done and p.durability.has_checkpoints:
                assert done in records.states[p.name], f"the state of {p.name} at {done} is not durable"
        for source in machine.sources:
            closed: Iterable[Any] = records.determinants.get(source.name, ())
            last = max(maximal_of(source.done), default=-1)
            collected = max(records.collected.choices.get(source.name, (-1,)), default=-1)
            assert last <= max([*closed, collected], default=-1)


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Points:
    made = Points()

    def handle(machine: StateMachine, event: Event) -> list[Instruction]:
        return made.handle(machine, event)

    monkeypatch.setattr(StateMachine, "handle", handle)
    return made


@pytest.mark.parametrize("first", range(0, 300, 25))
def test_points_leave_no_trace(first: int, points: Points) -> None:
    for seed in range(first, first + 25):
        points.every = 7 + seed % 23
        Simulation(seed).run()
    assert points.kept > 25


def test_no_request_is_lost_among_others(points: Points) -> None:
    points.every, points.at_once = 11, 3
    Simulation(5).run()
    assert points.kept
    assert points.kept % 3 == 0
