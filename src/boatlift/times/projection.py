"""Projections φ(e): from the sender's time domain into the receiver's (design, section 3; seed 002, section 3.2)."""

from __future__ import annotations

from typing import Any, Protocol

from boatlift.times.frontier import AnyFrontier

__all__ = ["IDENTITY", "Identity", "Projection", "Then"]


class Projection(Protocol):
    """What the sender's times mean to the receiver of an edge. An event sends at most one message (a run) on each edge.

    φ itself is `projection(f)`: the frontier of messages on the edge that is *fixed* by a frontier at the sender.

    Laws, for all frontiers f, g at the sender and h at the receiver:
        * Monotone: f ⊆ g gives φ(f) ⊆ φ(g); φ of everything is everything.
        * It promises: an event at a time outside f never sends a message with a time in φ(f). So φ(∅) holds only times
          at which nothing is ever sent (the first round on the edge that closes a loop).
        * `sent(f)` is the smallest frontier that contains `arrives(t)` for every t of f.
        * `within(h)` is the largest frontier whose messages are all in h: sent(f) ⊆ h exactly when f ⊆ within(h).
        * It is pure, but for records of choices that it looks up (where epochs were cut, in which order was taken): what it
          has answered stays true while they grow. What re-execution is certain to repeat comes on top: the solver
          applies φ to the *widened* frontier (`boatlift.recovery.constraints.widen`).

    A larger φ is better: it lets receivers keep more. ∅ everywhere is always right and keeps nothing.
    `boatlift.times.laws.check_projection` holds one to all of this.
    """

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives φ(f): the frontier, in the receiver's domain, of the messages that are fixed."""

    def arrives(self, time: Any) -> Any | None:
        """Gives the time, in the receiver's domain, of the message that an event sends; None if it sends none."""

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the smallest frontier, in the receiver's domain, with all messages that the events of a frontier sent."""

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the largest frontier at the sender that sent nothing beyond a frontier of the receiver."""


class Identity:
    """φ(f) = f: sender and receiver share a domain, and a message has the time of the event that sends it."""

    __slots__ = ()

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the same frontier."""
        return frontier

    def arrives(self, time: Any) -> Any:
        """Gives the same time."""
        return time

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the same frontier."""
        return frontier

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the same frontier."""
        return frontier

    def __repr__(self) -> str:
        return "IDENTITY"


IDENTITY = Identity()
"""The projection of every edge between two processors of one domain."""


class Then:
    """One projection after the other: over a domain that no processor has.

    Attributes:
        first, second: Them.
    """

    __slots__ = ("first", "second")

    def __init__(self, first: Projection, second: Projection) -> None:
        self.first, self.second = first, second

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives φ₂(φ₁(f))."""
        return self.second(self.first(frontier))

    def arrives(self, time: Any) -> Any | None:
        """Gives the second's time of the first's."""
        between = self.first.arrives(time)
        return None if between is None else self.second.arrives(between)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the second's of the first's."""
        return self.second.sent(self.first.sent(frontier))

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Gives the first's of the second's."""
        return self.first.within(self.second.within(frontier))

    def __repr__(self) -> str:
        return f"{self.first} then {self.second}"
