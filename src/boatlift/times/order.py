"""The order in which a processor took from its inputs: its order determinants (design, sections 3 and 4)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from boatlift.times.frontier import Frontier
from boatlift.times.sequence import Sequence, SequenceTime

__all__ = ["Order"]


class Order:
    """Which message was taken at each event 0, 1, 2, …; it grows, and a rollback cuts it.

    Laws:
        * `prefix(n)` is the frontier of the first n events; `within(f)` is the largest n with `prefix(n)` ⊆ f.
        * `event(time)` is the event at which a message was taken: `time` ∈ prefix(n) exactly when event(time) < n.
    """

    __slots__ = ("_events", "domain")

    def __init__(self, domain: Sequence, taken: Iterable[str] = ()) -> None:
        self.domain = domain
        self._events: dict[str, list[int]] = {edge: [] for edge in domain.edges}
        for edge in taken:
            self.take(edge)

    def __len__(self) -> int:
        return sum(map(len, self._events.values()))

    def take(self, edge: str) -> SequenceTime:
        """Notes that the next message was taken from an edge; gives its time."""
        self._events[edge].append(len(self))
        return (edge, len(self._events[edge]) - 1)

    def cut(self, length: int) -> None:
        """Forgets all events from a number on."""
        for events in self._events.values():
            del events[bisect_left(events, length) :]

    def event(self, time: SequenceTime) -> int | None:
        """Tells at which event a message was taken; None if it was not."""
        edge, n = time
        return self._events[edge][n] if n < len(self._events[edge]) else None

    def at(self, event: int) -> SequenceTime:
        """Tells what was taken at an event.

        Raises:
            LookupError: there was no such event.
        """
        for edge, events in self._events.items():
            n = bisect_left(events, event)
            if n < len(events) and events[n] == event:
                return (edge, n)
        raise LookupError(f"there was no event {event}")

    def prefix(self, length: int) -> Frontier[SequenceTime]:
        """Gives the frontier of the first events."""
        counts = ((edge, bisect_left(events, length)) for edge, events in self._events.items())
        return Frontier(self.domain, ((edge, n - 1) for edge, n in counts if n))

    def within(self, frontier: Frontier[SequenceTime]) -> int:
        """Gives how many events from the first on are within a frontier."""
        reached = dict.fromkeys(self._events, -1)
        for edge, n in frontier.maximal:
            reached[edge] = max(reached[edge], n)
        missing = [
            events[reached[edge] + 1] for edge, events in self._events.items() if len(events) > reached[edge] + 1
        ]
        return min(missing, default=len(self))
