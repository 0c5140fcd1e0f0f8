"""Time domains: logical times, and the order between them (design, section 3; Falkirk Wheel §2 and §3.1)."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")

LAST = sys.maxsize  # the end of an infinite sequence of numbers; no event has it in its time


class Domain(Hashable, Protocol[T]):
    """A partial order of logical times.

    Laws, for all times a, b, c:
        * `leq` is reflexive, antisymmetric and transitive.
        * c ≤ a and c ≤ b exactly when `meet(a, b)` is a time m, not None, and c ≤ m.
        * If a is the time of an event: c < a exactly when c ≤ b for some b of `below(a)`; there are finitely many.
          If the times below one have no greatest elements (the iterations of a loop, before the next epoch), the domain
          has a time for their end.
        * Every time is ≤ one of `greatest()`.
    Two domains are equal if they order the same times in the same way. Domains are immutable.
    """

    def leq(self, a: T, b: T) -> bool:
        """Return whether `a` is `b` or before it."""

    def meet(self, a: T, b: T) -> T | None:
        """Return the greatest lower bound of two times; None if there is none."""

    def below(self, time: T) -> tuple[T, ...]:
        """Return the greatest times before one: a frontier that contains them can be extended by it."""

    def greatest(self) -> tuple[T, ...]:
        """Return the times at the end of all: the maximal elements of the frontier of everything."""


class Epoch:
    """The times 0, 1, 2, …, totally ordered (Falkirk Wheel §2.2).

    A *coarse* epoch covers many epochs of its input; the projection of the edge (`Coarse`) knows where each ends.
    """

    __slots__ = ()

    def leq(self, a: int, b: int) -> bool:
        return a <= b

    def meet(self, a: int, b: int) -> int | None:
        return min(a, b)

    def below(self, time: int) -> tuple[int, ...]:
        return (time - 1,) if time > 0 else ()

    def greatest(self) -> tuple[int, ...]:
        return (LAST,)

    def __repr__(self) -> str:
        return "EPOCH"


EPOCH = Epoch()  # the one epoch domain


LoopTime = tuple[int, ...]  # (epoch, i, …): iteration i of the outermost loop, and so on inwards, each from 0


@dataclass(frozen=True, slots=True)
class Loop:
    """The times (epoch, i, …), ordered lexicographically: all iterations of an epoch come before the next epoch.

    The number of iterations of an epoch is unknown until they have run. (epoch, LAST) is the end of all of them,
    whatever their number; no event has this time. Only a record of the last iterations (`LoopTimes`) knows the time
    directly below it.
    """

    depth: int = 1

    def leq(self, a: LoopTime, b: LoopTime) -> bool:
        return a <= b

    def meet(self, a: LoopTime, b: LoopTime) -> LoopTime | None:
        return min(a, b)

    def below(self, time: LoopTime) -> tuple[LoopTime, ...]:
        """Return the previous iteration; before the first, the end of the previous one in the surrounding loop.

        Raises:
            ValueError: the time is an end, below which there is no greatest time.
        """
        if time[-1] == LAST:
            raise ValueError(f"{time} is the end of iterations: no time comes right before it")
        at = max((level for level, n in enumerate(time) if n > 0), default=None)
        if at is None:
            return ()
        return ((*time[:at], time[at] - 1, *(LAST for _ in time[at + 1 :])),)

    def greatest(self) -> tuple[LoopTime, ...]:
        return ((LAST,) * (self.depth + 1),)


def end_of(prefix: LoopTime, depth: int) -> LoopTime:
    """Return the end of all iterations within an epoch, or within an iteration of an outer loop.

    Args:
        prefix: The epoch, and the iterations of the surrounding loops.
        depth: The number of nested loops in all.
    """
    return (*prefix, *(LAST for _ in range(depth + 1 - len(prefix))))


SequenceTime = tuple[str, int]  # (edge, n): the delivery of message n, counted from 0, of an input edge


@dataclass(frozen=True, slots=True)
class Sequence:
    """The times (edge, n): totally ordered on one edge, and unordered between two edges.

    The arrival order is a determinant, not part of the time. So a processor cannot be restored to every frontier:
    without one delivery and with a later one it would have sent other messages. F*(p) is the chain of prefixes of the
    actual order (`ArrivalOrder.prefix`).
    """

    edges: tuple[str, ...]

    def leq(self, a: SequenceTime, b: SequenceTime) -> bool:
        return a[0] == b[0] and a[1] <= b[1]

    def meet(self, a: SequenceTime, b: SequenceTime) -> SequenceTime | None:
        return min(a, b) if a[0] == b[0] else None

    def below(self, time: SequenceTime) -> tuple[SequenceTime, ...]:
        edge, n = time
        return ((edge, n - 1),) if n > 0 else ()

    def greatest(self) -> tuple[SequenceTime, ...]:
        return tuple((edge, LAST) for edge in self.edges)
