"""What a host reacts to: answers from its threads at once, and its own alarms later."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count

from boatlift.runtime.machine import events

__all__ = ["Answer", "EventQueue"]

Answer = Callable[[], Iterable[events.Event]]
"""The outcome of an instruction: called on the host's own thread, it returns the machine's next events."""


class EventQueue:
    """A queue of answers. Any thread puts answers in; the host's own thread takes them out, and sets alarms."""

    def __init__(self) -> None:
        self._ready: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        self._alarms: list[tuple[float, int, Answer]] = []
        self._numbers = count()

    def put(self, answer: Answer) -> None:
        """Append an answer."""
        self._ready.put(answer)

    def fail(self, error: BaseException) -> None:
        """Append an error, which `next` raises at its place in the queue."""
        self._ready.put(error)

    def put_or_fail(self, answer: Answer, error: BaseException | None) -> None:
        """Append an answer, or the error if there is one."""
        self._ready.put(answer if error is None else error)

    def after(self, seconds: float, answer: Answer) -> None:
        """Append an answer some seconds from now, unless the run has ended by then."""
        heappush(self._alarms, (time.monotonic() + seconds, next(self._numbers), answer))

    def next(self) -> Answer:
        """Wait for the next answer and return it; raise the next error."""
        wait = max(0.0, self._alarms[0][0] - time.monotonic()) if self._alarms else None
        try:
            answer = self._ready.get(timeout=wait)
        except queue.Empty:
            return heappop(self._alarms)[2]
        if isinstance(answer, BaseException):
            raise answer
        return answer
