"""Time domains: what a logical time is, and which of two comes first (design, section 3; seed 002, sections 2 and 3.1)."""

from __future__ import annotations

from typing import Protocol, TypeVar

__all__ = ["EPOCH", "Domain", "Epoch"]

T = TypeVar("T")


class Domain(Protocol[T]):
    """A partial order of logical times.

    Laws, for all times a, b, c:
        * `leq` is reflexive, antisymmetric and transitive.
        * c ≤ a and c ≤ b exactly when `meet(a, b)` is a time m, not None, and c ≤ m.
        * c < a exactly when c ≤ b for some b of `below(a)`; there are finitely many. Where the times below one have no
          greatest elements (the last round of a loop before the next epoch), the domain has a time that stands for
          their end.
    """

    def leq(self, a: T, b: T) -> bool:
        """Tells whether `a` is `b` or before it."""

    def meet(self, a: T, b: T) -> T | None:
        """Gives the greatest time that is in or before both, or None if nothing is."""

    def below(self, time: T) -> tuple[T, ...]:
        """Gives the greatest times before one: where they are kept, this one leaves no gap."""


class Epoch:
    """The times 0, 1, 2, …, one after the other (seed 002, section 2.2)."""

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

    def __repr__(self) -> str:
        return "EPOCH"


EPOCH = Epoch()
"""The one epoch domain."""
