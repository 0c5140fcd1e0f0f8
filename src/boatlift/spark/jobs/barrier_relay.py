"""The driver's side of a gang: it hands each task the messages of all (`spark/tasks/barrier.py`)."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

import msgspec
from pyspark import SparkContext

from boatlift.errors import UnavailableError
from boatlift.spark.jobs.slots import Slots, slot_count
from boatlift.spark.jobs.task_listener import MOST_STRANGERS, driver_host, open_listener, shut
from boatlift.spark.tasks.relay_connection import RelayAddress

PATIENCE = 5.0
"""So many seconds a gang may wait for slots that are not there."""


def barrier_size(context: SparkContext) -> int:
    """Return how many tasks of one job run at once for certain: a power of two; 1 if executors come and go."""
    return 1 << (slot_count(context).bit_length() - 1)


class BarrierTasks:
    """The tasks of a job that run at once, as the driver sees them."""

    def __init__(self, tasks: int, context: SparkContext) -> None:
        self.tasks, self._context = tasks, context
        self._tag = f"gang-{uuid.uuid4().hex}"
        self._barrier = Barrier(tasks)
        self._ended = threading.Event()
        self._cancelled = False

    @contextmanager
    def running(self) -> Iterator[RelayAddress]:
        """Answer the tasks of the job that this thread runs meanwhile.

        Spark waits without an end for as many slots as a gang has tasks. So the job is cancelled if it waits for slots
        that were lost.

        Raises:
            UnavailableError: `[TASK_LOST]` so many tasks cannot run at once any more.
        """
        watching = threading.Thread(target=self._watch, name="barrier", daemon=True)
        alone = Slots.of(self._context).all_needed()
        with alone, self._barrier.answering(driver_host(self._context)) as address:
            watching.start()
            self._context.addJobTag(self._tag)
            try:
                yield address
            except Exception as error:
                if self._cancelled:
                    raise UnavailableError(
                        "TASK_LOST", f"{self.tasks} tasks cannot run at once any more: executors are gone"
                    ) from error
                raise
            finally:
                self._context.removeJobTag(self._tag)
                self._ended.set()
                watching.join()

    def _watch(self) -> None:
        while not self._ended.wait(1):
            if self._barrier.waits_for() > PATIENCE and barrier_size(self._context) < self.tasks:
                self._cancelled = True
                self._context.cancelJobsWithTag(self._tag)
                return


class Barrier:
    """The tasks of a job that are there.

    A task says its number and its attempt. Spark numbers the attempts of tasks that begin together one after the other,
    so a task whose attempt is further away is of another attempt of the job.
    """

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._lock = threading.Lock()
        self._there: dict[int, tuple[int, Connection]] = {}
        self._since: float | None = time.monotonic()
        self._ended = False

    def waits_for(self) -> float:
        """Return for how many seconds not all tasks have been there."""
        with self._lock:
            return 0.0 if self._since is None else time.monotonic() - self._since

    @contextmanager
    def answering(self, host: str) -> Iterator[RelayAddress]:
        """Let tasks join, and hand out their messages, at an address of this machine."""
        with open_listener(host, self._join, most_strangers=max(MOST_STRANGERS, 2 * self._tasks)) as address:
            try:
                yield address
            finally:
                with self._lock:
                    self._ended = True
                    self._part()

    def _join(self, number: int, attempt: int, connection: Connection) -> None:
        with self._lock:
            others = [each for each, _ in self._there.values()]
            if any(each >= attempt + self._tasks for each in others) or self._ended:
                connection.close()  # it is of an attempt that was given up
                return
            if number in self._there or any(each <= attempt - self._tasks for each in others):
                self._part()
            self._there[number] = attempt, connection
            if len(self._there) < self._tasks:
                return
            self._since = None
            barrier = [self._there[each][1] for each in range(self._tasks)]
        threading.Thread(target=self._relay, args=(barrier,), name="gang", daemon=True).start()

    def _part(self) -> None:
        """Let all tasks go that are there: their next exchange fails."""
        for _, connection in self._there.values():
            shut(connection)
            if self._since is not None:  # else the thread that reads it closes it
                connection.close()
        self._there = {}
        self._since = time.monotonic()

    def _relay(self, barrier: Sequence[Connection]) -> None:
        """Hand out messages until a task leaves; then all others learn it."""
        try:
            while True:
                messages = [msgspec.Raw(each.recv_bytes()) for each in barrier]
                answer = msgspec.msgpack.encode(messages)
                for each in barrier:
                    each.send_bytes(answer)
        except (OSError, EOFError):
            with self._lock:
                if any(connection in barrier for _, connection in self._there.values()):
                    self._part()
        finally:
            for each in barrier:
                each.close()
