"""The driver's side of a gang: it hands each task the messages of all (`spark/tasks/gang.py`)."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge

import msgspec
from pyspark import SparkContext

from boatlift.spark.tasks.gang import GangAddress

__all__ = ["driver_host", "gang_size", "hub"]


def gang_size(context: SparkContext) -> int:
    """Return how many tasks of one job run at once for certain: a power of two; 1 if executors come and go."""
    java = context._jsc.sc()
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return 1
    slots = java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile())
    return 1 << (max(1, int(slots)).bit_length() - 1)


def driver_host(context: SparkContext) -> str:
    """Return the address at which executors reach this machine."""
    if str(context.master).startswith("local"):
        return "127.0.0.1"
    return str(context.getConf().get("spark.driver.host"))


@contextmanager
def hub(tasks: int, host: str) -> Iterator[GangAddress]:
    """Answer the tasks of a job while it runs.

    Args:
        tasks: Their number.
        host: The address of this machine, as executors reach it.
    """
    secret = secrets.token_bytes(32)
    with Listener((host, 0), backlog=2 * tasks) as listener:
        _, port = listener.address
        meeting = _Meeting(tasks)
        accepting = threading.Thread(target=_accept, args=(listener, meeting, secret), name="gang", daemon=True)
        accepting.start()
        try:
            yield GangAddress(host, int(port), secret)
        finally:
            meeting.end()
            with suppress(OSError):  # wakes `accept`, which closing a listener does not
                _wake(host, int(port))
            accepting.join()


class _Meeting:
    """The tasks of a job that are there. A task that comes a second time is of a new attempt, with which all begin."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._lock = threading.Lock()
        self._there: dict[int, Connection] = {}
        self.ended = False

    def join(self, number: int, connection: Connection) -> None:
        with self._lock:
            if number in self._there:
                self._leave()
            self._there[number] = connection
            if len(self._there) < self._tasks:
                return
            gang = dict(self._there)
        threading.Thread(target=_relay, args=(gang,), name="gang", daemon=True).start()

    def end(self) -> None:
        with self._lock:
            self.ended = True
            self._leave()

    def _leave(self) -> None:
        for each in self._there.values():
            each.close()
        self._there = {}


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


def _relay(gang: Mapping[int, Connection]) -> None:
    """Hand out messages until a task leaves; then all others learn it, because their connections close."""
    try:
        while True:
            messages = [msgspec.Raw(gang[number].recv_bytes()) for number in range(len(gang))]
            answer = msgspec.msgpack.encode(messages)
            for connection in gang.values():
                connection.send_bytes(answer)
    except (OSError, EOFError):
        for connection in gang.values():
            connection.close()


def _wake(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=1).close()
