"""A task's connection to a relay of the driver, which hands out messages while the task runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection

import msgspec

from boatlift.errors import UnavailableError


class RelayAddress(msgspec.Struct, frozen=True, array_like=True):
    """Where a hub is.

    Attributes:
        secret: The tasks prove that they know it.
    """

    host: str
    port: int
    secret: bytes


@contextmanager
def connected(address: RelayAddress, number: int, attempt: int) -> Iterator[Connection]:
    """Join a hub for as long as a task runs.

    Args:
        number: The task's number, or the number of its part.
        attempt: The attempt of this task, as Spark numbers those of all tasks.

    Raises:
        UnavailableError: `[TASK_LOST]` the hub does not answer.
    """
    try:
        connection = Client((address.host, address.port), authkey=address.secret)
    except (OSError, EOFError, AuthenticationError) as error:
        raise lost(error) from error
    try:
        without_delay(connection)
        connection.send_bytes(f"{number} {attempt}".encode())
        yield connection
    finally:
        connection.close()


def without_delay(connection: Connection) -> None:
    """Let short messages leave at once, also while an earlier one is not acknowledged: that takes up to 40 ms."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def lost(error: BaseException) -> UnavailableError:
    """Return the error of a task whose hub is gone."""
    return UnavailableError("TASK_LOST", f"another task of this step has ended, or its driver has: {error!r}")
