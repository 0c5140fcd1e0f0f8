"""The loop of a host, the queue of answers that drives it, and the threads that the answers come from."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count
from typing import Any

from boatlift.runtime.machine import StateMachine, events
from boatlift.runtime.machine.instructions import Instruction

Answer = Callable[[], Iterable[events.Event]]
"""The outcome of an instruction: called on the host's own thread, it returns the machine's next events."""


class EventQueue:
    """A queue of answers. Any thread puts answers in; the host's own thread takes them out, and sets alarms."""

    def __init__(self) -> None:
        # A `SimpleQueue` waits for ever if its timeout runs out before it begins to wait (seen with CPython 3.11).
        self._ready: queue.Queue[Answer | BaseException] = queue.Queue()
        self._alarms: list[tuple[float, int, Answer]] = []
        self._numbers = count()

    def put(self, answer: Answer | BaseException) -> None:
        """Append an answer, or an error, which `next` raises at its place in the queue."""
        self._ready.put(answer)

    def after(self, seconds: float, answer: Answer) -> None:
        """Append an answer some seconds from now, unless the run has ended by then."""
        heappush(self._alarms, (time.monotonic() + seconds, next(self._numbers), answer))

    def next(self) -> Answer:
        wait = max(0.0, self._alarms[0][0] - time.monotonic()) if self._alarms else None
        try:
            answer = self._ready.get(timeout=wait)
        except queue.Empty:
            return heappop(self._alarms)[2]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Workers:
    """A pool of threads for calls that block."""

    def __init__(self, queue: EventQueue, threads: int) -> None:
        self._queue = queue
        self._pool = ThreadPoolExecutor(max_workers=threads)

    def close(self) -> None:
        """Wait for calls under way, and drop all others."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, function: Callable[..., Answer], *arguments: Any) -> None:
        """Call a function on a thread, and put its answer, or its error, into the queue."""
        self.run(lambda: self._queue.put(function(*arguments)))

    def submit_after(self, seconds: float, function: Callable[..., Answer], *arguments: Any) -> None:
        """Call a function on a thread some seconds from now. The host's own thread calls this."""

        def begin() -> Iterable[events.Event]:
            self.submit(function, *arguments)
            return ()

        if seconds:
            self._queue.after(seconds, begin)
        else:
            begin()

    def run(self, function: Callable[..., None], *arguments: Any) -> Future[None]:

        def attempt() -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
                self._queue.put(error)

        return self._pool.submit(attempt)


def run_loop(
    machine: StateMachine,
    queue: EventQueue,
    handlers: Mapping[type[Any], Callable[[Any], None]],
    first: Iterable[Instruction],
    is_over: Callable[[], bool],
) -> None:
    """Hand instructions to their handlers, and answers to the machine, until the run is over.

    An answer may yield several events. The instructions of one event are carried out before the next event is handled.
    """

    def carry_out(instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            handlers[type(instruction)](instruction)

    carry_out(first)
    while not is_over():
        for event in queue.next()():
            carry_out(machine.handle(event))
