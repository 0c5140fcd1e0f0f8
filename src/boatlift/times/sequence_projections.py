"""Projections between epochs and sequence numbers (design, section 3; Falkirk Wheel §2.1 and §3.2, Figure 2a)."""

from __future__ import annotations

from boatlift.times.domain import LAST
from boatlift.times.frontier import AnyFrontier, Frontier, last_of
from boatlift.times.of_domain import all_times
from boatlift.times.order import ArrivalOrder
from boatlift.times.sequence import Sequence, SequenceTime


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
