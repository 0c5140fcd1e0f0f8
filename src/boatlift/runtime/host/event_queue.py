"""What comes back to a host: from its threads at once, from its clock later."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count

from boatlift.runtime.machine import events

__all__ = ["Answer", "EventQueue"]

Answer = Callable[[], Iterable[events.Event]]
"""What became of an instruction: called on the host's own thread, it gives the machine's next events."""


class EventQueue:
    """A queue of answers that any thread fills and the host's own thread empties, which alone asks for some later."""

    def __init__(self) -> None:
        self._here: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        self._later: list[tuple[float, int, Answer]] = []
        self._numbers = count()

    def put(self, answer: Answer) -> None:
        """Hands an answer over."""
        self._here.put(answer)

    def fail(self, error: BaseException) -> None:
        """Has `next` raise an error when its turn comes."""
        self._here.put(error)

    def put_or_fail(self, answer: Answer, error: BaseException | None) -> None:
        """Hands an answer over, unless something went wrong."""
        self._here.put(answer if error is None else error)

    def after(self, seconds: float, answer: Answer) -> None:
        """Lets something happen later, unless the run has ended by then."""
        heappush(self._later, (time.monotonic() + seconds, next(self._numbers), answer))

    def next(self) -> Answer:
        """Waits for the next answer; raises what failed."""
        wait = max(0.0, self._later[0][0] - time.monotonic()) if self._later else None
        try:
            answer = self._here.get(timeout=wait)
        except queue.Empty:
            return heappop(self._later)[2]
        if isinstance(answer, BaseException):
            raise answer
        return answer
