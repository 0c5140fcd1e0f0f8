"""Tasks of one job that run at the same time: their slots, the listener that they connect to, and their barrier.

The tasks' side is `tasks/barrier.py`.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import ClassVar

import msgspec
from pyspark import SparkContext

from boatlift.errors import UnavailableError
from boatlift.tasks.barrier import RelayAddress, without_delay

_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def slot_count(context: SparkContext) -> int:
    """Return how many tasks of one job can certainly run at the same time and connect to the driver.

    It is 1 if executors come and go, or if Spark encrypts its network traffic: the task listener does not encrypt.
    """
    java, conf = context._jsc.sc(), context.getConf()
    encrypted = not str(conf.get("spark.master")).startswith("local") and any(
        conf.get(each) == "true" for each in _ENCRYPTED
    )
    if encrypted or conf.get("spark.dynamicAllocation.enabled") == "true":
        return 1
    return max(1, int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile())))


class Slots:
    """The slots of one context that long-running jobs occupy.

    Laws:
        * Each holder leaves at least `left` slots free.
        * While a barrier job needs all slots, no long-running job begins, and those that ran have ended.
    """

    _of: ClassVar[dict[str, Slots]] = {}
    _making = threading.Lock()

    @classmethod
    def of(cls, context: SparkContext) -> Slots:
        """Return the slots of a context."""
        with cls._making:
            return cls._of.setdefault(context.applicationId, cls())

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: dict[object, Callable[[], None]] = {}
        self._needed_by = 0

    def take(self, slots: int, left: int, holder: object, end: Callable[[], None]) -> bool:
        """Take a slot if more than `left` stay free; return whether it was taken.

        Args:
            left: The number of slots to leave to other jobs.
            end: Makes the holder's job end soon; returns at once.
        """
        with self._changed:
            if self._needed_by or len(self._holders) + left >= slots:
                return False
            self._holders[holder] = end
            return True

    def give_back(self, holder: object) -> None:
        with self._changed:
            self._holders.pop(holder, None)
            self._changed.notify_all()

    @contextmanager
    def all_needed(self) -> Iterator[None]:
        """Keep all slots free until the end of the block, for a job whose tasks all run at the same time."""
        with self._changed:
            self._needed_by += 1
            for end in self._holders.values():
                end()
            self._changed.wait_for(lambda: not self._holders)
        try:
            yield
        finally:
            with self._changed:
                self._needed_by -= 1


SLOT_TIMEOUT = 5.0
"""Seconds for which barrier tasks wait for slots that were lost."""


def barrier_size(context: SparkContext) -> int:
    """Return the number of barrier tasks of a job: a power of two; 1 if executors come and go."""
    return 1 << (slot_count(context).bit_length() - 1)


class BarrierTasks:
    """The barrier tasks of one job, on the driver."""

    def __init__(self, tasks: int, context: SparkContext) -> None:
        self.tasks, self._context = tasks, context
        self._tag = f"barrier-{uuid.uuid4().hex}"
        self._barrier = Barrier(tasks)
        self._ended = threading.Event()
        self._cancelled = False

    @contextmanager
    def running(self) -> Iterator[RelayAddress]:
        """Answer the tasks of the job that this thread runs in the block.

        Spark waits endlessly for the slots of barrier tasks. So the job is cancelled if its slots were lost.

        Raises:
            UnavailableError: `[TASK_LOST]` the tasks cannot run at the same time any more.
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
            if self._barrier.waits_for() > SLOT_TIMEOUT and barrier_size(self._context) < self.tasks:
                self._cancelled = True
                self._context.cancelJobsWithTag(self._tag)
                return


class Barrier:
    """Relays the messages of barrier tasks: each task gets the messages of all.

    A task connects with its number and its attempt. Spark numbers the attempts of tasks that begin together
    consecutively. A task whose attempt number is further away belongs to another attempt of the job.
    """

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._lock = threading.Lock()
        self._there: dict[int, tuple[int, Connection]] = {}
        self._since: float | None = time.monotonic()
        self._ended = False

    def waits_for(self) -> float:
        """Return for how many seconds some task has been missing."""
        with self._lock:
            return 0.0 if self._since is None else time.monotonic() - self._since

    @contextmanager
    def answering(self, host: str) -> Iterator[RelayAddress]:
        """Let tasks connect to an address of this machine, and relay their messages."""
        with open_listener(host, self._join, most_unproven=max(MOST_UNPROVEN, 2 * self._tasks)) as address:
            try:
                yield address
            finally:
                with self._lock:
                    self._ended = True
                    self._disconnect()

    def _join(self, number: int, attempt: int, connection: Connection) -> None:
        with self._lock:
            others = [each for each, _ in self._there.values()]
            if any(each >= attempt + self._tasks for each in others) or self._ended:
                connection.close()  # its attempt was given up
                return
            if number in self._there or any(each <= attempt - self._tasks for each in others):
                self._disconnect()
            self._there[number] = attempt, connection
            if len(self._there) < self._tasks:
                return
            self._since = None
            barrier = [self._there[each][1] for each in range(self._tasks)]
        threading.Thread(target=self._relay, args=(barrier,), name="barrier", daemon=True).start()

    def _disconnect(self) -> None:
        """Disconnect all tasks: their next exchange fails."""
        for _, connection in self._there.values():
            shut(connection)
            if self._since is not None:  # else the thread that reads it closes it
                connection.close()
        self._there = {}
        self._since = time.monotonic()

    def _relay(self, barrier: Sequence[Connection]) -> None:
        """Relay messages until a task leaves; then disconnect the others."""
        try:
            while True:
                messages = [msgspec.Raw(each.recv_bytes()) for each in barrier]
                answer = msgspec.msgpack.encode(messages)
                for each in barrier:
                    each.send_bytes(answer)
        except (OSError, EOFError):
            with self._lock:
                if any(connection in barrier for _, connection in self._there.values()):
                    self._disconnect()
        finally:
            for each in barrier:
                each.close()


Join = Callable[[int, int, Connection], None]
"""Takes a task's number, its attempt and its connection; runs on a thread of its own."""

MOST_UNPROVEN = 128
"""The number of connections that have not proved the secret, one thread each; a further one replaces the oldest."""

HANDSHAKE_TIMEOUT = 10.0
"""Seconds in which a connection has to prove the secret."""

BACKLOG = 128
"""The number of connections that wait to be accepted."""


def driver_host(context: SparkContext) -> str:
    """Return the address at which executors reach this machine."""
    if str(context.master).startswith("local"):
        return "127.0.0.1"
    return str(context.getConf().get("spark.driver.host"))


@contextmanager
def open_listener(
    host: str, join: Join, *, timeout: float = HANDSHAKE_TIMEOUT, most_unproven: int = MOST_UNPROVEN
) -> Iterator[RelayAddress]:
    """Accept the tasks that prove the secret, at an address of this machine, until the end of the block."""
    secret, ended = secrets.token_bytes(32), threading.Event()
    unproven = _Unproven(most_unproven)
    with Listener((host, 0), backlog=BACKLOG) as listener:
        _, port = listener.address

        def accept() -> None:
            while not ended.is_set():
                try:
                    connection = listener.accept()
                except OSError:  # the client has left, or this process has too many files open for now
                    ended.wait(0.1)
                    continue
                unproven.add(connection)
                handshake = (connection, secret, unproven, join)
                threading.Thread(target=_handshake, args=handshake, name="task-listener", daemon=True).start()

        def expire() -> None:
            while not ended.wait(timeout / 10):
                unproven.end(time.monotonic() - timeout)

        threads = [threading.Thread(target=each, name="task-listener", daemon=True) for each in (accept, expire)]
        for thread in threads:
            thread.start()
        try:
            yield RelayAddress(host, int(port), secret)
        finally:
            ended.set()
            with suppress(OSError):  # wakes `accept`, which closing a listener does not
                socket.create_connection((host, int(port)), timeout=1).close()
            for thread in threads:
                thread.join()
            unproven.end(time.monotonic())


class _Unproven:
    """The connections that have not proved the secret yet, the oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._since: dict[Connection, float] = {}

    def add(self, connection: Connection) -> None:
        with self._lock:
            if len(self._since) >= self._most:
                oldest = next(iter(self._since))
                del self._since[oldest]
                shut(oldest)
            self._since[connection] = time.monotonic()

    def proved(self, connection: Connection) -> bool:
        """Remove a connection; return whether it was still there."""
        with self._lock:
            return self._since.pop(connection, None) is not None

    def end(self, before: float) -> None:
        """End the connections that were accepted before a time; the thread of each handshake closes it."""
        with self._lock:
            for connection in [each for each, since in self._since.items() if since <= before]:
                del self._since[connection]
                shut(connection)


def _handshake(connection: Connection, secret: bytes, unproven: _Unproven, join: Join) -> None:
    try:
        deliver_challenge(connection, secret)
        answer_challenge(connection, secret)
        without_delay(connection)
        number, attempt = map(int, connection.recv_bytes().split())
    except (OSError, EOFError, AuthenticationError, ValueError):
        # The client is no task of this job, or its task has ended.
        unproven.proved(connection)
        connection.close()
        return
    if unproven.proved(connection):
        join(number, attempt, connection)
    else:
        connection.close()


def shut(connection: Connection) -> None:
    """End a connection on both sides; closing alone would not wake a thread that reads it."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
