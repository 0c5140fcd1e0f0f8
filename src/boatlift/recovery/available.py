"""F*(p): the frontiers that a processor could be restored to, and the largest permitted one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

from boatlift.recovery.xi import Xi
from boatlift.times import AnyFrontier, ArrivalOrder, EpochFrontier, Frontier


class Available(Protocol):
    """F*(p), ordered by inclusion (Falkirk Wheel §3.4).

    Law: `largest(limit, …)` is the union of all f ∈ F*(p), f ⊆ limit, that are not forbidden; if F*(p) is a chain it is
    one of them.
    """

    @property
    def top(self) -> AnyFrontier:
        """A frontier that contains all of F*(p): the start of the fixed point."""

    @property
    def bottom(self) -> AnyFrontier:
        """The smallest of F*(p)."""

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:
        """Return the largest permitted frontier; None if each is forbidden.

        Args:
            limit: An upper bound. If Ξ follows from the frontier, the bound expresses all constraints.
            forbids: Returns the constraint that a frontier breaks, if any; called only if Ξ does not follow from the
                frontier.
        """

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Return the next larger frontier of F*(p), or an even larger one; None if there is none."""

    def xi(self, frontier: AnyFrontier) -> Xi | None:
        """Return the recorded Ξ(p, f); None if Ξ follows from the frontier."""


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
        return self.xis[-1].frontier

    @property
    def bottom(self) -> AnyFrontier:
        return self.xis[0].frontier

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:
        for xi in reversed(self.xis):
            if xi.frontier <= limit and forbids(xi) is None:
                return xi.frontier
        return None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        return next((xi.frontier for xi in self.xis if not xi.frontier <= frontier), None)

    def xi(self, frontier: AnyFrontier) -> Xi | None:
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
        return self._frontiers[-1]

    @property
    def bottom(self) -> AnyFrontier:
        return self._frontiers[0]

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:  # noqa: ARG002
        at = self._count(limit)
        return self._frontiers[at - 1] if at else None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        at = self._count(frontier)
        return self._frontiers[at] if at < len(self._frontiers) else None

    def xi(self, frontier: AnyFrontier) -> Xi | None:  # noqa: ARG002
        return None

    def _count(self, limit: AnyFrontier) -> int:
        """Return the number of frontiers within a limit, which are the first ones."""
        if self._lasts is not None and isinstance(limit, EpochFrontier):
            return bisect_right(self._lasts, limit.last)
        return bisect_right([not f <= limit for f in self._frontiers], False)


class Every:
    """Every frontier between two bounds, for a processor without state.

    Args:
        at_least, at_most: The bounds. A source cannot go back beyond acknowledged inputs, nor forward beyond known
            positions.
    """

    __slots__ = ("at_least", "at_most")

    def __init__(self, at_least: AnyFrontier, at_most: AnyFrontier) -> None:
        self.at_least, self.at_most = at_least, at_most

    @property
    def top(self) -> AnyFrontier:
        return self.at_most

    @property
    def bottom(self) -> AnyFrontier:
        return self.at_least

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:  # noqa: ARG002
        chosen = self.at_most & limit
        return chosen if self.at_least <= chosen else None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Return the frontier with one epoch more; in another domain the upper bound."""
        if self.at_most <= frontier:
            return None
        return Frontier.up_to(frontier.last + 1) if isinstance(frontier, EpochFrontier) else self.at_most

    def xi(self, frontier: AnyFrontier) -> Xi | None:  # noqa: ARG002
        return None


class Prefixes:
    """The prefixes of an arrival order, for a processor with no other state.

    A frontier without one message and with a later one never occurred (design, section 4). So F*(p) is a chain here
    too, though only the order is stored.

    Args:
        order: The messages that were taken, by event.
        known: The number of events whose order is known.
    """

    __slots__ = ("_known", "_order")

    def __init__(self, order: ArrivalOrder, known: int) -> None:
        self._order, self._known = order, known

    @property
    def top(self) -> AnyFrontier:
        return self._order.prefix(self._known)

    @property
    def bottom(self) -> AnyFrontier:
        return self._order.prefix(0)

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:  # noqa: ARG002
        return self._order.prefix(min(self._order.within(limit), self._known))

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        count = self._order.within(frontier)
        return self._order.prefix(max(count, self._order.start) + 1) if count < self._known else None

    def xi(self, frontier: AnyFrontier) -> Xi | None:  # noqa: ARG002
        return None
