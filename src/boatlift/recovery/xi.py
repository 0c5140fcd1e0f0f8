"""Ξ(p, f): what is known of a processor restored to a frontier (design, section 4; seed 002, section 3.4, Table 1)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from boatlift.recovery.graph import Edge, Vertex
from boatlift.times import AnyFrontier, Times, frontier_of

__all__ = ["Xi"]


@dataclass(frozen=True, slots=True)
class Xi:
    """What processor p has seen, sent and kept at the frontier f.

    N̄ and M̄ are in p's own domain, D̄ in the receiver's; each is a conservative estimate: too large is safe.

    Attributes:
        frontier: f.
        notified: N̄(p, f), the smallest frontier that contains the notifications processed.
        delivered: M̄(d, f) by input edge, the smallest frontier that contains the messages delivered.
        discarded: D̄(e, f) by output edge, the smallest frontier that contains the messages p can no longer send.
        logged: L(e, f) by output edge, the times of p whose messages p still has. Times beyond f count for nothing.
        saved: By input edge, the times of the messages beyond f that were in flight and are kept with it (seed 003): they are put back
            from here, so that the sender need not have them. Those in M̄ are in `delivered`.
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
        """Gives Ξ of a processor that finishes all times of f, and sends at each time what that time gave.

        M̄ = f, N̄ = f if it is told of times that are over, and D̄(e, f) is what was sent at the times of f that are not
        logged: without a log, in one domain, M̄ = N̄ = D̄ = φ = f.
        """
        discarded = {e.name: e.projection.sent(f.without(logged.get(e.name, ()))) for e in outputs}
        notified = f if vertex.notified else frontier_of(vertex.domain)
        return cls(f, notified, {d.name: f for d in inputs}, discarded)

    def also_logged(self, at_hand: Mapping[str, Times]) -> Xi:
        """Gives the same once more messages can be sent again: those that became durable later, or that a survivor holds.

        Args:
            at_hand: By output edge, the times of all messages that p still has; of edges within one domain.
        """
        if not at_hand:
            return self
        discarded = {e: d.without(at_hand[e]) if e in at_hand else d for e, d in self.discarded.items()}
        return replace(self, discarded=discarded, logged=at_hand)

    def kept(self, edge: str) -> AnyFrontier:
        """Gives the times of an input edge's messages that its sender will not be asked for: within f, or saved with it."""
        saved = self.saved.get(edge)
        return self.frontier if saved is None else self.frontier.extend(saved)
