"""Projections φ(e): from the sender's time domain into the receiver's (design, section 3; seed 002, section 3.2)."""

from __future__ import annotations

from typing import Protocol

from boatlift.times.frontier import AnyFrontier

__all__ = ["IDENTITY", "Identity", "Projection"]


class Projection(Protocol):
    """Takes a frontier at an edge's sender to the frontier of messages on the edge that is *fixed* by it.

    Laws, for all frontiers f, g at the sender:
        * Monotone: f ⊆ g gives φ(f) ⊆ φ(g).
        * It promises: an event at a time outside f never makes the sender send a message with a time in φ(f). So
          φ(∅) holds only times at which nothing is ever sent (the first round on the edge that closes a loop); where
          a message may come at any time, φ(∅) = ∅.
        * It is pure: it depends on f alone. What re-execution is certain to repeat comes on top: the solver applies φ to the
          *widened* frontier (`boatlift.recovery.constraints.widen`).

    Larger is better: it lets receivers keep more. ∅ everywhere is always right and keeps nothing.
    """

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the frontier, in the receiver's domain, of the messages that are fixed."""


class Identity:
    """φ(f) = f: sender and receiver share a domain, and messages are not sent backwards in time."""

    __slots__ = ()

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the same frontier."""
        return frontier

    def __repr__(self) -> str:
        return "IDENTITY"


IDENTITY = Identity()
"""The projection of every edge between two processors of the epoch domain."""
