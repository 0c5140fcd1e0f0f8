"""Time domains: logical times, and the order between them (design, section 3; Falkirk Wheel §2 and §3.1)."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Protocol, TypeVar

T = TypeVar("T")

LAST = sys.maxsize
"""The end of an infinite sequence of numbers; no event has it in its time."""


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


EPOCH = Epoch()
"""The one epoch domain."""
