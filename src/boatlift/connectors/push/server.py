"""Pushing over HTTP: `POST /SOURCE` with rows as JSON, `GET /SOURCE/keys/KEY`."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from concurrent.futures import Future
from functools import partial
from typing import Protocol

import msgspec
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from boatlift.dataflow.pushes import Receipt
from boatlift.errors import BoatliftError, FencedError, UnavailableError

__all__ = ["Server"]

logger = logging.getLogger(__name__)

KEY_HEADER = "idempotency-key"

_STATUS = {"BAD_ROW": 400, "BAD_OPTION": 400, "PUSH_TOO_LARGE": 413, "KEY_REUSED": 422}


class Door(Protocol):
    """What the server needs of a source."""

    def put_json(self, body: bytes, key: str | None) -> Future[Receipt]:
        """Takes rows."""

    def pushed(self, key: str) -> Receipt | None:
        """Tells what was recorded with a key."""


class Server:
    """Serves one source, on a thread of its own, until it is closed.

    Args:
        source: Its name.
        address: Host and port; port 0 for one that is free.
        door: The source.

    Attributes:
        address: Where it listens.

    Raises:
        UnavailableError: `[LISTEN_FAILED]`.
    """

    def __init__(self, source: str, address: tuple[str, int], door: Door) -> None:
        self._door = door
        try:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self._socket = socket.create_server(address, family=family, backlog=1024)
        except OSError as error:
            host, port = address
            raise UnavailableError(
                "LISTEN_FAILED",
                f"{source} cannot listen at {host}:{port} ({error.strerror}): give another address, or end who listens there",
            ) from error
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        routes = [
            Route(f"/{source}", self._push, methods=["POST"]),
            Route(f"/{source}/keys/{{key:path}}", self._pushed, methods=["GET"]),
        ]
        config = uvicorn.Config(
            Router(routes),
            log_config=None,
            access_log=False,
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)
        run = partial(self._server.run, sockets=[self._socket])
        self._thread = threading.Thread(target=run, name=f"boatlift-http-{source}", daemon=True)
        self._thread.start()
        logger.info("%s takes rows at http://%s:%s/%s", source, *self.address, source)

    def close(self) -> None:
        """Ends, once what was answered is on its way."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    async def _push(self, request: Request) -> Response:
        try:
            answer = self._door.put_json(await request.body(), request.headers.get(KEY_HEADER))
            receipt: Receipt = await asyncio.wrap_future(answer)
            return _told(200, receipt)
        except BoatliftError as error:
            return _refused(error)

    async def _pushed(self, request: Request) -> Response:
        try:
            found = self._door.pushed(request.path_params["key"])
        except BoatliftError as error:
            return _refused(error)
        return _told(404, {"recorded": False}) if found is None else _told(200, found)


def _told(status: int, what: object) -> Response:
    return Response(msgspec.json.encode(what), status, media_type="application/json")


def _refused(error: BoatliftError) -> Response:
    status = _STATUS.get(error.condition, 503 if isinstance(error, UnavailableError | FencedError) else 500)
    response = _told(status, {"condition": error.condition, "message": error.message})
    if status == 503:
        response.headers["retry-after"] = "1"
    return response
