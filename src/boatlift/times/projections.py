"""Projections φ(e): from the sender's time domain into the receiver's (design, section 3; Falkirk Wheel §3.2)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Protocol

from boatlift.times.boundaries import EpochBoundaries
from boatlift.times.domains import EPOCH, LAST, Domain, Loop, LoopTime, Sequence, SequenceTime
from boatlift.times.frontiers import AnyFrontier, Frontier, LoopFrontier, all_times, frontier_of, last_of
from boatlift.times.order import ArrivalOrder


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


IDENTITY = Identity()  # the projection of every edge between two processors of one domain


class Then:
    """The composition of two projections, through a domain that no processor has: φ(f) = second(first(f))."""

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


class _OnBoundaries:
    __slots__ = ("_boundaries",)

    def __init__(self, boundaries: EpochBoundaries) -> None:
        self._boundaries = boundaries

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._boundaries})"


class Coarse(_OnBoundaries):
    """From epochs into coarse epochs: a message belongs to the coarse epoch of its epoch.

    φ(0…t) has the coarse epochs that ended by t: all their messages have been sent. `sent` also has the open one, of
    which some have.
    """

    __slots__ = ()

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        last = last_of(frontier)
        return frontier if last == LAST else Frontier.up_to(self._boundaries.ended(last) - 1)

    def arrives(self, time: int) -> int:
        boundaries = self._boundaries
        return (
            boundaries.start + bisect_left(boundaries.ends, time) if time > boundaries.begin else boundaries.start - 1
        )

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        return Frontier.up_to(self.arrives(last_of(frontier))) if frontier else frontier

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the epochs up to the end of the last coarse one; an open one has no end."""
        last = last_of(frontier)
        if last < self._boundaries.start - 1:
            return Frontier.up_to(-1)
        return Frontier.up_to(self._boundaries.end(last)) if last < len(self._boundaries) else Frontier.everything()


def epochs_cut(projection: Projection) -> Projection | None:
    """Return the projection before a `Coarse`; None if the projection does not end with one."""
    if isinstance(projection, Then):
        return projection.first if isinstance(projection.second, Coarse) else None
    return IDENTITY if isinstance(projection, Coarse) else None


class Fine(_OnBoundaries):
    """From coarse epochs back into epochs: a message of a coarse epoch has the time of its boundary.

    φ(0…k) reaches to the boundary of k. It does not reach to the next boundary, though nothing is sent in between: that
    boundary is a determinant, which a failure may revoke.
    """

    __slots__ = ()

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        last = last_of(frontier)
        if last == LAST:
            return frontier
        return self.sent(frontier) if last >= self._boundaries.start - 1 else Frontier.up_to(-1)

    def arrives(self, time: int) -> int | None:
        return self._boundaries.end(time) if time < len(self._boundaries) else None

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        last = min(last_of(frontier), len(self._boundaries) - 1)
        return Frontier.up_to(self._boundaries.end(last) if last >= 0 else -1)

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        over = self._boundaries.ended(last_of(frontier))
        return Frontier.everything() if over == len(self._boundaries) else Frontier.up_to(over - 1)


class _AtLoop:
    __slots__ = ("_inner", "_outer")

    def __init__(self, inner: Loop) -> None:
        self._inner = inner
        self._outer: Domain[Any] = EPOCH if inner.depth == 1 else Loop(inner.depth - 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner})"


class Enter(_AtLoop):
    """Into a loop: a message of time t gets the time of its first iteration, (t, 0).

    φ(↓t) = ↓(t, all iterations): the later iterations of t get no message on this edge.
    """

    __slots__ = ()

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        return LoopFrontier(self._inner, max((_all_iterations(t) for t in frontier.maximal), default=None))

    def arrives(self, time: Any) -> LoopTime:
        return (*_tuple(time), 0)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return all times up to the first iteration of the last time; all its iterations if that time is an end."""
        last = max((self.arrives(t) for t in frontier.maximal), default=None)
        return LoopFrontier(self._inner, _all_iterations(last[:-1]) if last is not None and last[-2] == LAST else last)

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        return frontier_of(self._outer, (_untupled(time[:-1], self._outer) for time in frontier.maximal))


class Feedback(_AtLoop):
    """Back to the start of a loop: a message of iteration i becomes one of iteration i + 1.

    φ(↓(t, i)) = ↓(t, i + 1), and φ(∅) = ↓(0, 0): no message arrives at iteration 0 on this edge.
    """

    __slots__ = ()

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        last = max(frontier.maximal, default=None)
        if last is None:
            return LoopFrontier(self._inner, (0,) * (self._inner.depth + 1))
        level = next((at for at, n in enumerate(last) if n == LAST), len(last))
        if level == 0:
            return frontier
        return LoopFrontier(self._inner, (*last[: level - 1], last[level - 1] + 1, *(0 for _ in last[level:])))

    def arrives(self, time: LoopTime) -> LoopTime:
        return time if time[-1] == LAST else (*time[:-1], time[-1] + 1)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        return LoopFrontier(self._inner, max((self.arrives(t) for t in frontier.maximal), default=None))

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        last = max(frontier.maximal, default=None)
        if last is None or last[-1] == LAST:
            return frontier
        return LoopFrontier(self._inner, next(iter(self._inner.below(last)), None))


class Leave(_AtLoop):
    """Out of a loop: a message of any iteration of t becomes one of t.

    φ(↓(t, i)) has the times before t, since a later iteration may still send at t; φ(↓(t, all iterations)) = ↓t.
    """

    __slots__ = ()

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        last = max(frontier.maximal, default=None)
        if last is None:
            return frontier_of(self._outer)
        time = _untupled(last[:-1], self._outer)
        return frontier_of(self._outer, (time,) if last[-1] == LAST else self._outer.below(time))

    def arrives(self, time: LoopTime) -> Any:
        return _untupled(time[:-1], self._outer)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        return frontier_of(self._outer, map(self.arrives, frontier.maximal))

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        return LoopFrontier(self._inner, max((_all_iterations(t) for t in frontier.maximal), default=None))


def _all_iterations(time: Any) -> LoopTime:
    return (*_tuple(time), LAST)


def _tuple(time: Any) -> LoopTime:
    return time if isinstance(time, tuple) else (time,)


def _untupled(time: LoopTime, domain: Any) -> Any:
    return time[0] if domain == EPOCH else time


class ToSequence:
    """From epochs to a processor with an arrival order: the message of epoch n is (edge, n).

    φ(0…n) = ↓(edge, n), and all times of other edges, whose messages are never sent on this one.
    """

    __slots__ = ("_domain", "_edge")

    def __init__(self, domain: Sequence, edge: str) -> None:
        self._domain, self._edge = domain, edge

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        last = last_of(frontier)
        own = [(self._edge, last)] if last >= 0 else []
        return Frontier(self._domain, own + [(edge, LAST) for edge in self._domain.edges if edge != self._edge])

    def arrives(self, time: int) -> SequenceTime:
        return (self._edge, time)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        return Frontier(self._domain, [(self._edge, last_of(frontier))] if frontier else [])

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        return Frontier.up_to(max((n for edge, n in frontier.maximal if edge == self._edge), default=-1))

    def __repr__(self) -> str:
        return f"ToSequence({self._edge})"


class FromSequence:
    """From a processor with an arrival order into epochs: event n is epoch n.

    φ(f) is the longest prefix of events within f.
    """

    __slots__ = ("_order",)

    def __init__(self, order: ArrivalOrder) -> None:
        self._order = order

    def __call__(self, frontier: AnyFrontier) -> AnyFrontier:
        if frontier == all_times(self._order.domain):
            return Frontier.everything()
        return Frontier.up_to(self._order.within(frontier) - 1)

    def arrives(self, time: SequenceTime) -> int | None:
        return self._order.event(time)

    def sent(self, frontier: AnyFrontier) -> AnyFrontier:
        """Return the events up to the last one within; a message not taken yet may be taken at any time."""
        events = [self._order.event(time) for time in frontier.maximal]
        return Frontier.up_to(max((LAST if event is None else event for event in events), default=-1))

    def within(self, frontier: AnyFrontier) -> AnyFrontier:
        last = last_of(frontier)
        return all_times(self._order.domain) if last == LAST else self._order.prefix(last + 1)

    def __repr__(self) -> str:
        return "FromSequence"
