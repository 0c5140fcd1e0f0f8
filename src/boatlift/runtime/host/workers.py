"""The threads of a host: they do what blocks, and put its answer into the host's queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self

from boatlift.runtime.host.event_queue import Answer, EventQueue
from boatlift.runtime.machine import events

__all__ = ["Workers"]


class Workers:
    """A pool of threads; the end of its `with` block waits for work under way, and drops the rest.

    Args:
        queue: Takes answers and errors.
        threads: The number of threads.
    """

    def __init__(self, queue: EventQueue, threads: int) -> None:
        self._queue = queue
        self._pool = ThreadPoolExecutor(max_workers=threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, function: Callable[..., Answer], *arguments: Any) -> None:
        """Call a function on a thread, and put its answer, or its error, into the queue."""
        self._pool.submit(self._answer, function, *arguments)

    def submit_after(self, seconds: float, function: Callable[..., Answer], *arguments: Any) -> None:
        """Call a function on a thread after a rest; at once if there is none. The host's own thread calls this."""
        if seconds:
            self._queue.after(seconds, partial(self._begin, function, *arguments))
        else:
            self.submit(function, *arguments)

    def run(self, function: Callable[..., None], *arguments: Any) -> Future[None]:
        """Call a function on a thread that answers nothing; its error is put into the queue, too."""
        return self._pool.submit(self._attempt, function, *arguments)

    def _begin(self, function: Callable[..., Answer], *arguments: Any) -> Iterable[events.Event]:
        self.submit(function, *arguments)
        return ()

    def _answer(self, function: Callable[..., Answer], *arguments: Any) -> None:
        try:
            self._queue.put(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
            self._queue.fail(error)

    def _attempt(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            function(*arguments)
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
            self._queue.fail(error)
