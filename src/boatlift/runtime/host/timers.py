"""Timers of the host: the machine has no clock, so the host waits for its deadlines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from boatlift.runtime.host.event_queue import EventQueue
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import SetTimer
from boatlift.storage.records.payloads import payload_of

__all__ = ["HostTimers", "clock_of"]

LONGEST_SECONDS = 3600.0
"""A timer looks at the clock at least so often.

The clock of steps may be set, and the alarm's clock may stand still in a suspended machine.
"""


class HostTimers:
    """The deadline of each processor: the end of a batch's epoch, or a checkpoint.

    Args:
        queue: Wakes the host.
        clock: Milliseconds since 1970, as steps record them.
    """

    def __init__(self, queue: EventQueue, clock: Callable[[], int]) -> None:
        self._queue, self._clock = queue, clock
        self._newest: dict[str, SetTimer] = {}

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
    """Return the clock of a payload, in milliseconds since 1970; None if it has none: it is of a step of no input."""
    return payload_of(payload).clock
