"""The bodies of pushes: how large each may be, and how large all together."""

from __future__ import annotations

from starlette.requests import Request

from boatlift.connectors.push.limits import Limits
from boatlift.errors import InvalidError, UnavailableError


class Bodies:
    """Reads bodies, and counts how many bytes of them are in memory.

    Args:
        limits: See `Limits`.
    """

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
