"""Pushing over HTTP: `POST /SOURCE` with rows as JSON, `GET /SOURCE/keys/KEY`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import msgspec
import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router

from boatlift.connectors.push.admission import Admission, PushToken, is_loopback, url_of
from boatlift.connectors.push.answers import Answers
from boatlift.connectors.push.connections import Connection, Connections, Limits, refusal_of
from boatlift.dataflow.contracts import Receipt
from boatlift.errors import InvalidError, UnavailableError

logger = logging.getLogger(__name__)

KEY_HEADER = "idempotency-key"

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class TakesPushes(Protocol):
    """The part of a source that the server needs."""

    def put_json(self, body: bytes, key: str | None) -> Future[Receipt]: ...

    def pushed(self, key: str) -> Receipt | None: ...


class Server:
    """Serves one source, on a thread of its own, until `close`.

    Args:
        address: Host and port; port 0 for one that is free.
        clock: Returns the seconds that limits count.

    Attributes:
        owner: The URL of the process that takes the rows, to which clients are redirected; empty if none does yet;
            None: this one takes them.
    """

    def __init__(
        self,
        source: str,
        address: tuple[str, int],
        pushes: TakesPushes,
        token: PushToken | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        answers: Answers | None = None,
    ) -> None:
        self._pushes, self._answers = pushes, answers
        self._source = source
        self.owner: str | None = None
        self._limits = limits or Limits()
        self._bodies = Bodies(self._limits)
        try:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self._socket = socket.create_server(address, family=family, backlog=1024)
        except OSError as error:
            host, port = address
            raise UnavailableError(
                "LISTEN_FAILED",
                f"{source} cannot listen at {host}:{port} ({os.strerror(error.errno or 0)}): give another address, or "
                "end the process that listens there",
            ) from error
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._admission, self._is_open = Admission(self.address, token), token is None
        answer = Route(f"/{source}/keys/{{key:path}}/answer", self._answered, methods=["GET"])
        routes = [
            Route(f"/{source}", self._push, methods=["POST"]),
            *([] if answers is None else [answer]),
            Route(f"/{source}/keys/{{key:path}}", self._pushed, methods=["GET"]),
        ]
        self._router = Router(routes)
        connections = Connections(self._limits, clock)
        http: Any = partial(Connection, connections)  # uvicorn calls it, as it would a class
        config = uvicorn.Config(
            self._answer,
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
        self._thread = threading.Thread(target=run, name=f"boatlift-http-{source}", daemon=True)

    def begin(self) -> None:
        """Begin to answer."""
        if self._thread.ident is None:
            self._thread.start()
            self._server.settled.wait()
        self.check()

    def serve(self) -> None:
        """Take rows."""
        self.owner = None
        self.begin()
        logger.info("%s: listening on %s", self._source, self.url)
        host, port = self.address
        if self._is_open and not is_loopback(host):
            logger.warning(
                "%s takes rows from every program that reaches %s port %s: give bl.push a token, or listen on "
                "127.0.0.1",
                self._source,
                host,
                port,
            )

    @property
    def url(self) -> str:
        return f"{url_of(self.address)}/{self._source}"

    def check(self) -> None:
        cause = self._server.failure
        if cause is not None or not self._server.started:
            raise UnavailableError(
                "LISTEN_FAILED", f"{self._source} cannot answer HTTP ({cause!r}): mend that, then run again"
            ) from cause

    def close(self) -> None:
        """Stop, once all answers are on their way."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()

    async def _answer(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        whole = _WholeBody(receive, send, waits=any(name == b"expect" for name, _ in scope["headers"]))
        try:
            self._admission.check(scope["headers"], needs_host=scope["http_version"] != "1.0")
        except InvalidError as error:
            await _refused(error)(scope, whole.receive, whole.send)
            return
        if self.owner is not None:
            await self._elsewhere(self.owner, scope)(scope, whole.receive, whole.send)
            return
        scope["app"] = self  # else the router answers unknown paths itself, in plain text
        try:
            await self._router(scope, whole.receive, whole.send)
        except HTTPException as error:  # 404 or 405
            here = f"POST /{self._source} and GET /{self._source}/keys/KEY"
            refusal = refusal_of(InvalidError("NOT_SERVED", f"the source takes {here}: send one of these"))
            answer = Response(refusal.body, error.status_code, {**refusal.headers, **(error.headers or {})})
            await answer(scope, whole.receive, whole.send)

    def _elsewhere(self, owner: str, scope: _Message) -> Response:
        if not owner:
            advice = "push again in a moment, with the same key"
            return _refused(UnavailableError("NOT_RUNNING", f"no process takes rows of {self._source} now: {advice}"))
        query = b"?" * bool(scope["query_string"]) + scope["query_string"]
        answer = _answered(307, {"owner": owner})
        answer.headers["location"] = owner + (scope["raw_path"] + query).decode("latin-1")
        return answer

    async def _push(self, request: Request) -> Response:
        try:
            receipt: Receipt = await asyncio.wrap_future(await self._put(request))
            return _answered(200, receipt) if self._answers is None else await self._reply(_key_of(request), receipt)
        except ClientDisconnect:
            return _answered(400, {"condition": "BAD_ROW", "message": "the body ends too early"})  # the client is gone
        except Exception as error:  # noqa: BLE001 - the client gets the error
            return _refused(error)

    async def _reply(self, key: str | None, receipt: Receipt) -> Response:
        """Wait for the answer to a recorded push."""
        assert self._answers is not None
        assert key is not None, "the source has refused a push without a key"
        if not receipt.rows:
            return _answered(200, receipt)
        answer = self._answers.wait(key)
        try:
            found = await asyncio.wait_for(asyncio.wrap_future(answer), self._answers.seconds)
        except TimeoutError:
            return _answered(202, receipt)
        finally:
            self._answers.leave(key, answer)
        return Response(found, media_type="application/json")

    async def _answered(self, request: Request) -> Response:
        assert self._answers is not None
        key = request.path_params["key"]
        try:
            if (found := self._answers.find(key)) is not None:
                return Response(found, media_type="application/json")
            receipt = self._pushes.pushed(key)
        except Exception as error:  # noqa: BLE001 - the client gets the error
            return _refused(error)
        return _answered(404, {"recorded": False}) if receipt is None else _answered(202, receipt)

    async def _put(self, request: Request) -> Future[Receipt]:
        key = _key_of(request)
        body = await self._bodies.read(request)
        try:
            if len(body) > self._limits.small_body:  # else all other requests would wait for this one
                return await asyncio.to_thread(self._pushes.put_json, body, key)
            return self._pushes.put_json(body, key)
        finally:
            self._bodies.drop(body)

    async def _pushed(self, request: Request) -> Response:
        try:
            found = self._pushes.pushed(request.path_params["key"])
        except Exception as error:  # noqa: BLE001 - the client gets the error
            return _refused(error)
        return _answered(404, {"recorded": False}) if found is None else _answered(200, found)


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


class Bodies:
    """Reads bodies, and counts how many bytes of them are in memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way = 0

    async def read(self, request: Request) -> bytes:
        """Read a body; its bytes count until `drop`."""
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


class _WholeBody:
    """Reads the rest of a body before the answer: most clients read no answer before they have sent the body.

    Args:
        waits: Whether the client waits for permission to send the body; then an answer may come instead.
    """

    def __init__(self, receive: _Receive, send: _Send, *, waits: bool) -> None:
        self._receive, self._send = receive, send
        self._more = not waits

    async def receive(self) -> _Message:
        message = await self._receive()
        self._more = message.get("more_body", False)
        return message

    async def send(self, message: _Message) -> None:
        while self._more:
            await self.receive()
        await self._send(message)


def _key_of(request: Request) -> str | None:
    text = request.headers.get(KEY_HEADER)
    try:
        return None if text is None else text.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise InvalidError("BAD_OPTION", f"{KEY_HEADER} {text!r} is not UTF-8: correct it") from error


def _answered(status: int, content: object) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _refused(error: Exception) -> Response:
    refusal = refusal_of(error)
    return Response(refusal.body, refusal.status, refusal.headers)
