"""The clock of steps, which never goes back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

__all__ = ["LEAST_SECONDS", "SteadyClock", "behind"]

LEAST_SECONDS = 10
"""A clock that is behind by less is not told."""

logger = logging.getLogger(__name__)


class SteadyClock:
    """The machine's clock; while that is behind an earlier reading, time goes on from there at half its speed.

    So timers go on, and the machine's clock catches up. A clock that stood still would hold back timers for as long as
    it was set back; one at full speed would never be right again.

    Args:
        clock: The machine's clock, since 1970.
        unit: The nanoseconds of a unit of its readings.
        elapsed: Nanoseconds, of a clock that nobody sets.
    """

    def __init__(self, clock: Callable[[], int], unit: int, elapsed: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock, self._unit, self._elapsed = clock, unit, elapsed
        self._lock = threading.Lock()
        self._newest, self._since, self._told = 0, elapsed(), False

    def __call__(self) -> int:
        """Return a reading that is no earlier than any before."""
        with self._lock:
            now, elapsed = self._clock(), self._elapsed()
            if now >= self._newest:
                self._newest, self._since, self._told = now, elapsed, False
            else:
                self._tell(now)
                later = (elapsed - self._since) // (2 * self._unit)
                self._newest += later
                self._since += later * 2 * self._unit
            return self._newest

    def at_least(self, reading: int) -> None:
        """Let no later reading be earlier than this one."""
        with self._lock:
            if reading > self._newest:
                self._newest, self._since = reading, self._elapsed()

    def _tell(self, now: int) -> None:
        seconds = (self._newest - now) * self._unit // 10**9
        if not self._told and seconds >= LEAST_SECONDS:
            self._told = True
            logger.warning("%s", behind(seconds))


def behind(seconds: int) -> str:
    """Return what a user is told about a clock that was set back."""
    return (
        f"the clock of this machine is {timedelta(seconds=seconds)} behind the last step's: now(), ticks and timers go "
        "on from there at half their speed until it has caught up"
    )
