"""Sets of epochs that need not be downward closed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boatlift.times.frontier import AnyFrontier


class TimeSet:
    """A mutable set of epochs, stored as intervals: a million times without a gap take the space of one interval.

    Law: it behaves as the set of its times.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, times: Iterable[int] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for time in times:
            self.add(time)

    def add(self, time: int) -> None:
        at = bisect_right(self._firsts, time)
        if at and time <= self._lasts[at - 1]:
            return
        joins_left = at > 0 and self._lasts[at - 1] == time - 1
        joins_right = at < len(self._firsts) and self._firsts[at] == time + 1
        if joins_left and joins_right:
            self._lasts[at - 1] = self._lasts.pop(at)
            del self._firsts[at]
        elif joins_left:
            self._lasts[at - 1] = time
        elif joins_right:
            self._firsts[at] = time
        else:
            self._firsts.insert(at, time)
            self._lasts.insert(at, time)

    def keep(self, first: int, last: int) -> None:
        """Drop every time before `first` and every time after `last`."""
        kept = [
            (max(a, first), min(b, last))
            for a, b in zip(self._firsts, self._lasts, strict=True)
            if b >= first and a <= last
        ]
        self._firsts = [a for a, _ in kept]
        self._lasts = [b for _, b in kept]

    def forget(self, frontier: AnyFrontier) -> None:
        self.keep(max(frontier.maximal, default=-1) + 1, self.last)

    def cut(self, frontier: AnyFrontier) -> None:
        self.keep(0, max(frontier.maximal, default=-1))

    def reach(self, time: int) -> int:
        """Return the last time of the unbroken sequence from `time` on; `time` − 1 if the set lacks `time`."""
        at = bisect_right(self._firsts, time)
        return max(self._lasts[at - 1], time - 1) if at else time - 1

    def start(self, time: int) -> int:
        """Return the first time of the unbroken sequence up to `time`; `time` + 1 if the set lacks `time`."""
        at = bisect_right(self._firsts, time)
        return self._firsts[at - 1] if at and time <= self._lasts[at - 1] else time + 1

    @property
    def last(self) -> int:
        """The greatest time, -1 if there is none."""
        return self._lasts[-1] if self._lasts else -1

    def between(self, after: int, last: int) -> list[int]:
        """Return the times t with after < t ≤ last, in order."""
        return [
            t
            for a, b in zip(self._firsts, self._lasts, strict=True)
            for t in range(max(a, after + 1), min(b, last) + 1)
        ]

    def __contains__(self, time: object) -> bool:
        return isinstance(time, int) and self.reach(time) >= time

    def __iter__(self) -> Iterator[int]:
        for a, b in zip(self._firsts, self._lasts, strict=True):
            yield from range(a, b + 1)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __or__(self, other: Iterable[int]) -> TimeSet:
        united = TimeSet()
        united._firsts, united._lasts = list(self._firsts), list(self._lasts)
        for time in other:
            united.add(time)
        return united

    def __and__(self, other: TimeSet) -> TimeSet:
        return TimeSet(time for time in self if time in other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimeSet):
            return NotImplemented
        return self._firsts == other._firsts and self._lasts == other._lasts

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        stretches = zip(self._firsts, self._lasts, strict=True)
        return "{" + ", ".join(f"{a}" if a == b else f"{a}…{b}" for a, b in stretches) + "}"
