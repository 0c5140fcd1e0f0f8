"""Pushing over HTTP: `POST /SOURCE` with rows as JSON, `GET /SOURCE/keys/KEY`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router

from boatlift.connectors.push.answers import PushAnswers
from boatlift.dataflow.contracts import Receipt
from boatlift.dataflow.contracts.durations import Durations
from boatlift.errors import InvalidError, UnavailableError
from boatlift.http.admission import Admission, BearerToken, is_loopback
from boatlift.http.connections import Limits, refusal_of
from boatlift.http.server import AsgiMessage, HttpServer, Receive, Send, WholeBody, answered, listening, refused

logger = logging.getLogger(__name__)

KEY_HEADER = "idempotency-key"


class TakesPushes(Protocol):
    """The part of a source that the server needs."""

    def put_json(self, body: bytes, key: str | None) -> Future[Receipt]: ...

    def pushed(self, key: str) -> Receipt | None: ...


class Server(HttpServer):
    """Serves one source, on a thread of its own, until `close`.

    Args:
        address: Host and port; port 0 for one that is free.
        clock: Returns the seconds that limits count.
        answers: The answers for which clients wait; None: clients get receipts.

    Attributes:
        owner: The URL of the process that takes the rows, to which clients are redirected; empty if none does yet;
            None: this one takes them.
        pushes: Status to the time in which pushes were answered with it, from their head on; written on the server's
            thread.
    """

    def __init__(
        self,
        source: str,
        address: tuple[str, int],
        pushes: TakesPushes,
        token: BearerToken | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        answers: PushAnswers | None = None,
    ) -> None:
        self._pushes, self._answers = pushes, answers
        self._source = source
        self.owner: str | None = None
        self.pushes: dict[str, Durations] = {}
        self._clock = clock
        self._limits = limits or Limits()
        self._bodies = Bodies(self._limits)
        super().__init__(source, listening(source, address), self._answer, self._limits, clock)
        self._is_open = token is None
        self._admission = Admission(
            self.address,
            token,
            instead="push from a program",
            with_token="send Authorization: Bearer and the source's token",  # noqa: S106 - words, not a token
        )
        answer = Route(f"/{source}/keys/{{key:path}}/answer", self._answered, methods=["GET"])
        routes = [
            Route(f"/{source}", self._push, methods=["POST"]),
            *([] if answers is None else [answer]),
            Route(f"/{source}/keys/{{key:path}}", self._pushed, methods=["GET"]),
        ]
        self._router = Router(routes)

    def begin(self) -> None:
        """Begin to answer."""
        super().serve()

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
        return f"{super().url}/{self._source}"

    async def _answer(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        if (scope["method"], scope["path"]) == ("POST", f"/{self._source}"):
            send = self._counted(send)
        whole = WholeBody(scope, receive, send)
        try:
            self._admission.check(scope["headers"], needs_host=scope["http_version"] != "1.0")
        except InvalidError as error:
            await refused(error)(scope, whole.receive, whole.send)
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

    def _counted(self, send: Send) -> Send:
        """Return what sends an answer, and counts it."""
        began = self._clock()

        async def counted(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                self.pushes.setdefault(str(message["status"]), Durations()).add(self._clock() - began)
            await send(message)

        return counted

    def _elsewhere(self, owner: str, scope: AsgiMessage) -> Response:
        if not owner:
            advice = "push again in a moment, with the same key"
            return refused(UnavailableError("NOT_RUNNING", f"no process takes rows of {self._source} now: {advice}"))
        query = b"?" * bool(scope["query_string"]) + scope["query_string"]
        answer = answered(307, {"owner": owner})
        answer.headers["location"] = owner + (scope["raw_path"] + query).decode("latin-1")
        return answer

    async def _push(self, request: Request) -> Response:
        try:
            if self._answers is None:
                receipt: Receipt = await asyncio.wrap_future(await self._put(request))
                return answered(200, receipt)
            return await self._reply(self._answers, request)
        except ClientDisconnect:
            return answered(400, {"condition": "BAD_ROW", "message": "the body ends too early"})  # the client is gone
        except Exception as error:  # noqa: BLE001 - the client gets the error
            return refused(error)

    async def _reply(self, answers: PushAnswers, request: Request) -> Response:
        """Record a push, and wait for its answer; the task of the request wakes once, with the answer."""
        key = _key_of(request) or ""  # the source refuses a push without a key
        answer = answers.wait(key)
        try:
            receipt = await self._put(request)
            receipt.add_done_callback(partial(_go_on, asyncio.get_running_loop(), answer))
            async with asyncio.timeout(answers.seconds):
                found = await answer
            if found is None and not receipt.result().rows:
                return answered(200, receipt.result())
            if found is None:  # it was recorded before, and may have been answered
                again = answers.wait(key)
                try:
                    async with asyncio.timeout(answers.seconds):
                        found = await asyncio.to_thread(answers.find, key) or await again
                finally:
                    answers.leave(key, again)
        except TimeoutError:
            recorded: Receipt = await asyncio.wrap_future(receipt)
            return answered(202, recorded)
        finally:
            answers.leave(key, answer)
        return Response(found, media_type="application/json")

    async def _answered(self, request: Request) -> Response:
        assert self._answers is not None
        key = request.path_params["key"]
        try:
            if (found := await asyncio.to_thread(self._answers.find, key)) is not None:
                return Response(found, media_type="application/json")
            receipt = self._pushes.pushed(key)
        except Exception as error:  # noqa: BLE001 - the client gets the error
            return refused(error)
        return answered(404, {"recorded": False}) if receipt is None else answered(202, receipt)

    async def _put(self, request: Request) -> Future[Receipt]:
        key = _key_of(request)
        body = await self._bodies.read(request)
        try:
            if len(body) > self._limits.small_body:  # all other requests would wait for it
                return await asyncio.to_thread(self._pushes.put_json, body, key)
            return self._pushes.put_json(body, key)
        finally:
            self._bodies.drop(body)

    async def _pushed(self, request: Request) -> Response:
        try:
            found = self._pushes.pushed(request.path_params["key"])
        except Exception as error:  # noqa: BLE001 - the client gets the error
            return refused(error)
        return answered(404, {"recorded": False}) if found is None else answered(200, found)


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


def _go_on(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[bytes | None], receipt: Future[Receipt]) -> None:
    """Let a request go on if no step of its own will answer it: it was refused, or recorded before, or has no rows."""
    if receipt.cancelled():  # the server ends
        return
    error = receipt.exception()
    if error is None and receipt.result().rows and not receipt.result().repeated:
        return

    def told() -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    with suppress(RuntimeError):  # the server has ended, and the request with it
        loop.call_soon_threadsafe(told)


def _key_of(request: Request) -> str | None:
    text = request.headers.get(KEY_HEADER)
    try:
        return None if text is None else text.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise InvalidError("BAD_OPTION", f"{KEY_HEADER} {text!r} is not UTF-8: correct it") from error
