"""The driver's side of a gang: it hands each task the messages of all (`spark/tasks/gang.py`)."""

from __future__ import annotations

import secrets
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge

import msgspec
from pyspark import SparkContext

from boatlift.errors import UnavailableError
from boatlift.spark.tasks.gang import GangAddress

__all__ = ["Gang", "gang_size"]

PATIENCE = 5.0
"""So many seconds a gang may wait for slots that are not there."""


def gang_size(context: SparkContext) -> int:
    """Return how many tasks of one job run at once for certain: a power of two; 1 if executors come and go."""
    java = context._jsc.sc()
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return 1
    slots = java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile())
    return 1 << (max(1, int(slots)).bit_length() - 1)


def _driver_host(context: SparkContext) -> str:
    """Return the address at which executors reach this machine."""
    if str(context.master).startswith("local"):
        return "127.0.0.1"
    return str(context.getConf().get("spark.driver.host"))


class Gang:
    """The tasks of a job that run at once, as the driver sees them.

    Args:
        tasks: Their number.
        context: The Spark context that runs them.
    """

    def __init__(self, tasks: int, context: SparkContext) -> None:
        self.tasks, self._context = tasks, context
        self._tag = f"gang-{uuid.uuid4().hex}"
        self._meeting = _Meeting(tasks)
        self._ended = threading.Event()
        self._cancelled = False

    @contextmanager
    def running(self) -> Iterator[GangAddress]:
        """Answer the tasks of the job that this thread runs meanwhile.

        Spark waits without an end for as many slots as a gang has tasks. So the job is cancelled if it waits for slots
        that were lost.

        Raises:
            UnavailableError: `[TASK_LOST]` so many tasks cannot run at once any more.
        """
        host, secret = _driver_host(self._context), secrets.token_bytes(32)
        with Listener((host, 0), backlog=2 * self.tasks) as listener:
            _, port = listener.address
            threads = [
                threading.Thread(target=_accept, args=(listener, self._meeting, secret), name="gang", daemon=True),
                threading.Thread(target=self._watch, name="gang", daemon=True),
            ]
            for each in threads:
                each.start()
            self._context.addJobTag(self._tag)
            try:
                yield GangAddress(host, int(port), secret)
            except Exception as error:
                if self._cancelled:
                    raise UnavailableError(
                        "TASK_LOST", f"{self.tasks} tasks cannot run at once any more: executors are gone"
                    ) from error
                raise
            finally:
                self._context.removeJobTag(self._tag)
                self._ended.set()
                self._meeting.end()
                with suppress(OSError):  # wakes `accept`, which closing a listener does not
                    socket.create_connection((host, int(port)), timeout=1).close()
                for each in threads:
                    each.join()

    def _watch(self) -> None:
        while not self._ended.wait(1):
            if self._meeting.waits_for() > PATIENCE and gang_size(self._context) < self.tasks:
                self._cancelled = True
                self._context.cancelJobsWithTag(self._tag)
                return


class _Meeting:
    """The tasks of a job that are there. A task that comes a second time is of a new attempt, with which all begin."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._lock = threading.Lock()
        self._there: dict[int, Connection] = {}
        self._since: float | None = time.monotonic()
        self.ended = False

    def waits_for(self) -> float:
        """Return for how many seconds not all tasks have been there."""
        with self._lock:
            return 0.0 if self._since is None else time.monotonic() - self._since

    def join(self, number: int, connection: Connection) -> None:
        with self._lock:
            if number in self._there:
                self._leave()
            self._there[number] = connection
            if len(self._there) < self._tasks:
                return
            gang = dict(self._there)
            self._since = None
        threading.Thread(target=self._relay, args=(gang,), name="gang", daemon=True).start()

    def end(self) -> None:
        with self._lock:
            self.ended = True
            self._leave()

    def _leave(self) -> None:
        for each in self._there.values():
            each.close()
        self._there = {}
        self._since = time.monotonic()

    def _relay(self, gang: Mapping[int, Connection]) -> None:
        """Hand out messages until a task leaves; then all others learn it, because their connections close."""
        try:
            while True:
                messages = [msgspec.Raw(gang[number].recv_bytes()) for number in range(len(gang))]
                answer = msgspec.msgpack.encode(messages)
                for connection in gang.values():
                    connection.send_bytes(answer)
        except (OSError, EOFError):
            with self._lock:
                if self._there == gang:
                    self._leave()


def _accept(listener: Listener, meeting: _Meeting, secret: bytes) -> None:
    while True:
        connection = listener.accept()
        if meeting.ended:
            connection.close()
            return
        threading.Thread(target=_greet, args=(connection, meeting, secret), name="gang", daemon=True).start()


def _greet(connection: Connection, meeting: _Meeting, secret: bytes) -> None:
    """Let a task join: a connection that does not prove the secret, or says nothing, holds up no other."""
    try:
        deliver_challenge(connection, secret)
        answer_challenge(connection, secret)
        number = int(connection.recv_bytes())
    except (OSError, EOFError, AuthenticationError, ValueError):
        connection.close()  # not a task of this job, or one that has ended already
        return
    meeting.join(number, connection)
