"""The bounds of a push server, so that no client keeps the others out; and bodies, read within these bounds."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.errors import InvalidError, UnavailableError

if TYPE_CHECKING:
    from starlette.requests import Request

_CONNECTIONS = 1000


def most_connections() -> int:
    """Return how many connections to allow: the store and Spark need file descriptors, too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(_CONNECTIONS, soft // 2))


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a push server.

    Attributes:
        connections: Connections at once. A further one replaces the connection that has been silent longest, if the
            client of that connection owes a request.
        leaving: Refused connections that stay open for a moment, so that their clients can read why.
        head_seconds: How long a request's line and headers may take to come.
        body_seconds: How long the next bytes of a body may take to come, and how far a body may lag behind `body_rate`.
        body_rate: Bytes a second of the slowest client.
        idle_seconds: How long a connection is kept after an answer.
        write_seconds: How long a client may leave answers unread.
        linger_seconds: How long a refused client may take to read why.
        head_bytes: Bytes of a request's line and headers.
        headers: Headers of a request.
        pipelined: Requests of one connection that wait behind one that is not answered.
        body_bytes: Bytes of a body.
        objects: Objects in a body, since a row can be as small as two bytes.
        small_body: A body up to so many bytes is read whatever else is under way.
        bodies_bytes: Bytes of all bodies under way, besides the small ones.
    """

    connections: int = most_connections()
    leaving: int = 64
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    body_rate: int = 4096
    idle_seconds: float = 5.0
    write_seconds: float = 10.0
    linger_seconds: float = 2.0
    head_bytes: int = 32 << 10
    headers: int = 100
    pipelined: int = 16
    body_bytes: int = 16 << 20
    objects: int = 250_000
    small_body: int = 64 << 10
    bodies_bytes: int = 128 << 20


class Bodies:
    """Reads bodies, and counts how many bytes of them are in memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way = 0

    async def read(self, request: Request) -> bytes:
        """Read a body; its bytes count until `drop`.

        Raises:
            InvalidError: `[PUSH_TOO_LARGE]`.
            UnavailableError: `[SERVER_BUSY]` other bodies fill the memory for bodies.
        """
        declared = request.headers.get("content-length", "0")
        self._check(int(declared) if declared.isdecimal() else 0, 0, 0)
        body, objects = bytearray(), 0
        try:
            async for part in request.stream():
                objects += part.count(b"{")
                self._check(len(part), len(body), objects)
                body += part
                self._under_way += len(part)
        except BaseException:
            self.drop(body)
            raise
        return bytes(body)

    def drop(self, body: bytes | bytearray) -> None:
        self._under_way -= len(body)

    def _check(self, more: int, size: int, objects: int) -> None:
        limits = self._limits
        if size + more > limits.body_bytes or objects > limits.objects:
            raise InvalidError(
                "PUSH_TOO_LARGE",
                f"a push is at most {limits.body_bytes:,} bytes and {limits.objects:,} objects: push them in parts",
            )
        if size + more > limits.small_body and self._under_way + more > limits.bodies_bytes:
            raise UnavailableError(
                "SERVER_BUSY",
                f"pushes under way have {self._under_way:,} of {limits.bodies_bytes:,} bytes: push again in a moment, "
                "with the same key",
            )
