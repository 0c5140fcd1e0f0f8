"""A push server whose rows are recorded in a folder, and clients that write bytes to it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from boatlift.connectors.push.server import Server
from boatlift.http.connections import Connection, Limits
from support.push.source import Source
from support.waiting import until

__all__ = ["Answer", "Client", "Clock", "Served", "request", "serving"]


class Clock:
    """A clock that a test moves, so that no bound passes because the machine is busy."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Answer(NamedTuple):
    """What a server answered; `closed` if that was nothing."""

    status: int
    headers: dict[str, str]
    told: Any


class Client:
    """A connection, of which the test writes every byte."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self._read = self.socket.makefile("rb")

    def send(self, what: bytes) -> None:
        self.socket.sendall(what)

    def answer(self) -> Answer | None:
        """Reads an answer; None if the server ended the connection without one."""
        try:
            line = self._read.readline()
        except ConnectionError:
            return None
        if not line:
            return None
        headers = {}
        while header := self._read.readline().strip():
            name, _, value = header.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = self._read.read(int(headers.get("content-length", 0)))
        return Answer(int(line.split()[1]), headers, json.loads(body) if body else None)

    def ended(self) -> bool:
        """Waits until the server ends the connection; whether it did so without saying anything more."""
        try:
            return self._read.read() == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._read.close()
        self.socket.close()


class Served(NamedTuple):
    """A server, the source behind it, and the clock of its limits."""

    server: Server
    source: Source
    clock: Callable[[], float]

    def let_pass(self, seconds: float) -> None:
        """Move the clock and look after the connections, between two things that the server does."""
        clock = self.clock
        assert isinstance(clock, Clock)

        async def passes() -> None:
            clock.now += seconds
            self.server._server._connections.look()

        loop = self.server._server.servers[0].get_loop()
        asyncio.run_coroutine_threadsafe(passes(), loop).result(60)

    @property
    def connections(self) -> list[Any]:
        """Those that are open."""
        return list(self.server._server.server_state.connections)

    def connection(self) -> Connection:
        """Wait for the only connection; return it as the server has it."""
        (only,) = until(lambda: self.connections)
        assert isinstance(only, Connection)
        return only

    def client(self) -> Client:
        return Client(self.server.address)

    def ask(self, what: bytes) -> Answer | None:
        client = self.client()
        try:
            client.send(what)
            return client.answer()
        finally:
            client.close()

    def push(self, body: bytes = b'{"id": 1}', *headers: str) -> Answer | None:
        return self.ask(request(self.server, body, *headers))

    @property
    def recorded(self) -> int:
        """How many rows were recorded."""
        position = self.source.next(self.source.start())
        return 0 if position is None else int(position["rows"])


def request(server: Server, body: bytes = b'{"id": 1}', *headers: str, host: str | None = None) -> bytes:
    """Return a push as HTTP has it."""
    own = f"localhost:{server.address[1]}" if host is None else host
    lines = [
        "POST /orders HTTP/1.1",
        *([f"Host: {own}"] if own else []),
        *headers,
        f"Content-Length: {len(body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1") + body


@contextmanager
def serving(
    folder: Path,
    listen: str = "127.0.0.1",
    *,
    token: Any = None,
    source: Any = None,
    clock: Callable[[], float] | None = None,
    **limits: Any,
) -> Iterator[Served]:
    """Serves a source under some limits, whose time stands still unless a clock is given."""
    made, clock = Source(folder, **(source or {})), clock or Clock()
    server = Server("orders", (listen, 0), made, token, Limits(**limits), clock)
    server.serve()
    try:
        yield Served(server, made, clock)
    finally:
        made._recorder.close()
        server.close()
        made.close()
