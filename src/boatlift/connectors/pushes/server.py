"""Pushing over HTTP: `POST /SOURCE` with rows as JSON, `GET /SOURCE/keys/KEY`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from concurrent.futures import Future
from functools import partial
from typing import Protocol

import msgspec
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router

from boatlift.dataflow.pushes import Receipt
from boatlift.errors import BoatliftError, FencedError, InternalError, InvalidError, UnavailableError

__all__ = ["Server"]

logger = logging.getLogger(__name__)

LARGEST_BODY, MOST_OBJECTS, PARSE_HERE = 16 << 20, 250_000, 1 << 16
"""Bytes of a body; objects in it, since a row can be as small as two bytes; bytes that are parsed between two others."""

MOST_CONNECTIONS = 1000

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
        self._source = source
        try:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self._socket = socket.create_server(address, family=family, backlog=1024)
        except OSError as error:
            host, port = address
            raise UnavailableError(
                "LISTEN_FAILED",
                f"{source} cannot listen at {host}:{port} ({os.strerror(error.errno or 0)}): give another address, or end who listens there",
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
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=2,
        )
        self._server = _Announcing(config)
        run = partial(self._server.run, sockets=[self._socket])
        self._thread = threading.Thread(target=run, name=f"boatlift-http-{source}", daemon=True)

    def serve(self) -> None:
        """Begins to answer.

        Raises:
            UnavailableError: `[LISTEN_FAILED]`.
        """
        self._thread.start()
        self._server.settled.wait()
        self.check()
        logger.info("%s takes rows at http://%s:%s/%s", self._source, *self.address, self._source)

    def check(self) -> None:
        """Makes sure that it answers.

        Raises:
            UnavailableError: `[LISTEN_FAILED]`.
        """
        cause = self._server.failure
        if cause is not None or not self._server.started:
            raise UnavailableError(
                "LISTEN_FAILED", f"{self._source} cannot answer HTTP ({cause!r}): mend that, then run again"
            ) from cause

    def close(self) -> None:
        """Ends, once what was answered is on its way."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()

    async def _push(self, request: Request) -> Response:
        try:
            body, key = await _body_of(request), _key_of(request)
            if len(body) > PARSE_HERE:  # else everybody would wait for it
                answer = await asyncio.to_thread(self._door.put_json, body, key)
            else:
                answer = self._door.put_json(body, key)
            receipt: Receipt = await asyncio.wrap_future(answer)
            return _told(200, receipt)
        except ClientDisconnect:
            return _told(400, {"condition": "BAD_ROW", "message": "the body ends too early"})  # nobody hears it
        except Exception as error:  # noqa: BLE001 - told to who asks
            return _refused(error)

    async def _pushed(self, request: Request) -> Response:
        try:
            found = self._door.pushed(request.path_params["key"])
        except Exception as error:  # noqa: BLE001 - told to who asks
            return _refused(error)
        return _told(404, {"recorded": False}) if found is None else _told(200, found)


class _Announcing(uvicorn.Server):
    """A server that says when it has begun to answer, or has failed to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.settled = threading.Event()
        self.failure: BaseException | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.settled.set()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        except BaseException as error:
            self.failure = error
            logger.exception("the HTTP server failed")
        finally:
            self.settled.set()


async def _body_of(request: Request) -> bytes:
    """Reads a body, but no more of it than is taken.

    Raises:
        InvalidError: `[PUSH_TOO_LARGE]`.
    """
    body, objects = bytearray(), 0
    async for part in request.stream():
        body += part
        objects += part.count(b"{")
        if len(body) > LARGEST_BODY or objects > MOST_OBJECTS:
            raise InvalidError(
                "PUSH_TOO_LARGE",
                f"a push is at most {LARGEST_BODY:,} bytes and {MOST_OBJECTS:,} objects: push them in parts",
            )
    return bytes(body)


def _key_of(request: Request) -> str | None:
    """Gives the key in a request's headers, which is UTF-8, as in an address.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    told = request.headers.get(KEY_HEADER)
    try:
        return None if told is None else told.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise InvalidError("BAD_OPTION", f"{KEY_HEADER} {told!r} is not UTF-8: correct it") from error


def _told(status: int, what: object) -> Response:
    return Response(msgspec.json.encode(what), status, media_type="application/json")


def _refused(error: Exception) -> Response:
    if not isinstance(error, BoatliftError):
        logger.error("a push failed", exc_info=error)
        error = InternalError("INTERNAL", f"{type(error).__name__}: see what the dataflow's process logs")
    status = _STATUS.get(error.condition, 503 if isinstance(error, UnavailableError | FencedError) else 500)
    response = _told(status, {"condition": error.condition, "message": error.message})
    if status == 503:
        response.headers["retry-after"] = "1"
    return response
