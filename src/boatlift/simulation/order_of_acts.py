"""Which of its outstanding acts a simulated driver does next."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from boatlift.runtime.machine import StateMachine, events, instructions
from boatlift.simulation.faults import Settings

SLUGGISH = 0.9
LATE = 0.8
TRIES = 2  # an act that should wait makes way for another so often, if there is another


class OrderOfActs:
    """Chooses acts at random, and now and then those that do the most harm."""

    def __init__(self, rng: random.Random, settings: Settings) -> None:
        self._rng, self._settings = rng, settings
        self._failed: frozenset[str] = frozenset()
        self._acts = self._since_failure = 0

    def failed(self, processors: Iterable[str]) -> None:
        self._failed, self._since_failure = frozenset(processors), 0

    def choose(self, outstanding: Sequence[object], machine: StateMachine, *, writes: bool) -> int | None:
        """Return the index of the next act; after the last one: the log writes; None: no act is left.

        Args:
            writes: The log has something to write.
        """
        self._acts += 1
        self._since_failure += 1
        count = len(outstanding) + writes
        if not count:
            return None
        if self._since_failure < self._settings.late:
            late, early = _answers_to_earlier_incarnations(outstanding, machine)
            if late and self._rng.random() < LATE:
                return self._rng.choice(late)
            others = [at for at in range(count) if at not in early]
            if others and early and self._rng.random() < LATE:
                return self._rng.choice(others)
        at = self._rng.randrange(count)
        if at < len(outstanding) and self._stalls(outstanding[at]):
            others = [n for n in range(count) if n == len(outstanding) or not self._stalls(outstanding[n])]
            at = self._rng.choice(others) if others else at
        for _ in range(TRIES):
            waits = self._waits(outstanding[at]) if at < len(outstanding) else self._settings.log_waits(self._rng)
            if waits:
                at = self._rng.randrange(count)
        return at

    def _stalls(self, todo: object) -> bool:
        """Return whether an act is of the stalled processor."""
        name, first, last = self._settings.stalled
        if not first <= self._acts < last or not isinstance(todo, instructions.Execute | instructions.CommitSink):
            return False
        return name == (todo.sink if isinstance(todo, instructions.CommitSink) else todo.processor)

    def _waits(self, todo: object) -> bool:
        """Return whether another act should come first, if there is one."""
        match todo:
            case events.LogDurable() if self._acts < self._settings.unanswered:
                return True
            case events.LogDurable() | events.Persisted() | instructions.SetTimer() | instructions.ProbeRows():
                return self._rng.random() < self._settings.slow
            case instructions.Execute(processor):
                starts = processor in self._failed and self._since_failure < self._settings.restart
                return (starts or processor in self._settings.sluggish) and self._rng.random() < SLUGGISH
            case _:
                return False


def _answers_to_earlier_incarnations(
    outstanding: Sequence[object], machine: StateMachine
) -> tuple[list[int], set[int]]:
    """Return the places of instructions to earlier incarnations, with and without one to the present one."""
    asked = [
        (at, type(todo), todo.source if isinstance(todo, instructions.PollSource) else todo.processor, todo.incarnation)
        for at, todo in enumerate(outstanding)
        if isinstance(
            todo, instructions.Execute | instructions.PollSource | instructions.SetTimer | instructions.ProbeRows
        )
    ]
    present_of = {name: machine.processors[name].incarnation for _, _, name, _ in asked}
    present = {(kind, name) for _, kind, name, incarnation in asked if incarnation == present_of[name]}
    earlier = [(at, (kind, name) in present) for at, kind, name, incarnation in asked if incarnation < present_of[name]]
    return [at for at, late in earlier if late], {at for at, late in earlier if not late}
