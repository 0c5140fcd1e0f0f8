"""Arrival orders: the order determinants of a processor with several inputs (design, sections 3 and 4)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from boatlift.times.domains import Sequence, SequenceTime
from boatlift.times.frontiers import Frontier


class ArrivalOrder:
    """The sequence of events 0, 1, 2, … of a processor, each with the message that it took.

    The order grows, a rollback truncates it, and its beginning is dropped.

    Laws, for events and prefixes from `start` on:
        * `prefix(n)` is the frontier of the first n events; `within(f)` is the largest n with `prefix(n)` ⊆ f.
        * `event(time)` is the event that took a message: `time` ∈ prefix(n) exactly when event(time) < n.
    Only the frontier of the dropped part is known: any smaller prefix counts as empty, and any event as its last.

    Attributes:
        start: The first event that is not dropped.
    """

    __slots__ = ("_events", "_forgotten", "domain", "start")

    def __init__(self, domain: Sequence, taken: Iterable[str] = ()) -> None:
        self.domain = domain
        self.start = 0
        self._forgotten = dict.fromkeys(domain.edges, 0)
        self._events: dict[str, list[int]] = {edge: [] for edge in domain.edges}
        for edge in taken:
            self.take(edge)

    def __len__(self) -> int:
        return self.start + sum(map(len, self._events.values()))

    def take(self, edge: str) -> SequenceTime:
        """Add an event that took the next message of an edge; return the message's time."""
        self._events[edge].append(len(self))
        return (edge, self._forgotten[edge] + len(self._events[edge]) - 1)

    def cut(self, length: int) -> None:
        for events in self._events.values():
            del events[bisect_left(events, length) :]

    def begin_after(self, frontier: Frontier[SequenceTime]) -> None:
        """Begin an empty order after events of which only the frontier is known."""
        self._forgotten.update((edge, n + 1) for edge, n in frontier.maximal)
        self.start = sum(self._forgotten.values())

    def forget(self, length: int) -> None:
        for edge, events in self._events.items():
            gone = bisect_left(events, length)
            del events[:gone]
            self._forgotten[edge] += gone
        self.start = sum(self._forgotten.values())

    def event(self, time: SequenceTime) -> int | None:
        edge, n = time
        known = n - self._forgotten[edge]
        if known < 0:
            return self.start - 1
        return self._events[edge][known] if known < len(self._events[edge]) else None

    def at(self, event: int) -> SequenceTime:
        """Return the time of the message that an event took.

        Raises:
            LookupError: no such event is known.
        """
        for edge, events in self._events.items():
            n = bisect_left(events, event)
            if n < len(events) and events[n] == event:
                return (edge, self._forgotten[edge] + n)
        raise LookupError(f"event {event} is not known")

    def prefix(self, length: int) -> Frontier[SequenceTime]:
        if length < self.start:
            return Frontier(self.domain)
        counts = ((edge, self._forgotten[edge] + bisect_left(each, length)) for edge, each in self._events.items())
        return Frontier(self.domain, ((edge, n - 1) for edge, n in counts if n))

    def within(self, frontier: Frontier[SequenceTime]) -> int:
        """Return the number of events in the longest prefix within a frontier."""
        reached = dict.fromkeys(self._events, -1)
        for edge, n in frontier.maximal:
            reached[edge] = max(reached[edge], n)
        known = {edge: reached[edge] + 1 - count for edge, count in self._forgotten.items()}
        if any(n < 0 for n in known.values()):
            return 0
        missing = [events[known[edge]] for edge, events in self._events.items() if len(events) > known[edge]]
        return min(missing, default=len(self))
