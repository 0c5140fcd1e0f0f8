"""Sequence numbers: several inputs, taken in the order in which they come (design, section 3; seed 002, section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.times.domain import LAST

__all__ = ["Sequence", "SequenceTime"]

SequenceTime = tuple[str, int]
"""(edge, n): the delivery of message n, counted from 0, of an input edge."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """The times (edge, n): those of one edge follow each other, those of two edges are not ordered.

    Which came first is no part of the time: it is a determinant. So not every frontier is one that a processor can be
    restored to: leaving out one delivery and keeping a later one would change what was sent. F*(p) is the chain of the
    prefixes that occurred (`Order.prefix`).

    Attributes:
        edges: The input edges.
    """

    edges: tuple[str, ...]

    def leq(self, a: SequenceTime, b: SequenceTime) -> bool:
        """Tells whether `a` is `b` or came before it on the same edge."""
        return a[0] == b[0] and a[1] <= b[1]

    def meet(self, a: SequenceTime, b: SequenceTime) -> SequenceTime | None:
        """Gives the earlier of both if they are of one edge."""
        return min(a, b) if a[0] == b[0] else None

    def below(self, time: SequenceTime) -> tuple[SequenceTime, ...]:
        """Gives the delivery before on the same edge."""
        edge, n = time
        return ((edge, n - 1),) if n > 0 else ()

    def greatest(self) -> tuple[SequenceTime, ...]:
        """Gives the end of every edge."""
        return tuple((edge, LAST) for edge in self.edges)
