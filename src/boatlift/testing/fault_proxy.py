"""Proxies on loopback: one for HTTP that delays, refuses, loses and tears requests, before or after the server acts."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Self

__all__ = ["FaultProxy", "LoopbackProxy", "ProxyFault", "reset"]


class ProxyFault(StrEnum):
    """What happens to a request. `AFTER` means that the server has carried it out."""

    NONE = "none"
    REFUSED = "503"
    REFUSED_AFTER = "503 after the act"
    RESET = "reset"
    RESET_AFTER = "reset after the act"
    TORN = "torn in the middle of the answer"
    HANGS = "no answer"
    HANGS_AFTER = "no answer after the act"
    TWICE = "sent twice"


_REFUSAL = b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n"
_Message = tuple[bytes, bytes]


class LoopbackProxy:
    """Stands before a server on loopback (a context manager). A subclass serves a connection in `_serve`.

    Args:
        port: The server's.
        delay: Seconds that each request waits before the server gets it.
        acted: Called once the server has carried a request out, and its client does not know that yet.
    """

    def __init__(self, port: int, delay: float = 0.0, acted: Callable[[], None] = lambda: None) -> None:
        self.delay, self.acted = delay, acted
        self._server_port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="boatlift-proxy", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26), self._loop
        ).result()
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class FaultProxy(LoopbackProxy):
    """Asks for each HTTP request what becomes of it.

        with FaultProxy(server.port, lambda method, path: ProxyFault.RESET_AFTER) as proxy:
            … http://127.0.0.1:{proxy.port} …

    Args:
        fault: From the method and the path of a request to what becomes of it; called on the proxy's thread.
        changed: From the head and the body of an answer to what the client gets.
    """

    def __init__(
        self,
        port: int,
        fault: Callable[[str, str], ProxyFault] = lambda _method, _path: ProxyFault.NONE,
        delay: float = 0.0,
        acted: Callable[[], None] = lambda: None,
        changed: Callable[[bytes, bytes], tuple[bytes, bytes]] = lambda head, body: (head, body),
    ) -> None:
        super().__init__(port, delay, acted)
        self.fault, self.changed = fault, changed

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                request = await _message(reader)
                method, path = request[0].split(b" ", 2)[:2]
                fault = self.fault(method.decode(), path.decode())
                await asyncio.sleep(self.delay)
                if fault is ProxyFault.REFUSED:
                    writer.write(_REFUSAL)
                    continue
                if fault is ProxyFault.RESET:
                    reset(writer)
                    return
                if fault is ProxyFault.HANGS:
                    await asyncio.Event().wait()
                upstream = upstream or await asyncio.open_connection("127.0.0.1", self._server_port)
                for _ in range(2 if fault is ProxyFault.TWICE else 1):
                    upstream[1].write(b"".join(request))
                    head, body = await _message(upstream[0], method)
                self.acted()
                head, body = self.changed(head, body)
                match fault:
                    case ProxyFault.REFUSED_AFTER:
                        head, body = _REFUSAL, b""
                    case ProxyFault.HANGS_AFTER:
                        await asyncio.Event().wait()
                    case ProxyFault.RESET_AFTER | ProxyFault.TORN:
                        if fault is ProxyFault.TORN:
                            writer.write(head + body[: len(body) // 2])
                            await writer.drain()
                        reset(writer)
                        return
                writer.write(head + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass  # one of both has closed the connection, or the proxy ends
        finally:
            for each in (writer, *(upstream[1:] if upstream else ())):
                with suppress(OSError):
                    each.close()


async def _message(reader: asyncio.StreamReader, method: bytes = b"") -> _Message:
    """Read a request, or the answer to one with a method."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    status = lines[0][9:12] if method else b""
    if method == b"HEAD" or status in (b"204", b"304"):
        return head, b""
    if any(line.startswith(b"transfer-encoding: chunked") for line in lines):
        body, length = b"", -1
        while length:
            size = await reader.readuntil(b"\r\n")
            length = int(size.split(b";")[0], 16)
            body += size + await reader.readexactly(length + 2)
        return head, body
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    return head, await reader.readexactly(length)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection by RST, as a server that dies does."""
    found = writer.get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
