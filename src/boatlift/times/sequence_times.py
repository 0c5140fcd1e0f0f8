"""Sets of deliveries that need not be downward closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from boatlift.times.sequence import SequenceTime
from boatlift.times.time_set import TimeSet

if TYPE_CHECKING:
    from boatlift.times.frontier import AnyFrontier


class SequenceTimes:
    """A mutable set of times (edge, n), stored as intervals for each edge.

    Law: it behaves as the set of its times.
    """

    __slots__ = ("_numbers",)

    def __init__(self, times: Iterable[SequenceTime] = ()) -> None:
        self._numbers: dict[str, TimeSet] = {}
        for time in times:
            self.add(time)

    def add(self, time: SequenceTime) -> None:
        self._numbers.setdefault(time[0], TimeSet()).add(time[1])

    def forget(self, frontier: AnyFrontier) -> None:
        for edge, n in frontier.maximal:
            if edge in self._numbers:
                self._numbers[edge].keep(n + 1, self._numbers[edge].last)

    def cut(self, frontier: AnyFrontier) -> None:
        reached = dict(frontier.maximal)
        for edge, numbers in self._numbers.items():
            numbers.keep(0, reached.get(edge, -1))

    def __contains__(self, time: object) -> bool:
        return isinstance(time, tuple) and time[1] in self._numbers.get(time[0], ())

    def __iter__(self) -> Iterator[SequenceTime]:
        for edge in sorted(self._numbers):
            yield from ((edge, n) for n in self._numbers[edge])

    def __bool__(self) -> bool:
        return any(self._numbers.values())

    def __or__(self, other: Iterable[SequenceTime]) -> SequenceTimes:
        return SequenceTimes({*self, *other})

    def __and__(self, other: SequenceTimes) -> SequenceTimes:
        return SequenceTimes(time for time in self if time in other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SequenceTimes) and set(self) == set(other)

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return f"SequenceTimes({list(self)})"
