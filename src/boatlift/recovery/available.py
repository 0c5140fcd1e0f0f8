"""F*(p): the frontiers a processor could be restored to, and the largest of them that nothing forbids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

from boatlift.recovery.xi import Xi
from boatlift.times import AnyFrontier, ArrivalOrder, EpochFrontier, Frontier

__all__ = ["Available", "Chain", "Checkpoints", "Every", "Prefixes"]


class Available(Protocol):
    """F*(p), ordered by inclusion (seed 002, section 3.4).

    Law: `largest(limit, …)` is the union of all f ∈ F*(p), f ⊆ limit, that are not forbidden; where F*(p) is a chain it is
    one of them.
    """

    @property
    def top(self) -> AnyFrontier:
        """A frontier that contains all of F*(p): where the fixed point starts."""

    @property
    def bottom(self) -> AnyFrontier:
        """The smallest of F*(p)."""

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:
        """Finds the largest frontier that nothing forbids; None if every one is.

        Args:
            limit: What it must lie within. Where Ξ follows from the frontier, that is all constraints in one.
            forbids: Gives what a frontier breaks, None if nothing; asked only where Ξ does not follow from the frontier.
        """

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Gives the smallest frontier larger than one of F*(p), or one at least as large as it; None if there is none."""

    def xi(self, frontier: AnyFrontier) -> Xi | None:
        """Gives Ξ(p, f) where it was recorded, None where it follows from the frontier."""


class Chain:
    """Finitely many frontiers, each within the next, with a Ξ that was recorded for each.

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
        """Goes down the chain."""
        for xi in reversed(self.xis):
            if xi.frontier <= limit and forbids(xi) is None:
                return xi.frontier
        return None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Gives the next of the chain."""
        return next((xi.frontier for xi in self.xis if not xi.frontier <= frontier), None)

    def xi(self, frontier: AnyFrontier) -> Xi | None:
        """Looks it up."""
        return next((xi for xi in self.xis if xi.frontier == frontier), None)


class Checkpoints:
    """Finitely many frontiers, each within the next: durable checkpoints; what a sink holds; ⊤. Ξ follows from each.

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
        """The last of them."""
        return self._frontiers[-1]

    @property
    def bottom(self) -> AnyFrontier:
        """The first of them."""
        return self._frontiers[0]

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:  # noqa: ARG002
        """Finds the last one within the limit by halves."""
        at = self._count(limit)
        return self._frontiers[at - 1] if at else None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Gives the next one."""
        at = self._count(frontier)
        return self._frontiers[at] if at < len(self._frontiers) else None

    def xi(self, frontier: AnyFrontier) -> Xi | None:  # noqa: ARG002
        """Gives None."""
        return None

    def _count(self, limit: AnyFrontier) -> int:
        """How many lie within a limit: all up to one of them."""
        if self._lasts is not None and isinstance(limit, EpochFrontier):
            return bisect_right(self._lasts, limit.last)
        return bisect_right([not f <= limit for f in self._frontiers], False)


class Every:
    """Every frontier between two: a processor that keeps nothing between times, and need store nothing.

    Args:
        at_least, at_most: The bounds; a source cannot go back beyond inputs that were acknowledged, nor on beyond
            positions that are not known.
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
        """Gives the limit itself, as far as the bounds permit."""
        chosen = self.at_most & limit
        return chosen if self.at_least <= chosen else None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Gives one epoch more; in another domain the upper bound."""
        if self.at_most <= frontier:
            return None
        return Frontier.up_to(frontier.last + 1) if isinstance(frontier, EpochFrontier) else self.at_most

    def xi(self, frontier: AnyFrontier) -> Xi | None:  # noqa: ARG002
        """Gives None."""
        return None


class Prefixes:
    """The prefixes of an order: a processor that keeps nothing, but takes its inputs as they come.

    Every message has its place among those taken before it: a frontier that leaves out one and keeps a later one never was (design,
    section 4). So F*(p) is a chain here too, though nothing is stored but the order.

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
