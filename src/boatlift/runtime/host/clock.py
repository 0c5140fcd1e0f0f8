"""The clock of steps, and the timers of the machine, which has no clock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

from boatlift.runtime.host.context import HostContext, handles
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import SetTimer
from boatlift.storage.records.payloads import payload_of

LEAST_SECONDS = 10  # a clock that is behind by less is not reported

logger = logging.getLogger(__name__)


class SteadyClock:
    """The computer's clock; while that is behind an earlier reading, time advances from there at half speed.

    So timers still fire, and the computer's clock catches up. A clock that stopped would hold timers back for as long
    as it was set back; a clock at full speed would stay ahead for ever.

    Args:
        unit: The nanoseconds of a unit of its readings.
    """

    def __init__(self, clock: Callable[[], int], unit: int, elapsed: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock, self._unit, self._elapsed = clock, unit, elapsed
        self._lock = threading.Lock()
        self._newest, self._since, self._warned = 0, elapsed(), False

    def __call__(self) -> int:
        """Return a reading that is no earlier than any before."""
        with self._lock:
            now, elapsed = self._clock(), self._elapsed()
            if now >= self._newest:
                self._newest, self._since, self._warned = now, elapsed, False
            else:
                seconds = (self._newest - now) * self._unit // 10**9
                if not self._warned and seconds >= LEAST_SECONDS:
                    self._warned = True
                    logger.warning("%s", behind(seconds))
                later = (elapsed - self._since) // (2 * self._unit)
                self._newest += later
                self._since += later * 2 * self._unit
            return self._newest

    def at_least(self, reading: int) -> None:
        """Let no later reading be earlier than this one."""
        with self._lock:
            if reading > self._newest:
                self._newest, self._since = reading, self._elapsed()


def behind(seconds: int) -> str:
    """Return the warning about a clock that was set back."""
    return (
        f"the clock of this machine is {timedelta(seconds=seconds)} behind the last step's: now(), ticks and timers "
        "continue from there at half speed until it has caught up"
    )


LONGEST_SECONDS = 3600.0
"""A timer looks at the clock at least so often.

The clock of steps may be set, and the alarm's clock may stand still in a suspended machine.
"""


class HostTimers:
    """Carries out `SetTimer`: a deadline for each processor, of a batch's epoch or of a checkpoint."""

    def __init__(self, context: HostContext, clock: Callable[[], int]) -> None:
        self._queue, self._clock = context.queue, clock
        self._newest: dict[str, SetTimer] = {}

    @handles(SetTimer)
    def set(self, timer: SetTimer) -> None:
        """Set a timer, in place of an earlier one of the same processor."""
        self._newest[timer.processor] = timer
        self._wait(timer)

    def _wait(self, timer: SetTimer) -> None:
        seconds = max(0.0, (timer.deadline - self._clock()) / 1000)
        self._queue.after(min(seconds, LONGEST_SECONDS), partial(self._due, timer))

    def _due(self, timer: SetTimer) -> Iterable[events.Event]:
        if self._newest.get(timer.processor) is not timer:
            return ()
        if self._clock() < timer.deadline:
            self._wait(timer)
            return ()
        del self._newest[timer.processor]
        return (events.TimerFired(timer.processor, timer.incarnation, timer.deadline),)


def clock_of(payload: Any) -> int | None:
    """Return the clock of a payload, in milliseconds since 1970; None if the payload is of a step without input."""
    return payload_of(payload).clock
