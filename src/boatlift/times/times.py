"""Sets of times that need not be downward closed, of any domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from boatlift.times.frontier import AnyFrontier


class Times(Protocol):
    """Times of one domain: a `TimeSet` of epochs, `LoopTimes`, `SequenceTimes`, or an ordinary set."""

    def __contains__(self, time: object, /) -> bool:
        """Return whether a time is in the set."""

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the times."""

    def __or__(self, other: Any, /) -> Any:
        """Return the times of either."""

    def __and__(self, other: Any, /) -> Any:
        """Return the times of both."""


class MutableTimes(Times, Protocol):
    """Times that are added one by one, and dropped by frontiers; `no_times` makes one for a domain."""

    def add(self, time: Any, /) -> None:
        """Add a time; a time of the set changes nothing."""

    def forget(self, frontier: AnyFrontier, /) -> None:
        """Drop every time within a frontier."""

    def cut(self, frontier: AnyFrontier, /) -> None:
        """Drop every time beyond a frontier."""
