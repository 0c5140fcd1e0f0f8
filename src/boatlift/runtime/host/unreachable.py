"""Sources that cannot be reached: how long they are borne, and when they are polled again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from boatlift.conditions import Retry
from boatlift.errors import BoatliftError
from boatlift.runtime.host.progress import Progress

__all__ = ["UnreachableSources"]

logger = logging.getLogger(__name__)

FIRST_REST_SECONDS = 0.2
LONGEST_REST_SECONDS = 5.0
"""Each further rest is twice as long as the one before, up to this."""


@dataclass(slots=True)
class _Outage:
    began: float
    rest: float


class UnreachableSources:
    """Decides after each failed poll whether the source is polled again.

    The other sources go on meanwhile: in the steps that they have in common with it, it has nothing.

    Args:
        retry_for: Source to the seconds for which it may be unreachable.
        watch: Called with an `unreachable` at the first failed poll of an outage, and a `reached` at its end.
    """

    def __init__(self, retry_for: Mapping[str, float], watch: Callable[[Progress], None]) -> None:
        self._retry_for, self._watch = retry_for, watch
        self._outages: dict[str, _Outage] = {}

    def rest_after(self, source: str, error: BoatliftError) -> float | None:
        """Return the seconds until the next poll; None if another poll would not help, or enough were made."""
        if error.retry is not Retry.AGAIN:
            return None
        now = time.monotonic()
        outage = self._outages.get(source)
        if outage is None:
            if not self._retry_for[source]:
                return None
            outage = self._outages[source] = _Outage(now, FIRST_REST_SECONDS)
            logger.warning(
                "%s is polled again for %g s, while others go on: %s", source, self._retry_for[source], error
            )
            self._watch(Progress("unreachable", source, -1, said=str(error)))
        left = outage.began + self._retry_for[source] - now
        if left <= 0:
            return None
        rest = min(outage.rest, left)
        outage.rest = min(2 * outage.rest, LONGEST_REST_SECONDS)
        return rest

    def reached(self, source: str) -> None:
        """Take note that a poll was answered."""
        if (outage := self._outages.pop(source, None)) is not None:
            logger.warning("%s is reached again, after %.1f s", source, time.monotonic() - outage.began)
            self._watch(Progress("reached", source, -1))
