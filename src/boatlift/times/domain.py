"""Time domains: what a logical time is, and which of two comes first (design, section 3; seed 002, sections 2 and 3.1)."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Protocol, TypeVar

__all__ = ["EPOCH", "LAST", "Domain", "Epoch"]

T = TypeVar("T")

LAST = sys.maxsize
"""Stands for the end of numbers that have none: no event has it in its time."""


class Domain(Hashable, Protocol[T]):
    """A partial order of logical times.

    Laws, for all times a, b, c:
        * `leq` is reflexive, antisymmetric and transitive.
        * c ≤ a and c ≤ b exactly when `meet(a, b)` is a time m, not None, and c ≤ m.
        * If a is the time of an event: c < a exactly when c ≤ b for some b of `below(a)`; there are finitely many. Where
          the times below one have no greatest elements (the rounds of a loop, before the next epoch), the domain has a
          time that stands for their end.
        * Every time is ≤ one of `greatest()`.
    Two domains are equal if they order the same times in the same way; none ever changes.
    """

    def leq(self, a: T, b: T) -> bool:
        """Tells whether `a` is `b` or before it."""

    def meet(self, a: T, b: T) -> T | None:
        """Gives the greatest time that is in or before both, or None if nothing is."""

    def below(self, time: T) -> tuple[T, ...]:
        """Gives the greatest times before one: where they are kept, this one leaves no gap."""

    def greatest(self) -> tuple[T, ...]:
        """Gives the times that stand for the end of all: the maximal elements of the frontier that holds everything."""


class Epoch:
    """The times 0, 1, 2, …, one after the other (seed 002, section 2.2).

    A *coarse* epoch, which covers many epochs of its input, is an epoch like any other: where each ends is known by the
    projection of the edge (`projections.Coarse`).
    """

    __slots__ = ()

    def leq(self, a: int, b: int) -> bool:
        """Tells whether `a` is `b` or before it."""
        return a <= b

    def meet(self, a: int, b: int) -> int | None:
        """Gives the smaller of both."""
        return min(a, b)

    def below(self, time: int) -> tuple[int, ...]:
        """Gives the time before, none before 0."""
        return (time - 1,) if time > 0 else ()

    def greatest(self) -> tuple[int, ...]:
        """Gives the end of all epochs."""
        return (LAST,)

    def __repr__(self) -> str:
        return "EPOCH"


EPOCH = Epoch()
"""The one epoch domain."""
