"""A proxy on loopback that delays, loses and tears the statements of PostgreSQL clients."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress

from boatlift.testing.fault_proxy import LoopbackProxy, ProxyFault, reset

__all__ = ["PostgresProxy"]

_ENCRYPTION = (80877103, 80877104)
"""The codes by which a client asks for TLS and for GSSAPI; the proxy has neither."""

_FOR_EVER = 1e6
"""Seconds: only a timer keeps a task that hangs from being collected."""

_DONE = (b"Z", b"G")
"""Messages that end the answer to a statement: the server is ready, or it waits for the rows of COPY."""


class PostgresProxy(LoopbackProxy):
    """Asks for each statement what becomes of it.

        with PostgresProxy(server.port, lambda sql: ProxyFault.RESET_AFTER if sql == "COMMIT" else ProxyFault.NONE):
            …

    Args:
        fault: From the text of a statement to what becomes of it; called on the proxy's thread. The faults of HTTP,
            `REFUSED`, `REFUSED_AFTER` and `TWICE`, do not exist here.
    """

    def __init__(
        self,
        port: int,
        fault: Callable[[str], ProxyFault] = lambda _statement: ProxyFault.NONE,
        delay: float = 0.0,
        acted: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(port, delay, acted)
        self.fault = fault

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = None
        try:
            startup = await _message(reader, typed=False)
            while struct.unpack("!i", startup[4:8])[0] in _ENCRYPTION:
                writer.write(b"N")
                startup = await _message(reader, typed=False)
            upstream = await asyncio.open_connection("127.0.0.1", self._server_port)
            upstream[1].write(startup)
            statement = _Statement()
            answers = asyncio.create_task(self._answer(upstream[0], writer, statement))
            try:
                await self._ask(reader, writer, upstream[1], statement)
            finally:
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass  # one of both has closed the connection, or the proxy ends
        finally:
            for each in (writer, *(upstream[1:] if upstream else ())):
                with suppress(OSError):
                    each.close()

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
        statement: _Statement,
    ) -> None:
        while True:
            message = await _message(reader, typed=True)
            if message[:1] in b"QP":
                text = message[5:].split(b"\0")[0 if message[:1] == b"Q" else 1].decode()
                await asyncio.sleep(self.delay)
                fault = self.fault(text)
                if fault is ProxyFault.RESET:
                    reset(writer)
                    return
                if fault is ProxyFault.HANGS:
                    await asyncio.sleep(_FOR_EVER)
                statement.fault = fault
            server.write(message)
            await server.drain()

    async def _answer(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter, statement: _Statement) -> None:
        try:
            while True:
                message = await _message(server, typed=True)
                if statement.fault is ProxyFault.NONE:
                    writer.write(message)
                    await writer.drain()
                    continue
                if statement.fault is ProxyFault.TORN:
                    writer.write(message[: len(message) // 2])
                    await writer.drain()
                while message[:1] not in _DONE:
                    message = await _message(server, typed=True)
                self.acted()
                if statement.fault is ProxyFault.HANGS_AFTER:
                    await asyncio.sleep(_FOR_EVER)
                reset(writer)
                return
        except (asyncio.IncompleteReadError, OSError):
            writer.close()  # the server has ended the connection


class _Statement:
    """What becomes of the statement whose answer comes next."""

    fault = ProxyFault.NONE


async def _message(reader: asyncio.StreamReader, *, typed: bool) -> bytes:
    """Read a message: a byte with its type, unless it is the first of a connection, its length, and its body."""
    kind = await reader.readexactly(1) if typed else b""
    size = await reader.readexactly(4)
    return kind + size + await reader.readexactly(struct.unpack("!i", size)[0] - 4)
