"""Frontiers: downward-closed sets of logical times (design, section 2; Falkirk Wheel §3.1).

The effects of a frontier's times are kept or restored, and all others are undone. (In Timely Dataflow a frontier is the
*opposite* edge: the times that may still come.)
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Generic, TypeVar

from boatlift.times.domain import EPOCH, LAST, Domain, Epoch
from boatlift.times.time_set import TimeSet

T = TypeVar("T")


class Frontier(Generic[T]):
    """An immutable downward-closed set of times of one domain, stored as its maximal elements.

    Laws:
        * Downward closed: if it contains t, it contains every time before t.
        * `<=` is the subset relation; `&` and `|` are intersection and union, and again frontiers.
        * `extend(times)` is the largest frontier within itself and `times` that contains itself: it advances through
          those times up to the first gap.
        * `without(times)` is the smallest frontier that contains every member that is not one of `times`.
    """

    __slots__ = ("_maximal", "domain")

    domain: Domain[T]

    def __init__(self, domain: Domain[T], times: Iterable[T] = ()) -> None:
        """Make the smallest frontier that contains some times (↓ in Falkirk Wheel); of none: the empty frontier."""
        self.domain = domain
        maximal: set[T] = set()
        for time in times:
            if not any(domain.leq(time, m) for m in maximal):
                maximal = {m for m in maximal if not domain.leq(m, time)} | {time}
        self._maximal = frozenset(maximal)

    @staticmethod
    def up_to(last: int) -> EpochFrontier:
        """Return the frontier of epochs 0…last; of -1 the empty one."""
        return EpochFrontier(last)

    @staticmethod
    def everything() -> EpochFrontier:
        """Return the frontier of all epochs: the intersection of no frontiers."""
        return _EVERYTHING

    @property
    def maximal(self) -> frozenset[T]:
        """The maximal elements."""
        return self._maximal

    def contains(self, time: T) -> bool:
        return any(self.domain.leq(time, m) for m in self.maximal)

    def extend(self, times: Iterable[T]) -> Frontier[T]:
        """Return the frontier extended through some times, up to the first gap."""
        grown, left = self, list(times)
        while True:
            next_ones = [t for t in left if all(grown.contains(b) for b in self.domain.below(t))]
            if not next_ones:
                return grown
            grown, left = grown._with(next_ones), [t for t in left if t not in next_ones]

    def without(self, times: Container[T]) -> Frontier[T]:
        """Return the smallest frontier that contains every member that is not one of `times`."""
        kept: list[T] = []
        open_ones = list(self.maximal)
        while open_ones:
            time = open_ones.pop()
            if time in times:
                open_ones.extend(self.domain.below(time))
            else:
                kept.append(time)
        return Frontier(self.domain, kept)

    def _with(self, times: Iterable[T]) -> Frontier[T]:
        return Frontier(self.domain, (*self.maximal, *times))

    def __le__(self, other: Frontier[T]) -> bool:
        return all(other.contains(m) for m in self.maximal)

    def __and__(self, other: Frontier[T]) -> Frontier[T]:
        meets = (self.domain.meet(a, b) for a in self.maximal for b in other.maximal)
        return Frontier(self.domain, (m for m in meets if m is not None))

    def __or__(self, other: Frontier[T]) -> Frontier[T]:
        return self._with(other.maximal)

    def __bool__(self) -> bool:
        return bool(self.maximal)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frontier) and self.domain == other.domain and self.maximal == other.maximal

    def __hash__(self) -> int:
        return self.maximal.__hash__()

    def __repr__(self) -> str:
        return "∅" if not self.maximal else "↓{" + ", ".join(sorted(map(str, self.maximal))) + "}"


class EpochFrontier(Frontier[int]):
    """A frontier of epochs: the times 0…last, stored as one int, because solvers make very many of them.

    Attributes:
        last: The greatest time, -1 for the empty frontier.
    """

    __slots__ = ("last",)

    domain: Epoch

    def __init__(self, last: int) -> None:
        if last < -1:
            raise ValueError(f"a frontier's last time is at least -1, not {last}")
        self.domain = EPOCH
        self.last = last

    @property
    def maximal(self) -> frozenset[int]:
        return frozenset() if self.last < 0 else frozenset((self.last,))

    def contains(self, time: int) -> bool:
        return time <= self.last

    def extend(self, times: Iterable[int]) -> EpochFrontier:
        known = times if isinstance(times, TimeSet) else TimeSet(times)
        last = known.reach(self.last + 1)
        return EpochFrontier(last) if last > self.last else self

    def without(self, times: Container[int]) -> EpochFrontier:
        if isinstance(times, TimeSet):
            return EpochFrontier(times.start(self.last) - 1) if self.last in times else self
        last = self.last
        while last >= 0 and last in times:
            last -= 1
        return EpochFrontier(last)

    def __le__(self, other: Frontier[int]) -> bool:
        return self.last <= (other.last if isinstance(other, EpochFrontier) else last_of(other))

    def __and__(self, other: Frontier[int]) -> EpochFrontier:
        epochs = other if isinstance(other, EpochFrontier) else EpochFrontier(last_of(other))
        return self if self.last <= epochs.last else epochs

    def __or__(self, other: Frontier[int]) -> EpochFrontier:
        epochs = other if isinstance(other, EpochFrontier) else EpochFrontier(last_of(other))
        return self if self.last >= epochs.last else epochs

    def __bool__(self) -> bool:
        return self.last >= 0

    def __eq__(self, other: object) -> bool:
        return self.last == other.last if isinstance(other, EpochFrontier) else super().__eq__(other)

    def __hash__(self) -> int:
        return self.maximal.__hash__()

    def __repr__(self) -> str:
        if self.last < 0:
            return "∅"
        return "⊤" if self.last == _EVERYTHING.last else f"0…{self.last}"


def last_of(frontier: Frontier[Any]) -> int:
    """Return the last time of a frontier of epochs, -1 if it is empty.

    Raises:
        TypeError: it is a frontier of another domain.
    """
    if isinstance(frontier, EpochFrontier):
        return frontier.last
    if frontier.domain is not EPOCH:
        raise TypeError(f"{frontier} is not a frontier of epochs")
    return max(frontier.maximal, default=-1)


_EVERYTHING = EpochFrontier(LAST)

AnyFrontier = Frontier[Any]
"""A frontier of any domain."""
