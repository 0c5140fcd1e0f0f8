"""The connections of a server, their bounds, so that no client keeps the others out, and answers to refusals."""

from __future__ import annotations

import asyncio
import http
import logging
import resource
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from boatlift.errors import BoatliftError, FencedError, InternalError, InvalidError, UnavailableError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1
KEYS_RETRY_SECONDS = 60

_STATUS = {
    "BAD_ROW": 400,
    "BAD_OPTION": 400,
    "BAD_REQUEST": 400,
    "BAD_TOKEN": 401,
    "CROSS_SITE": 403,
    "NOT_SERVED": 404,
    "TOO_SLOW": 408,
    "PUSH_TOO_LARGE": 413,
    "KEY_REUSED": 422,
    "KEYS_FULL": 429,
    "HEADERS_TOO_LARGE": 431,
}


_CONNECTIONS = 1000


def most_connections() -> int:
    """Return how many connections to allow: the store and Spark need file descriptors, too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(_CONNECTIONS, soft // 2))


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server.

    Attributes:
        connections: Connections at once. A further one replaces the connection that has been silent longest, if the
            client of that connection owes a request.
        leaving: Refused connections that stay open for a moment, so that their clients can read why.
        head_seconds: How long a request's line and headers may take to come.
        body_seconds: How long the next bytes of a body may take to come, and how far a body may lag behind `body_rate`.
        body_rate: Bytes a second of the slowest client.
        idle_seconds: How long a connection is kept after an answer.
        write_seconds: How long a client may leave answers unread.
        linger_seconds: How long a refused client may take to read why.
        head_bytes: Bytes of a request's line and headers.
        pipelined: Requests of one connection that wait behind one that is not answered.
        objects: Objects in a body, since a row can be as small as two bytes.
        small_body: A body up to so many bytes is read whatever else is under way.
        bodies_bytes: Bytes of all bodies under way, besides the small ones.
    """

    connections: int = most_connections()
    leaving: int = 64
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    body_rate: int = 4096
    idle_seconds: float = 5.0
    write_seconds: float = 10.0
    linger_seconds: float = 2.0
    head_bytes: int = 32 << 10
    headers: int = 100
    pipelined: int = 16
    body_bytes: int = 16 << 20
    objects: int = 250_000
    small_body: int = 64 << 10
    bodies_bytes: int = 128 << 20


class Connections:
    """All connections of a server; the connection that has been silent longest comes first."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self.clock = clock
        self._inside: OrderedDict[Connection, None] = OrderedDict()
        self._leaving: OrderedDict[Connection, None] = OrderedDict()

    def admit(self, connection: Connection) -> None:
        """Admit a connection; if there is no room, refuse a silent connection in its place, or else the new one."""
        if len(self._inside) >= self.limits.connections:
            silent = next((each for each in self._inside if each.owes_request), None)
            if silent is None:
                connection.refuse(_busy("as many connections as the server takes wait for answers"))
                return
            silent.refuse(_busy("another connection needed the place of this one, which was silent longest"))
        self._inside[connection] = None

    def heard(self, connection: Connection) -> None:
        self._inside.move_to_end(connection)

    def leave(self, connection: Connection) -> None:
        """Stop counting a connection whose client only has to read the last answer."""
        self._inside.pop(connection, None)
        self._leaving[connection] = None
        if len(self._leaving) > self.limits.leaving:
            first, _ = self._leaving.popitem(last=False)
            first.transport.abort()

    def gone(self, connection: Connection) -> None:
        self._inside.pop(connection, None)
        self._leaving.pop(connection, None)

    def look(self) -> None:
        """End connections whose clients have taken too long; called at every tick."""
        now = self.clock()
        for connection in [*self._inside, *self._leaving]:
            connection.look(now)


class _Phase(Enum):
    """The part of a request that a client sends next."""

    NOTHING = auto()  # no request has begun
    HEAD = auto()
    BODY = auto()
    ANSWERED = auto()  # as NOTHING, and no byte has come since the last request
    LEAVING = auto()


class _EnoughError(Exception):
    """A client has sent more requests than wait for answers at once."""


class Connection(HttpToolsProtocol):
    """A connection whose client must send its requests in time and within `Limits`."""

    def __init__(self, connections: Connections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._connections, self._limits = connections, connections.limits
        self._phase, self._since = _Phase.NOTHING, connections.clock()
        self._head = self._body = self._events = self._unparsed = 0
        self._due = 0.0
        self._stalled: float | None = None
        self._answering: RequestResponseCycle | None = None
        self._deaf = False
        self._wrong: BoatliftError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connections.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.gone(self)

    def data_received(self, data: bytes) -> None:
        """Parse the data, or drop it if no further request is answered."""
        if self._deaf or self._phase is _Phase.LEAVING:
            return
        self._unset_keepalive_if_required()
        self._connections.heard(self)
        if self._phase is _Phase.ANSWERED:
            self._enter(_Phase.NOTHING)
        events = self._events
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._stop_hearing()  # further bytes belong to another protocol, which the server does not speak
            return
        except httptools.HttpParserError as error:
            wrong, self._wrong = self._wrong, None
            if isinstance(error.__context__, _EnoughError):
                self._stop_hearing()
            else:
                self.refuse(wrong or InvalidError("BAD_REQUEST", "the bytes are no request of HTTP/1.1: send one"))
            return
        self._unparsed = self._unparsed + len(data) if self._events == events else 0
        if self._unparsed > self._limits.head_bytes:  # the parser joins the parts of a long field, again and again
            self.refuse(self._too_large())

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self._connections.clock()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled = None

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= self._limits.pipelined:
            raise _EnoughError
        super().on_message_begin()
        self._enter(_Phase.HEAD)
        self._head = 0

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        if self._phase is _Phase.HEAD:
            if len(self.headers) >= self._limits.headers:
                self._raise(self._too_large())
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._enter(_Phase.BODY)
        self._body, self._due = 0, self._since + self._limits.body_seconds

    def on_body(self, body: bytes) -> None:
        """Add a part of a body. One that is too large gets an answer; a client that sends on is cut off."""
        self._body += len(body)
        self._events += 1
        # What came quickly buys no more time than a body may take without it: its bytes are in memory.
        latest = self._connections.clock() + self._limits.body_seconds
        self._due = min(latest, self._due + len(body) / self._limits.body_rate)
        if self._body > 2 * self._limits.body_bytes:
            self._raise(InvalidError("PUSH_TOO_LARGE", f"a push is at most {self._limits.body_bytes:,} bytes"))
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._enter(_Phase.ANSWERED)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._phase is _Phase.ANSWERED:
            self._enter(_Phase.ANSWERED)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def owes_request(self) -> bool:
        """Whether the connection waits for its client, and the server owes no answer."""
        return not self._is_answering and not self.transport.is_closing()

    def look(self, now: float) -> None:
        limits, took = self._limits, now - self._since
        if self._stalled is not None and now - self._stalled > limits.write_seconds:
            self.transport.abort()
        elif self._phase is _Phase.LEAVING:
            if took > limits.linger_seconds:
                self.transport.abort()
        elif self.transport.is_closing():
            self._leave()
        elif self.flow.read_paused or self._deaf:
            self._since, self._due = now, now + limits.body_seconds  # the server does not read: the client is not late
        elif self._phase is _Phase.ANSWERED:
            if took > limits.idle_seconds and not self._is_answering:
                self._close()
        elif self._phase is _Phase.NOTHING and took > limits.head_seconds:
            if self._is_answering:
                self._enter(_Phase.ANSWERED)
            else:
                self._close()
        elif self._phase is _Phase.HEAD and took > limits.head_seconds:
            self.refuse(
                UnavailableError(
                    "TOO_SLOW",
                    f"a request's headers come within {limits.head_seconds:g} s: send it again, a push with its key",
                )
            )
        elif self._phase is _Phase.BODY and now > self._due:
            self.refuse(
                UnavailableError(
                    "TOO_SLOW",
                    f"the bytes of a body come without a pause of {limits.body_seconds:g} s, and at least "
                    f"{limits.body_rate:,} of them a second: send it again, a push with its key",
                )
            )

    def shutdown(self) -> None:
        if self._phase is _Phase.LEAVING:
            self.transport.abort()
        elif self._is_answering:
            super().shutdown()
        else:
            self.refuse(UnavailableError("NOT_RUNNING", "the server stops: send it again once it runs"))
            self.transport.close()

    def refuse(self, error: BoatliftError) -> None:
        """Refuse the unfinished request, and end the connection; earlier requests are answered."""
        if self._is_answering:
            if self._phase is _Phase.BODY:
                self.pipeline.popleft()
            self._stop_hearing()
            return
        said = False
        if self._phase is _Phase.BODY:
            said, self.cycle.disconnected = self.cycle.response_started, True
            self.cycle.message_event.set()
        if not said and (self._phase in (_Phase.HEAD, _Phase.BODY) or self._answering is None):
            self.transport.write(as_response(refusal_of(error)))
        self._close()

    @property
    def _is_answering(self) -> bool:
        """Whether a whole request has no answer yet."""
        cycle = self._answering
        arriving = self._phase is _Phase.BODY and cycle is self.cycle
        return cycle is not None and not cycle.response_complete and not arriving

    def _stop_hearing(self) -> None:
        """Drop all further data; the connection ends with the answer to the last whole request."""
        last = self.pipeline[0][0] if self.pipeline else self._answering
        self._deaf = True
        if last is None or last.response_complete:
            self._close()
        else:
            last.keep_alive = False

    def _close(self) -> None:
        """End the connection once its client has read the last answer, or has had time to."""
        self._unset_keepalive_if_required()
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.flow.resume_reading()  # closing a socket with unread data discards what it sent
            self.transport.write_eof()
        self._leave()

    def _leave(self) -> None:
        self._enter(_Phase.LEAVING)
        self._connections.leave(self)

    def _enter(self, phase: _Phase) -> None:
        self._phase, self._since = phase, self._connections.clock()
        self._events += 1

    def _count_head(self, size: int) -> None:
        self._head += size
        if self._head > self._limits.head_bytes:
            self._raise(self._too_large())

    def _too_large(self) -> InvalidError:
        return InvalidError(
            "HEADERS_TOO_LARGE",
            f"a request has at most {self._limits.headers} headers, and {self._limits.head_bytes:,} bytes of them: "
            "send fewer",
        )

    def _raise(self, error: BoatliftError) -> None:
        self._wrong = error
        raise error


def _busy(why: str) -> UnavailableError:
    return UnavailableError("SERVER_BUSY", f"{why}: send it again in a moment, a push with its key")


class Refusal(msgspec.Struct, frozen=True):
    """A refusal as HTTP has it.

    Attributes:
        headers: All but those about the body's length and the connection.
    """

    status: int
    headers: dict[str, str]
    body: bytes


def refusal_of(error: Exception) -> Refusal:
    """Return the answer for an error. An error that is not Boatlift's is logged, and answered as `[INTERNAL]`."""
    if not isinstance(error, BoatliftError):
        logger.error("a request failed", exc_info=error)
        error = InternalError("INTERNAL", f"{type(error).__name__}: see the log of the server's process")
    passes = isinstance(error, UnavailableError | FencedError)
    status = _STATUS.get(error.condition, 503 if passes else 500)
    headers = {"content-type": "application/json"}
    if passes:
        headers["retry-after"] = str(KEYS_RETRY_SECONDS if error.condition == "KEYS_FULL" else RETRY_SECONDS)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return Refusal(status, headers, msgspec.json.encode({"condition": error.condition, "message": error.message}))


def as_response(refusal: Refusal) -> bytes:
    """Return a whole response, the last one of its connection."""
    headers = {**refusal.headers, "content-length": str(len(refusal.body)), "connection": "close"}
    lines = [f"HTTP/1.1 {refusal.status} {http.HTTPStatus(refusal.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + refusal.body
