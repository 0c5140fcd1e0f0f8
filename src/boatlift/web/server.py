"""The server of the console: the page, the documents, and the events.

| path | needs the token | answer |
|---|---|---|
| `/`, `/js/…`, `/style.css`, `/mark.svg` | no: they hold no data | the page |
| `/healthz` | no | `{"ok": true}` |
| `/api/v1/NAME` | yes | a document of `documents` |
| `/api/v1/events` | yes | a stream of events |
| `/metrics` | yes | metrics, as text for Prometheus |

It answers `GET` alone, so nothing can be changed through it.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from errno import EADDRINUSE
from importlib.resources import files
from importlib.resources.abc import Traversable
from urllib.parse import parse_qsl

from starlette.responses import Response

from boatlift.errors import InvalidError, UnavailableError
from boatlift.http.admission import Admission, BearerToken, is_loopback, token_of
from boatlift.http.connections import Limits, refusal_of
from boatlift.http.server import AsgiMessage, HttpServer, Receive, Send, WholeBody, listening, refused
from boatlift.metrics.prometheus import CONTENT_TYPE, prometheus_text
from boatlift.web.documents import ROWS, Document, Documents
from boatlift.web.events import Events

TOKEN_VARIABLE = "BOATLIFT_CONSOLE_TOKEN"  # noqa: S105 - its name, not a token

API = "/api/v1/"

METRICS = "/metrics"

PORTS = 10
"""If the port is taken, so many are tried, one after the other."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
"""Of every answer: a browser runs the page's own files, embeds it nowhere, and keeps nothing."""

KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

MOST_ROWS_WORKERS = 16

REST = "/"
"""Stands for all sinks without a thread of their own; no sink has this name."""

LIMITS = Limits(connections=128, body_bytes=16 << 10, small_body=16 << 10)


def listener_at(address: tuple[str, int], said: Callable[[str], None]) -> socket.socket:
    """Return a socket that listens at an address, or at the next free port of ten.

    Args:
        said: Is told if it is another port.

    Raises:
        UnavailableError: `[LISTEN_FAILED]` none of them is free, or the address is not this machine's.
    """
    host, port = address
    ports = range(port, min(port + PORTS, 65536)) if port else range(1)
    for tried in ports:
        try:
            listener = listening("the console", (host, tried))
        except UnavailableError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == EADDRINUSE:
                continue
            raise
        if tried != port:
            said(f"port {port} of {host} is taken: the console takes {tried}")
        return listener
    raise UnavailableError(
        "LISTEN_FAILED",
        f"ports {ports[0]} to {ports[-1]} of {host} are taken: give another address, or end what listens there",
    )


def refuse_open_console(listen: tuple[str, int]) -> None:
    """Refuse an address that other hosts see, unless the user has chosen a token.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    if not is_loopback(listen[0]) and token_of(None, TOKEN_VARIABLE) is None:
        raise InvalidError(
            "BAD_OPTION",
            f"the console at {listen[0]}:{listen[1]} is seen from other hosts: put a secret of 16 characters or more "
            f"into {TOKEN_VARIABLE}, or listen at 127.0.0.1",
        )


class Console:
    """Serves the console of a store, from `serve` to `close`.

    Attributes:
        url: What a browser opens. If no token was given it has one, in its fragment, which no server and no log sees.

    Args:
        documents: Of the store.
        listener: Where it listens; closed with the console.
        look_seconds: From one look at the store to the next, while somebody reads events.

    Raises:
        InvalidError: `[BAD_OPTION]` the token of the environment is none.
    """

    def __init__(self, documents: Documents, listener: socket.socket, *, look_seconds: float = 1.0) -> None:
        self._documents, self._files = documents, dict(_assets(files("boatlift.web") / "page", "/"))
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="boatlift-console")
        # Slow rows keep no other document waiting, nor those of another sink.
        self._rows_workers: dict[str, ThreadPoolExecutor] = {}
        self._events = Events(self._status, look_seconds)
        self._loop: asyncio.AbstractEventLoop | None = None
        token = token_of(None, TOKEN_VARIABLE)
        fragment = ""
        if token is None:
            drawn = secrets.token_urlsafe(24)
            token, fragment = BearerToken(drawn), f"#token={drawn}"
        self._server = HttpServer("console", listener, self._answer, LIMITS)
        self.url = f"{self._server.url}/{fragment}"
        self._admission = Admission(
            self._server.address,
            token,
            instead="open the address that boatlift console prints",
            with_token="open the address that boatlift console prints, or send Authorization: Bearer and its token",  # noqa: S106
        )

    def serve(self) -> None:
        """Begin to answer.

        Raises:
            UnavailableError: `[LISTEN_FAILED]`.
        """
        self._server.serve()

    def hint(self) -> None:
        """Say that the status may be another; from any thread."""
        self._events.hint()

    def close(self) -> None:
        """Stop, once all answers are on their way."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._events.close(), self._loop)
        self._server.close()
        self._worker.shutdown(wait=False)
        for worker in list(self._rows_workers.values()):
            worker.shutdown(wait=False)

    async def _answer(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        whole = WholeBody(scope, receive, send)

        async def send_with_headers(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await whole.send(message)

        path: str = scope["path"]
        try:
            self._admission.check(
                scope["headers"], needs_host=scope["http_version"] != "1.0", needs_token=path.startswith((API, METRICS))
            )
            if scope["method"] == "GET" and path == f"{API}events":
                await whole.drain()
                await self._events.serve(whole.receive, send_with_headers)
                return
            answer = await self._response(scope, path)
        except Exception as error:  # noqa: BLE001 - the client gets the error
            answer = refused(error)
        await answer(scope, whole.receive, send_with_headers)

    async def _response(self, scope: AsgiMessage, path: str) -> Response:
        is_there = path in self._files or path in ("/healthz", METRICS) or path.startswith(API)
        if not is_there or scope["method"] != "GET":
            error = InvalidError("NOT_SERVED", "the console answers GET /, /api/v1/NAME, /metrics: send one of these")
            refusal = refusal_of(error)
            headers = {**refusal.headers, "allow": "GET"} if is_there else refusal.headers
            return Response(refusal.body, 405 if is_there else 404, headers)
        if path == "/healthz":
            return Response(b'{"ok": true}\n', media_type="application/json")
        if path in self._files:
            content, kind = self._files[path]
            return Response(content, media_type=kind)
        if path == METRICS:
            text = await asyncio.get_running_loop().run_in_executor(self._worker, self._metrics_text)
            return Response(text, media_type=CONTENT_TYPE)
        arguments = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        made = await self._made(path.removeprefix(API), arguments)
        tag = f'"{made.tag}"'
        if (b"if-none-match", tag.encode()) in scope["headers"]:
            return Response(status_code=304, headers={"etag": tag})
        return Response(made.content, media_type="application/json", headers={"etag": tag})

    async def _made(self, name: str, arguments: dict[str, str]) -> Document:
        loop, worker = asyncio.get_running_loop(), self._worker
        if name == ROWS and (sink := await loop.run_in_executor(worker, self._documents.sink_of, arguments)):
            worker = self._rows_worker(sink)
        return await loop.run_in_executor(worker, self._documents.get, name, arguments)

    def _rows_worker(self, sink: str) -> ThreadPoolExecutor:
        """Return what reads the rows of a sink: a thread of its own, beyond `MOST_ROWS_WORKERS` one for the rest."""
        name = sink if sink in self._rows_workers or len(self._rows_workers) < MOST_ROWS_WORKERS else REST
        return self._rows_workers.setdefault(name, ThreadPoolExecutor(1, thread_name_prefix="boatlift-rows"))

    def _metrics_text(self) -> bytes:
        return prometheus_text(*self._documents.metrics())

    async def _status(self) -> Document:
        return await self._made("status", {})


def _assets(folder: Traversable, path: str) -> list[tuple[str, tuple[bytes, str]]]:
    found: list[tuple[str, tuple[bytes, str]]] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _assets(each, f"{path}{each.name}/")
        elif (ending := each.name[each.name.rfind(".") :]) in KINDS:
            name = path if each.name == "index.html" else f"{path}{each.name}"
            found.append((name, (each.read_bytes(), KINDS[ending])))
    return found
