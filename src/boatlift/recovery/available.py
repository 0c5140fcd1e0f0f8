"""F*(p): the frontiers a processor could be restored to, and the largest of them that nothing forbids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from boatlift.recovery.constraints import Why
from boatlift.recovery.graph import Edge
from boatlift.recovery.xi import Xi
from boatlift.times import AnyFrontier, EpochFrontier, Frontier, TimeSet

__all__ = ["Available", "Chain", "Choice", "EveryEpoch"]


class Choice(NamedTuple):
    """The largest frontier found, None if every one is forbidden; and what forbids the next larger one, if anything."""

    xi: Xi | None
    why: Why | None


class Available(Protocol):
    """F*(p), ordered by inclusion (seed 002, section 3.4).

    Law: `largest(within, …)` is the union of all f ∈ F*(p), f ⊆ within, that `forbids` gives None for; where F*(p) is
    a chain it is one of them.
    """

    @property
    def top(self) -> AnyFrontier:
        """A frontier that contains all of F*(p): where the fixed point starts."""

    def largest(self, within: AnyFrontier, fixed: AnyFrontier, forbids: Callable[[Xi], Why | None]) -> Choice:
        """Finds the largest frontier that nothing forbids.

        Args:
            within: An upper bound.
            fixed: The times that are fixed on every input; a hint, `forbids` knows it too.
            forbids: Gives the constraint that a frontier breaks, None if it breaks none.
        """


class Chain:
    """Finitely many frontiers, each within the next: durable checkpoints; what a sink holds; ⊤.

    Args:
        xis: Ξ of each, in rising order.
    """

    __slots__ = ("xis",)

    def __init__(self, xis: Sequence[Xi]) -> None:
        self.xis = xis

    @property
    def top(self) -> AnyFrontier:
        """The last of the chain."""
        return self.xis[-1].frontier

    def largest(self, within: AnyFrontier, fixed: AnyFrontier, forbids: Callable[[Xi], Why | None]) -> Choice:  # noqa: ARG002
        """Goes down the chain."""
        why = None
        for xi in reversed(self.xis):
            if xi.frontier <= within:
                forbidden = forbids(xi)
                if forbidden is None:
                    return Choice(xi, why)
                why = forbidden
        return Choice(None, why)


class EveryEpoch:
    """Every epoch frontier between two: a processor that keeps nothing between times, and need store nothing.

    M̄ = f, and what is discarded only grows with f: so whatever forbids a frontier forbids every larger one, and the
    largest is found by doubling steps and then halving, not one by one.

    Args:
        at_least, at_most: The bounds; a source cannot go back beyond inputs that were acknowledged, nor on beyond
            positions that are not known.
    """

    __slots__ = ("_inputs", "_logged", "_outputs", "at_least", "at_most")

    def __init__(
        self,
        inputs: Sequence[Edge],
        outputs: Sequence[Edge],
        logged: Mapping[str, TimeSet],
        at_least: EpochFrontier,
        at_most: EpochFrontier,
    ) -> None:
        self._inputs, self._outputs, self._logged = inputs, outputs, logged
        self.at_least, self.at_most = at_least, at_most

    @property
    def top(self) -> EpochFrontier:
        """The upper bound."""
        return self.at_most

    def largest(self, within: AnyFrontier, fixed: AnyFrontier, forbids: Callable[[Xi], Why | None]) -> Choice:
        """Starts where every input is fixed, and goes down in doubling steps, then up by halves."""
        low = self.at_least.last
        high = (self.at_most & within).last
        why: Why | None = None
        start = max(low, min(high, fixed.last if isinstance(fixed, EpochFrontier) else high))
        if start < high:
            why = forbids(self._xi(start + 1))
        xi = self._xi(start)
        refused = forbids(xi)
        if refused is None:
            return Choice(xi, why)
        bad, step, good = start, 1, None
        while good is None:
            why = refused
            if bad == low:
                return Choice(None, why)
            probe = max(low, bad - step)
            xi = self._xi(probe)
            refused = forbids(xi)
            if refused is None:
                good = xi
            else:
                bad, step = probe, step * 2
        at = probe
        while bad - at > 1:
            middle = (at + bad) // 2
            xi = self._xi(middle)
            refused = forbids(xi)
            if refused is None:
                at, good = middle, xi
            else:
                bad, why = middle, refused
        return Choice(good, why)

    def _xi(self, last: int) -> Xi:
        return Xi.structured(Frontier.up_to(last), self._inputs, self._outputs, self._logged)
