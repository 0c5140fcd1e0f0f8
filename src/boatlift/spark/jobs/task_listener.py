"""The driver's door for tasks: it lets in those that prove a secret, and hands their connections over."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge

from pyspark import SparkContext

from boatlift.spark.tasks.relay_connection import RelayAddress, without_delay

Join = Callable[[int, int, Connection], None]
"""Takes a task's number, its attempt and its connection; called on a thread of its own."""

MOST_STRANGERS = 128
"""So many connections may be without a proof at once, each of which has a thread: a further one takes the place of the
oldest."""

PATIENCE = 10.0
"""So many seconds a connection may be without a proof."""

BACKLOG = 128
"""So many connections may wait until they are accepted."""


def driver_host(context: SparkContext) -> str:
    """Return the address at which executors reach this machine."""
    if str(context.master).startswith("local"):
        return "127.0.0.1"
    return str(context.getConf().get("spark.driver.host"))


@contextmanager
def open_listener(
    host: str, join: Join, *, patience: float = PATIENCE, most_strangers: int = MOST_STRANGERS
) -> Iterator[RelayAddress]:
    """Let tasks in at an address of this machine until the end of the block.

    Args:
        patience, most_strangers: See `PATIENCE` and `MOST_STRANGERS`.
    """
    secret, ended = secrets.token_bytes(32), threading.Event()
    strangers = _Strangers(most_strangers)
    with Listener((host, 0), backlog=BACKLOG) as listener:
        _, port = listener.address

        def accept() -> None:
            while not ended.is_set():
                try:
                    connection = listener.accept()
                except OSError:  # the client has gone already, or this process has too many files open for now
                    ended.wait(0.1)
                    continue
                strangers.add(connection)
                handshake = (connection, secret, strangers, join)
                threading.Thread(target=_handshake, args=handshake, name="door", daemon=True).start()

        def look() -> None:
            while not ended.wait(patience / 10):
                strangers.leave(time.monotonic() - patience)

        threads = [threading.Thread(target=each, name="door", daemon=True) for each in (accept, look)]
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
            strangers.leave(time.monotonic())


class _Strangers:
    """The connections that have proved nothing yet, the oldest first."""

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

    def pass_in(self, connection: Connection) -> bool:
        """Count a connection no longer; return whether it may stay."""
        with self._lock:
            return self._since.pop(connection, None) is not None

    def leave(self, before: float) -> None:
        """End the connections that came before a time: the thread that greets each closes it."""
        with self._lock:
            for connection in [each for each, since in self._since.items() if since <= before]:
                del self._since[connection]
                shut(connection)


def _handshake(connection: Connection, secret: bytes, strangers: _Strangers, join: Join) -> None:
    """Let a task join; a connection that does not prove the secret holds up no other."""
    try:
        deliver_challenge(connection, secret)
        answer_challenge(connection, secret)
        without_delay(connection)
        number, attempt = map(int, connection.recv_bytes().split())
    except (OSError, EOFError, AuthenticationError, ValueError):
        # It is not a task of this job, or one that has ended already.
        strangers.pass_in(connection)
        connection.close()
        return
    if strangers.pass_in(connection):
        join(number, attempt, connection)
    else:
        connection.close()


def shut(connection: Connection) -> None:
    """End a connection on both sides; closing alone would not wake a thread that reads it."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
