"""Ξ(p, f): what is known of a processor restored to a frontier (design, section 4; seed 002, section 3.4, Table 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from boatlift.recovery.graph import Edge
from boatlift.times import AnyFrontier, TimeSet

__all__ = ["Xi"]


@dataclass(frozen=True, slots=True)
class Xi:
    """What processor p has seen, sent and kept at the frontier f.

    N̄ and M̄ are in p's own domain, D̄ and L in the receiver's; each is a conservative estimate: too large is safe.

    Attributes:
        frontier: f.
        notified: N̄(p, f), the smallest frontier that contains the notifications processed.
        delivered: M̄(d, f) by input edge, the smallest frontier that contains the messages delivered.
        discarded: D̄(e, f) by output edge, the smallest frontier that contains the messages p can no longer send.
        logged: L(e, f) by output edge, the times whose messages p still has. Times beyond f count for nothing.
    """

    frontier: AnyFrontier
    notified: AnyFrontier
    delivered: Mapping[str, AnyFrontier]
    discarded: Mapping[str, AnyFrontier]
    logged: Mapping[str, TimeSet] = field(default_factory=dict)

    @classmethod
    def structured(
        cls, f: AnyFrontier, inputs: Sequence[Edge], outputs: Sequence[Edge], logged: Mapping[str, TimeSet]
    ) -> Xi:
        """Gives Ξ of a processor that finishes all times of f, and sends at each time what that time gave.

        M̄ = N̄ = f, and D̄(e, f) is what φ(e)(f) holds beside the log: without a log, M̄ = N̄ = D̄ = φ = f.
        """
        discarded = {e.name: e.projection(f) for e in outputs}
        if logged:
            discarded = {e: d.without(logged[e]) if e in logged else d for e, d in discarded.items()}
        return cls(f, f, {d.name: f for d in inputs}, discarded, logged)

    def also_logged(self, at_hand: Mapping[str, TimeSet]) -> Xi:
        """Gives the same once more messages can be sent again: those that became durable later, or that a survivor holds.

        Args:
            at_hand: By output edge, the times of all messages that p still has.
        """
        if not at_hand:
            return self
        discarded = {e: d.without(at_hand[e]) if e in at_hand else d for e, d in self.discarded.items()}
        return Xi(self.frontier, self.notified, self.delivered, discarded, at_hand)
