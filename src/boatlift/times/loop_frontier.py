"""Frontiers in loops."""

from __future__ import annotations

from collections.abc import Container, Iterable

from boatlift.times.domain import LAST
from boatlift.times.frontier import Frontier
from boatlift.times.loop import Loop, LoopTime
from boatlift.times.loop_times import LoopTimes


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

    def __hash__(self) -> int:
        return self.maximal.__hash__()


def _as_loop(frontier: Frontier[LoopTime]) -> LoopFrontier:
    if isinstance(frontier, LoopFrontier):
        return frontier
    assert isinstance(frontier.domain, Loop)
    return LoopFrontier(frontier.domain, max(frontier.maximal, default=None))
