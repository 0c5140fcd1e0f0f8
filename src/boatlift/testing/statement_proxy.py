"""What the proxies before databases have in common: they delay, lose and tear statements of clients on loopback."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress

from boatlift.testing.fault_proxy import LoopbackProxy, ProxyFault, reset

__all__ = ["StatementProxy"]

_FOR_EVER = 1e6
"""Seconds: only a timer keeps a task that hangs from being collected."""


class StatementProxy(LoopbackProxy):
    """Asks for each statement what becomes of it. A subclass reads the messages of a protocol.

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

    async def _first(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:  # noqa: ARG002
        """Return what the client says before the server; nothing if the server speaks first."""
        return b""

    @abstractmethod
    async def _message(self, reader: asyncio.StreamReader) -> bytes:
        """Read a message of either side."""

    @abstractmethod
    def _statement_in(self, message: bytes) -> str | None:
        """Return the text of the statement that a client's message has."""

    @abstractmethod
    def _ends(self, message: bytes, before: list[bytes]) -> bool:
        """Return whether a message of the server is the last one of the answer to a statement."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = None
        try:
            first = await self._first(reader, writer)
            upstream = await asyncio.open_connection("127.0.0.1", self._server_port)
            upstream[1].write(first)
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
            message = await self._message(reader)
            if (text := self._statement_in(message)) is not None:
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
                message = await self._message(server)
                if statement.fault is ProxyFault.NONE:
                    writer.write(message)
                    await writer.drain()
                    continue
                if statement.fault is ProxyFault.TORN:
                    writer.write(message[: len(message) // 2])
                    await writer.drain()
                before: list[bytes] = []
                while not self._ends(message, before):
                    before.append(message)
                    message = await self._message(server)
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
