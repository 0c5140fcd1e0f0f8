"""Ξ(p, f): the knowledge of processor p restored to frontier f (design, section 4; Falkirk Wheel §3.4, Table 1)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from boatlift.recovery.graph import Edge, Vertex
from boatlift.times import AnyFrontier, Times, frontier_of


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
        """Return Ξ with more messages that can be sent again: durable ones, and those in a survivor's memory.

        Args:
            at_hand: By output edge within one domain, the times of all messages that p still has.
        """
        if not at_hand:
            return self
        discarded = {e: d.without(at_hand[e]) if e in at_hand else d for e, d in self.discarded.items()}
        return replace(self, discarded=discarded, logged=at_hand)

    def kept(self, edge: str) -> AnyFrontier:
        """Return the times whose messages p does not need from the sender of an input edge: f, and those saved."""
        saved = self.saved.get(edge)
        return self.frontier if saved is None else self.frontier.extend(saved)
