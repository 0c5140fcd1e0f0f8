"""The driver's door for tasks: it lets in those that prove a secret, and hands their connections over."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge

from pyspark import SparkContext

from boatlift.spark.tasks.hub_connection import HubAddress, without_delay

__all__ = ["driver_host", "open_door", "shut"]

Join = Callable[[int, int, Connection], None]
"""Takes a task's number, its attempt and its connection; called on a thread of its own."""


def driver_host(context: SparkContext) -> str:
    """Return the address at which executors reach this machine."""
    if str(context.master).startswith("local"):
        return "127.0.0.1"
    return str(context.getConf().get("spark.driver.host"))


@contextmanager
def open_door(host: str, backlog: int, join: Join) -> Iterator[HubAddress]:
    """Let tasks in at an address of this machine until the end of the block."""
    secret, ended = secrets.token_bytes(32), threading.Event()
    with Listener((host, 0), backlog=backlog) as listener:
        _, port = listener.address

        def accept() -> None:
            while True:
                connection = listener.accept()
                if ended.is_set():
                    connection.close()
                    return
                threading.Thread(target=_greet, args=(connection, secret, join), name="door", daemon=True).start()

        accepting = threading.Thread(target=accept, name="door", daemon=True)
        accepting.start()
        try:
            yield HubAddress(host, int(port), secret)
        finally:
            ended.set()
            with suppress(OSError):  # wakes `accept`, which closing a listener does not
                socket.create_connection((host, int(port)), timeout=1).close()
            accepting.join()


def _greet(connection: Connection, secret: bytes, join: Join) -> None:
    """Let a task join; a connection that does not prove the secret, or says nothing, holds up no other."""
    try:
        deliver_challenge(connection, secret)
        answer_challenge(connection, secret)
        without_delay(connection)
        number, attempt = map(int, connection.recv_bytes().split())
    except (OSError, EOFError, AuthenticationError, ValueError):
        connection.close()  # not a task of this job, or one that has ended already
        return
    join(number, attempt, connection)


def shut(connection: Connection) -> None:
    """End a connection on both sides; closing alone would not wake a thread that reads it."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
