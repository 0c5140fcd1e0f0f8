"""Ξ(p, f), and F*(p): the frontiers that a processor could be restored to, and the largest permitted one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from boatlift.recovery.graph import Edge, Vertex
from boatlift.times import AnyFrontier, ArrivalOrder, EpochFrontier, Frontier, Times, frontier_of


@dataclass(frozen=True, slots=True)
class Xi:
    """The notifications and messages that processor p has received, sent and kept at the frontier f.

    N̄ and M̄ are in p's own domain, D̄ in the receiver's; each is a conservative estimate: too large is safe.

    Attributes:
        frontier: f.
        notified: N̄(p, f), the smallest frontier with all processed notifications.
        delivered: M̄(d, f) by input edge, the smallest frontier with all delivered messages.
        discarded: D̄(e, f) by output edge, the smallest frontier with all messages that p can no longer send.
        logged: L(e, f) by output edge, the times of p whose messages p still has. Times beyond f are ignored.
        saved: By input edge, the times of messages beyond f that were in flight and are kept with the state (FLIP-76):
            p itself puts them back, so the sender need not have them. Those in M̄ are in `delivered`.
    """

    frontier: AnyFrontier
    notified: AnyFrontier
    delivered: Mapping[str, AnyFrontier]
    discarded: Mapping[str, AnyFrontier]
    logged: Mapping[str, Times] = field(default_factory=dict)
    saved: Mapping[str, Times] = field(default_factory=dict)

    @classmethod
    def structured(
        cls,
        vertex: Vertex,
        f: AnyFrontier,
        inputs: Sequence[Edge],
        outputs: Sequence[Edge],
        logged: Mapping[str, Container[Any]],
    ) -> Xi:
        """Return Ξ of a processor that completes all times of f, and sends the results of each time at that time.

        M̄ = f, N̄ = f if the processor is notified, and D̄(e, f) has the messages of f that are not logged: without a
        log, in one domain, M̄ = N̄ = D̄ = φ = f.
        """
        discarded = {e.name: e.projection.sent(f.without(logged.get(e.name, ()))) for e in outputs}
        notified = f if vertex.notified else frontier_of(vertex.domain)
        return cls(f, notified, {d.name: f for d in inputs}, discarded)

    def also_logged(self, at_hand: Mapping[str, Times]) -> Xi:
        """Return Ξ with all messages that can be sent again: durable ones, and those in a survivor's memory."""
        if not at_hand:
            return self
        discarded = {e: d.without(at_hand[e]) if e in at_hand else d for e, d in self.discarded.items()}
        return replace(self, discarded=discarded, logged=at_hand)

    def kept(self, edge: str) -> AnyFrontier:
        """Return the times whose messages p does not need from the sender of an input edge: f, and those saved."""
        saved = self.saved.get(edge)
        return self.frontier if saved is None else self.frontier.extend(saved)


class Available(Protocol):
    """F*(p), ordered by inclusion (Falkirk Wheel §3.4).

    Law: `largest(limit, …)` is the union of all f ∈ F*(p), f ⊆ limit, that are not forbidden; if F*(p) is a chain it is
    one of them.
    """

    bottom: AnyFrontier  # the smallest of F*(p)
    top: AnyFrontier  # a frontier that contains all of F*(p): the start of the fixed point

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:
        """Return the largest permitted frontier; None if each is forbidden.

        Args:
            limit: An upper bound. If Ξ follows from the frontier, the bound expresses all constraints.
            forbids: Returns the constraint that a frontier breaks, if any; called only if Ξ does not follow from the
                frontier.
        """

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Return the next larger frontier of F*(p), or an even larger one; None if there is none."""

    def xi(self, frontier: AnyFrontier) -> Xi | None:  # noqa: ARG002
        """Return the recorded Ξ(p, f); None if Ξ follows from the frontier."""
        return None


class Chain(Available):
    """Finitely many frontiers, each within the next, each with a recorded Ξ."""

    def __init__(self, xis: Sequence[Xi]) -> None:
        self.xis = xis
        self.bottom, self.top = xis[0].frontier, xis[-1].frontier

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:
        for xi in reversed(self.xis):
            if xi.frontier <= limit and forbids(xi) is None:
                return xi.frontier
        return None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        return next((xi.frontier for xi in self.xis if not xi.frontier <= frontier), None)

    def xi(self, frontier: AnyFrontier) -> Xi | None:
        return next((xi for xi in self.xis if xi.frontier == frontier), None)


class Checkpoints(Available):
    """At least one frontier, each within the next: checkpoints, a sink's content, ⊤. Ξ follows from each."""

    def __init__(self, frontiers: Sequence[AnyFrontier]) -> None:
        self._frontiers = frontiers
        self.bottom, self.top = frontiers[0], frontiers[-1]
        lasts = [f.last for f in frontiers if isinstance(f, EpochFrontier)]
        self._lasts = lasts if len(lasts) == len(frontiers) else None

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:  # noqa: ARG002
        at = self._count(limit)
        return self._frontiers[at - 1] if at else None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        at = self._count(frontier)
        return self._frontiers[at] if at < len(self._frontiers) else None

    def _count(self, limit: AnyFrontier) -> int:
        if self._lasts is not None and isinstance(limit, EpochFrontier):
            return bisect_right(self._lasts, limit.last)
        return bisect_right([not f <= limit for f in self._frontiers], False)


class Every(Available):
    """Every frontier between two bounds, for a processor without state.

    A source cannot go back beyond acknowledged inputs, nor forward beyond known positions.
    """

    def __init__(self, bottom: AnyFrontier, top: AnyFrontier) -> None:
        self.bottom, self.top = bottom, top

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:  # noqa: ARG002
        chosen = self.top & limit
        return chosen if self.bottom <= chosen else None

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        """Return the frontier with one epoch more; in another domain the upper bound."""
        if self.top <= frontier:
            return None
        return Frontier.up_to(frontier.last + 1) if isinstance(frontier, EpochFrontier) else self.top


class Prefixes(Available):
    """The prefixes of an arrival order, for a processor with no other state.

    A frontier without one message and with a later one never occurred (design, section 4). So F*(p) is a chain here
    too, though only the order is stored.

    Args:
        order: The messages that were taken, by event.
        known: The number of events whose order is known.
    """

    def __init__(self, order: ArrivalOrder, known: int) -> None:
        self._order, self._known = order, known
        self.bottom, self.top = order.prefix(0), order.prefix(known)

    def largest(self, limit: AnyFrontier, forbids: Callable[[Xi], object]) -> AnyFrontier | None:  # noqa: ARG002
        return self._order.prefix(min(self._order.within(limit), self._known))

    def above(self, frontier: AnyFrontier) -> AnyFrontier | None:
        count = self._order.within(frontier)
        return self._order.prefix(max(count, self._order.start) + 1) if count < self._known else None
