"""F*(p): the frontiers that a processor could be restored to, and the largest of them that nothing forbids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

from boatlift.recovery.xi import Xi
from boatlift.times import AnyFrontier, ArrivalOrder, EpochFrontier, Frontier

__all__ = ["Available", "Chain", "Checkpoints", "Every", "Prefixes"]


class Available(Protocol):
    """F*(p), ordered by inclusion (Falkirk Wheel §3.4).

    Law: `largest(limit, …)` is the union of all f ∈ F*(p), f ⊆ limit, that are not forbidden; where F*(p) is a chain it
    is one of them.
    """

    @property
    def top(self) -> AnyFrontier:
        """A frontier that contains all of F*(p): where the fixed point starts."""

    @property
    def bottom(self) -> AnyFrontier:
        """The smallest of F*(p)."""

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:
        """Return the largest frontier that nothing forbids; None if each is forbidden.

        Args:
            limit: The frontier must lie within. Where Ξ follows from the frontier, the limit is all constraints in one.
            forbids: Returns the constraint that a frontier breaks, None if none; called only where Ξ does not follow
                from the frontier.
        """

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Return the next larger frontier of F*(p), or one at least as large as that; None if there is none."""

    def xi(self, frontier: AnyFrontier) -> Xi | None:
        """Return Ξ(p, f) where it was recorded, None where it follows from the frontier."""


class Chain:
    """Finitely many frontiers, each within the next, each with a recorded Ξ.

    Args:
        xis: In rising order.
    """

    __slots__ = ("xis",)

    def __init__(self, xis: Sequence[Xi]) -> None:
        self.xis = xis

    @property
    def top(self) -> AnyFrontier:
        """The last of the chain."""
        return self.xis[-1].frontier

    @property
    def bottom(self) -> AnyFrontier:
        """The first of the chain."""
        return self.xis[0].frontier

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:
        """Return the last of the chain that is within the limit and not forbidden."""
        for xi in reversed(self.xis):
            if xi.frontier <= limit and forbids(xi) is None:
                return xi.frontier
        return None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Return the next of the chain."""
        return next((xi.frontier for xi in self.xis if not xi.frontier <= frontier), None)

    def xi(self, frontier: AnyFrontier) -> Xi | None:
        """Return the recorded Ξ of a frontier of the chain."""
        return next((xi for xi in self.xis if xi.frontier == frontier), None)


class Checkpoints:
    """Finitely many frontiers, each within the next: checkpoints, a sink's content, ⊤. Ξ follows from each.

    Args:
        frontiers: In rising order; at least one.
    """

    __slots__ = ("_frontiers", "_lasts")

    def __init__(self, frontiers: Sequence[AnyFrontier]) -> None:
        self._frontiers = frontiers
        lasts = [f.last for f in frontiers if isinstance(f, EpochFrontier)]
        self._lasts = lasts if len(lasts) == len(frontiers) else None

    @property
    def top(self) -> AnyFrontier:
        """The last frontier."""
        return self._frontiers[-1]

    @property
    def bottom(self) -> AnyFrontier:
        """The first frontier."""
        return self._frontiers[0]

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:  # noqa: ARG002
        """Return the last frontier within the limit, found by bisection."""
        at = self._count(limit)
        return self._frontiers[at - 1] if at else None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Return the next frontier."""
        at = self._count(frontier)
        return self._frontiers[at] if at < len(self._frontiers) else None

    def xi(self, frontier: AnyFrontier) -> Xi | None:  # noqa: ARG002
        """Return None."""
        return None

    def _count(self, limit: AnyFrontier) -> int:
        """Return how many frontiers lie within a limit: all up to one of them."""
        if self._lasts is not None and isinstance(limit, EpochFrontier):
            return bisect_right(self._lasts, limit.last)
        return bisect_right([not f <= limit for f in self._frontiers], False)


class Every:
    """Every frontier between two bounds: of a processor that keeps nothing between times.

    Args:
        at_least, at_most: The bounds. A source cannot go back beyond inputs that were acknowledged, nor on beyond
            positions that are known.
    """

    __slots__ = ("at_least", "at_most")

    def __init__(self, at_least: AnyFrontier, at_most: AnyFrontier) -> None:
        self.at_least, self.at_most = at_least, at_most

    @property
    def top(self) -> AnyFrontier:
        """The upper bound."""
        return self.at_most

    @property
    def bottom(self) -> AnyFrontier:
        """The lower bound."""
        return self.at_least

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:  # noqa: ARG002
        """Return the limit itself, as far as the bounds permit."""
        chosen = self.at_most & limit
        return chosen if self.at_least <= chosen else None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Return the frontier with one epoch more; in another domain the upper bound."""
        if self.at_most <= frontier:
            return None
        return Frontier.up_to(frontier.last + 1) if isinstance(frontier, EpochFrontier) else self.at_most

    def xi(self, frontier: AnyFrontier) -> Xi | None:  # noqa: ARG002
        """Return None."""
        return None


class Prefixes:
    """The prefixes of an arrival order: of a processor that keeps nothing, and takes its inputs in arrival order.

    Every message has its place among those taken before it: a frontier that leaves out one and keeps a later one never
    was (design, section 4). So F*(p) is a chain here too, though only the order is stored.

    Args:
        order: The messages that were taken, by event.
        known: The number of events whose order is at hand.
    """

    __slots__ = ("_known", "_order")

    def __init__(self, order: ArrivalOrder, known: int) -> None:
        self._order, self._known = order, known

    @property
    def top(self) -> AnyFrontier:
        """The longest prefix."""
        return self._order.prefix(self._known)

    @property
    def bottom(self) -> AnyFrontier:
        """The empty prefix."""
        return self._order.prefix(0)

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:  # noqa: ARG002
        """Return the longest prefix within the limit."""
        return self._order.prefix(min(self._order.within(limit), self._known))

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Return the prefix with one event more."""
        count = self._order.within(frontier)
        return self._order.prefix(max(count, self._order.start) + 1) if count < self._known else None

    def xi(self, frontier: AnyFrontier) -> Xi | None:  # noqa: ARG002
        """Return None."""
        return None
