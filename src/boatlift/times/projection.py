"""Projections φ(e): from the sender's time domain into the receiver's (design, section 3; Falkirk Wheel §3.2)."""

from __future__ import annotations

from typing import Any, Protocol

from boatlift.times.frontier import AnyFrontier


class Projection(Protocol):
    """Translates times along an edge. An event sends at most one message on each edge.

    φ itself is `projection(f)`: the frontier of messages on the edge that is *fixed* by a frontier at the sender.

    Laws, for all frontiers f, g at the sender and h at the receiver:
        * Monotone: f ⊆ g gives φ(f) ⊆ φ(g); φ of everything is everything.
        * It promises: an event at a time outside f never sends a message with a time in φ(f). So φ(∅) contains only
          times without any message (the first iteration on the edge that closes a loop).
        * `sent(f)` is the smallest frontier that contains `arrives(t)` for every t of f.
        * `within(h)` is the largest frontier whose messages are all in h: sent(f) ⊆ h exactly when f ⊆ within(h).
        * It is pure, except that it reads determinants (epoch boundaries, arrival orders): its answers remain true
          while these grow. Reproducible times are added by the solver, which applies φ to the *widened* frontier
          (`boatlift.recovery.constraints.widen`).

    A larger φ is better: receivers can keep more. ∅ everywhere is always correct and keeps nothing.
    `boatlift.times.laws.check_projection` checks these laws.
    """

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return φ(f): the frontier, in the receiver's domain, of the messages that are fixed."""

    def arrives(self, time: Any) -> Any | None:
        """Return the time, in the receiver's domain, of an event's message; None if it sends none."""

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the smallest frontier, in the receiver's domain, with all messages of a frontier's events."""

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the largest frontier at the sender that sent nothing beyond a frontier of the receiver."""


class Identity:
    """φ(f) = f: sender and receiver share a domain, and a message has the time of the event that sends it."""

    __slots__ = ()

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        return frontier

    def arrives(self, time: Any) -> Any:
        return time

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        return frontier

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        return frontier

    def __repr__(self) -> str:
        return "IDENTITY"


IDENTITY = Identity()
"""The projection of every edge between two processors of one domain."""


class Then:
    """The composition of two projections, through a domain that no processor has.

    Attributes:
        first, second: The projections: φ(f) = second(first(f)).
    """

    __slots__ = ("first", "second")

    def __init__(self, first: Projection, second: Projection) -> None:
        self.first, self.second = first, second

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        return self.second(self.first(frontier))

    def arrives(self, time: Any) -> Any | None:
        between = self.first.arrives(time)
        return None if between is None else self.second.arrives(between)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        return self.second.sent(self.first.sent(frontier))

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        return self.first.within(self.second.within(frontier))

    def __repr__(self) -> str:
        return f"{self.first} then {self.second}"
