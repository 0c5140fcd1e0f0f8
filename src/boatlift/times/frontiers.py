"""Frontiers: downward-closed sets of logical times (design, section 2; Falkirk Wheel §3.1).

The effects of a frontier's times are kept or restored, and all others are undone. (In Timely Dataflow a frontier is the
*opposite* edge: the times that may still come.)
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import cache
from typing import Any, Generic, TypeVar

from boatlift.times.domains import EPOCH, LAST, Domain, Epoch, Loop, LoopTime
from boatlift.times.time_sets import LoopTimes, MutableTimes, SequenceTimes, TimeSet

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
        return self._maximal

    def contains(self, time: T) -> bool:
        return any(self.domain.leq(time, m) for m in self.maximal)

    def extend(self, times: Iterable[T]) -> Frontier[T]:
        grown, left = self, list(times)
        while True:
            next_ones = [t for t in left if all(grown.contains(b) for b in self.domain.below(t))]
            if not next_ones:
                return grown
            grown = Frontier(self.domain, (*grown.maximal, *next_ones))
            left = [t for t in left if t not in next_ones]

    def without(self, times: Container[T]) -> Frontier[T]:
        kept: list[T] = []
        open_ones = list(self.maximal)
        while open_ones:
            time = open_ones.pop()
            if time in times:
                open_ones.extend(self.domain.below(time))
            else:
                kept.append(time)
        return Frontier(self.domain, kept)

    def __le__(self, other: Frontier[T]) -> bool:
        return all(other.contains(m) for m in self.maximal)

    def __and__(self, other: Frontier[T]) -> Frontier[T]:
        meets = (self.domain.meet(a, b) for a in self.maximal for b in other.maximal)
        return Frontier(self.domain, (m for m in meets if m is not None))

    def __or__(self, other: Frontier[T]) -> Frontier[T]:
        return Frontier(self.domain, (*self.maximal, *other.maximal))

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
        return self if self <= other else EpochFrontier(last_of(other))

    def __or__(self, other: Frontier[int]) -> EpochFrontier:
        return EpochFrontier(last_of(other)) if self <= other else self

    def __bool__(self) -> bool:
        return self.last >= 0

    def __eq__(self, other: object) -> bool:
        return self.last == other.last if isinstance(other, EpochFrontier) else super().__eq__(other)

    __hash__ = Frontier.__hash__

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

AnyFrontier = Frontier[Any]  # a frontier of any domain


class LoopFrontier(Frontier[LoopTime]):
    """A frontier of times in loops, which are totally ordered: one time is the only maximal element.

    Attributes:
        last: The greatest time, None for the empty frontier.
    """

    __slots__ = ("last",)

    domain: Loop

    def __init__(self, domain: Loop, last: LoopTime | None = None) -> None:
        self.domain = domain
        self.last = last

    @property
    def maximal(self) -> frozenset[LoopTime]:
        return frozenset() if self.last is None else frozenset((self.last,))

    def contains(self, time: LoopTime) -> bool:
        return self.last is not None and time <= self.last

    def extend(self, times: Iterable[LoopTime]) -> LoopFrontier:
        """Return the frontier extended through some times, up to the first gap.

        It passes from a last iteration to the next epoch if `times` are `LoopTimes` that know this iteration as last.
        """
        known = times if isinstance(times, LoopTimes) else LoopTimes(self.domain.depth, times)
        last = self.last
        while (following := known.after(last)) is not None:
            last = known.reach(following)
        return self if last == self.last else LoopFrontier(self.domain, last)

    def without(self, times: Container[LoopTime]) -> LoopFrontier:
        last = self.last
        while last is not None:
            if last[-1] == LAST:
                before = times.before(last) if isinstance(times, LoopTimes) else None
                if before is None and not (isinstance(times, LoopTimes) and times.was_never(last)):
                    break  # the set cannot contain infinitely many iterations
                last = before
            elif last in times:
                last = next(iter(self.domain.below(last)), None)
            else:
                break
        return LoopFrontier(self.domain, last)

    def __le__(self, other: Frontier[LoopTime]) -> bool:
        if self.last is None:
            return True
        if isinstance(other, LoopFrontier):
            return other.last is not None and self.last <= other.last
        return other.contains(self.last)

    def __and__(self, other: Frontier[LoopTime]) -> LoopFrontier:
        return self if self <= other else _as_loop(other)

    def __or__(self, other: Frontier[LoopTime]) -> LoopFrontier:
        return _as_loop(other) if self <= other else self

    def __bool__(self) -> bool:
        return self.last is not None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LoopFrontier):
            return self.last == other.last and self.domain == other.domain
        return super().__eq__(other)

    __hash__ = Frontier.__hash__


def _as_loop(frontier: Frontier[LoopTime]) -> LoopFrontier:
    if isinstance(frontier, LoopFrontier):
        return frontier
    assert isinstance(frontier.domain, Loop)
    return LoopFrontier(frontier.domain, max(frontier.maximal, default=None))


def frontier_of(domain: Domain[Any], times: Iterable[Any] = ()) -> AnyFrontier:
    """Return the smallest frontier that contains some times."""
    if domain == EPOCH:
        return Frontier.up_to(max(times, default=-1))
    if isinstance(domain, Loop):
        return LoopFrontier(domain, max(times, default=None))
    return Frontier(domain, times)


@cache
def all_times(domain: Domain[Any]) -> AnyFrontier:
    """Return the frontier of all times."""
    return frontier_of(domain, domain.greatest())


def no_times(domain: Domain[Any]) -> MutableTimes:
    """Return an empty set for times of a domain."""
    if domain == EPOCH:
        return TimeSet()
    return LoopTimes(domain.depth) if isinstance(domain, Loop) else SequenceTimes()
