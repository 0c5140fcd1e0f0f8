"""The driver's side of a task that lives for many steps (`spark/tasks/long_running.py`): it orders them one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import msgspec

from boatlift.spark.jobs.task_listener import open_listener, shut
from boatlift.spark.tasks.long_running import PRIME, READS, TAKES, LongRunningOrder
from boatlift.spark.tasks.parameters import JobParameters
from boatlift.spark.tasks.relay_connection import RelayAddress


class LongRunningRelay:
    """Orders steps of one task, whose two parts join it.

    Laws:
        * A step is ordered of one attempt of the task, and each order has a number of its own. So a report is of the
          step that it answers, whatever else an attempt may still do.
        * An attempt that does not answer is never asked again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: dict[int, dict[int, Connection]] = {}  # attempt to its parts
        self._ready: int | None = None
        self._marked: int | None = None  # the attempt whose marks have come, maybe before its reading part joined
        self._number = PRIME

    @contextmanager
    def answering(self, host: str) -> Iterator[RelayAddress]:
        """Let parts join at an address of this machine until the end of the block."""
        with open_listener(host, self._join) as address:
            try:
                yield address
            finally:
                self.part()

    @property
    def is_ready(self) -> bool:
        with self._lock:
            return self._ready is not None

    def step(self, parameters: JobParameters) -> bytes | None:
        """Execute a step; return its report, or None if no task does it. One thread at a time calls this."""
        with self._lock:
            attempt = self._ready
            if attempt is None:
                return None
            parts = self._there[attempt]
            self._number += 1
            order = msgspec.msgpack.encode(LongRunningOrder(self._number, parameters))
        try:
            for part in (READS, TAKES):
                parts[part].send_bytes(order)
            return parts[TAKES].recv_bytes()
        except (OSError, EOFError):
            self.part()
            return None

    def part(self) -> None:
        """Let all attempts go: each ends, and a step under way is not answered."""
        with self._lock:
            there, self._there, self._ready = self._there, {}, None
        for parts in there.values():
            for connection in parts.values():
                shut(connection)

    def _join(self, part: int, attempt: int, connection: Connection) -> None:
        with self._lock:
            if attempt < max(self._there, default=0):
                connection.close()  # it is of an attempt that was given up
                return
            older = [self._there.pop(each) for each in list(self._there) if each < attempt]
            if older:
                self._ready = None
            self._there.setdefault(attempt, {})[part] = connection
        for parts in older:
            for each in parts.values():
                shut(each)
        if part == TAKES:
            try:
                connection.recv_bytes()  # the marks that the reading part has sent ahead have come
            except (OSError, EOFError):
                return
        with self._lock:
            self._marked = attempt if part == TAKES else self._marked
            if self._marked == attempt and len(self._there.get(attempt, {})) == 2:
                self._ready, self._number = attempt, PRIME
