"""Sets of times that need not be downward closed: what happened, of any domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

__all__ = ["Times"]


class Times(Protocol):
    """Times of one domain: a `TimeSet` of epochs, `LoopTimes`, or an ordinary set of others."""

    def __contains__(self, time: object, /) -> bool:
        """Whether a time is in it."""

    def __iter__(self) -> Iterator[Any]:
        """Gives its times."""

    def __or__(self, other: Any, /) -> Any:
        """Gives the times of either."""

    def __and__(self, other: Any, /) -> Any:
        """Gives the times of both."""
