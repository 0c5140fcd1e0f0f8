"""A server of an application of ASGI, on a thread of its own."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import msgspec
import uvicorn
from starlette.responses import Response

from boatlift.errors import UnavailableError
from boatlift.http.admission import url_of
from boatlift.http.connections import Connection, Connections, Limits, refusal_of

logger = logging.getLogger(__name__)

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Application = Callable[[AsgiMessage, Receive, Send], Awaitable[None]]


def listening(who: str, address: tuple[str, int]) -> socket.socket:
    """Return a socket that listens at an address; port 0 takes a free one.

    Args:
        who: Listens there, in words.

    Raises:
        UnavailableError: `[LISTEN_FAILED]`.
    """
    host, port = address
    try:
        return socket.create_server(address, family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024)
    except OSError as error:
        raise UnavailableError(
            "LISTEN_FAILED",
            f"{who} cannot listen at {host}:{port} ({os.strerror(error.errno or 0)}): give another address, or "
            "end the process that listens there",
        ) from error


class HttpServer:
    """Serves an application until `close`.

    Args:
        name: Of what it serves, for errors and its thread.
        listener: Where it listens; closed with the server.
        clock: Returns the seconds that limits count.

    Attributes:
        address: Host and port.
    """

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        application: Application,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._socket = name, listener
        self.address: tuple[str, int] = listener.getsockname()[:2]
        connections = Connections(limits, clock)
        http: Any = partial(Connection, connections)  # uvicorn calls it, as it would a class
        config = uvicorn.Config(
            application,
            http=http,
            interface="asgi3",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        self._server = _Announcing(config, connections)
        run = partial(self._server.run, sockets=[self._socket])
        self._thread = threading.Thread(target=run, name=f"boatlift-http-{name}", daemon=True)

    def serve(self) -> None:
        """Begin to answer, unless it does already.

        Raises:
            UnavailableError: as `check`.
        """
        if self._thread.ident is None:
            self._thread.start()
            self._server.settled.wait()
        self.check()

    @property
    def url(self) -> str:
        return url_of(self.address)

    def check(self) -> None:
        """Refuse a server that does not answer.

        Raises:
            UnavailableError: `[LISTEN_FAILED]`.
        """
        cause = self._server.failure
        if cause is not None or not self._server.started:
            raise UnavailableError(
                "LISTEN_FAILED", f"{self._name} cannot answer HTTP ({cause!r}): mend that, then run again"
            ) from cause

    def close(self) -> None:
        """Stop, once all answers are on their way."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()


class _Announcing(uvicorn.Server):
    """A server that signals when it answers or has failed, and checks its connections at each tick."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections
        self.settled = threading.Event()
        self.failure: BaseException | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.settled.set()

    async def on_tick(self, counter: int) -> bool:
        self._connections.look()
        return await super().on_tick(counter)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        except BaseException as error:
            self.failure = error
            logger.exception("the HTTP server failed")
        finally:
            self.settled.set()


class WholeBody:
    """Reads the rest of a body before the answer: most clients read no answer before they have sent the body.

    Args:
        scope: Of the request. A client that waits for permission to send its body may get an answer instead.
    """

    def __init__(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._more = not any(name == b"expect" for name, _ in scope["headers"])

    async def receive(self) -> AsgiMessage:
        message = await self._receive()
        self._more = message.get("more_body", False)
        return message

    async def drain(self) -> None:
        while self._more:
            await self.receive()

    async def send(self, message: AsgiMessage) -> None:
        await self.drain()
        await self._send(message)


def answered(status: int, content: object) -> Response:
    """Return an answer with JSON."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def refused(error: Exception) -> Response:
    """Return the answer for an error."""
    refusal = refusal_of(error)
    return Response(refusal.body, refusal.status, refusal.headers)
