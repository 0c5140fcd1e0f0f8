"""A proxy on loopback that delays, loses and tears the statements of PostgreSQL clients."""

from __future__ import annotations

import asyncio
import struct

from boatlift.testing.statement_proxy import StatementProxy

__all__ = ["PostgresProxy"]

_ENCRYPTION = (80877103, 80877104)
"""The codes by which a client asks for TLS and for GSSAPI; the proxy has neither."""

_DONE = (b"Z", b"G")
"""Messages that end the answer to a statement: the server is ready, or it waits for the rows of COPY."""


class PostgresProxy(StatementProxy):
    """Asks for each statement what becomes of it.

        with PostgresProxy(server.port, lambda sql: ProxyFault.RESET_AFTER if sql == "COMMIT" else ProxyFault.NONE):
            …

    Args:
        fault: From the text of a statement to what becomes of it; called on the proxy's thread. The faults of HTTP,
            `REFUSED`, `REFUSED_AFTER` and `TWICE`, do not exist here.
    """

    async def _first(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        startup = await _rest(reader)
        while struct.unpack("!i", startup[4:8])[0] in _ENCRYPTION:
            writer.write(b"N")
            startup = await _rest(reader)
        return startup

    async def _message(self, reader: asyncio.StreamReader) -> bytes:
        return await reader.readexactly(1) + await _rest(reader)

    def _statement_in(self, message: bytes) -> str | None:
        if message[:1] not in b"QP":
            return None
        return message[5:].split(b"\0")[0 if message[:1] == b"Q" else 1].decode()

    def _ends(self, message: bytes, before: list[bytes]) -> bool:  # noqa: ARG002
        return message[:1] in _DONE


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """Read a message without the byte of its type: its length, and its body."""
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack("!i", size)[0] - 4)
