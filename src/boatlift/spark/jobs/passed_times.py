"""The times that had passed after the newest steps, by which merges leave rows out that have expired."""

from __future__ import annotations

import threading
from collections.abc import Mapping

_REMEMBERED = 4096
"""Of so many steps it is remembered which time had passed after them."""


class PassedTimes:
    """The times that had passed after the newest steps, by part of a state.

    A merged run stands in the place of others in states that have all of these. So the steps that read it come after
    the last step of these runs, and the time that had passed then decides which rows have expired.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._after: dict[int, Mapping[str, int]] = {}

    def record(self, step: int, passed: Mapping[str, int]) -> None:
        """Record the times that have passed after a step, by part."""
        with self._lock:
            self._after.pop(step, None)  # after a rollback a step is executed again
            self._after[step] = passed
            while len(self._after) > _REMEMBERED:
                del self._after[next(iter(self._after))]

    def after(self, step: int, part: str) -> int | None:
        """Return the time that had passed for a part after a step or one before; None if none is remembered."""
        with self._lock:
            found = max((each for each in self._after if each <= step), default=None)
            return None if found is None else self._after[found].get(part)
