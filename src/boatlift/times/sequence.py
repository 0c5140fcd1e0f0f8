"""Sequence numbers: several inputs, taken in arrival order (design, section 3; Falkirk Wheel §2.1)."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.times.domain import LAST

SequenceTime = tuple[str, int]
"""(edge, n): the delivery of message n, counted from 0, of an input edge."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """The times (edge, n): totally ordered on one edge, and unordered between two edges.

    The arrival order is a determinant, not part of the time. So a processor cannot be restored to every frontier:
    without one delivery and with a later one it would have sent other messages. F*(p) is the chain of prefixes of the
    actual order (`ArrivalOrder.prefix`).

    Attributes:
        edges: The input edges.
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
