"""A task's connection to a relay of the driver, which exchanges messages with running tasks."""

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
    """The address of a relay.

    Attributes:
        secret: Tasks prove that they know it.
    """

    host: str
    port: int
    secret: bytes


@contextmanager
def connected(address: RelayAddress, number: int, attempt: int) -> Iterator[Connection]:
    """Connect to a relay for as long as a task runs.

    Args:
        number: The task's number at the relay.
        attempt: Spark's application-wide number of this task's attempt.

    Raises:
        UnavailableError: `[TASK_LOST]` the relay does not answer.
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
    """Send short messages at once, even if an earlier one is not acknowledged, which takes up to 40 ms."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def lost(error: BaseException) -> UnavailableError:
    """Return the error of a task whose relay is gone."""
    return UnavailableError("TASK_LOST", f"another task of this step has ended, or its driver has: {error!r}")
