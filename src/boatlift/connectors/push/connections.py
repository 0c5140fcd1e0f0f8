"""The connections of a push server: how many there are, and how long a client may take."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from boatlift.connectors.push.limits import Limits
from boatlift.connectors.push.refusals import as_response, refusal_of
from boatlift.errors import BoatliftError, InvalidError, UnavailableError

__all__ = ["Connection", "Connections"]


class Connections:
    """All connections of a server, the one that has been silent longest first.

    Args:
        limits: See `Limits`.
        clock: The seconds that `limits` count.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self.clock = clock
        self._inside: OrderedDict[Connection, None] = OrderedDict()
        self._leaving: OrderedDict[Connection, None] = OrderedDict()

    def admit(self, connection: Connection) -> None:
        """Take a connection in, in the place of a silent one if there is no other; else refuse it."""
        if len(self._inside) >= self.limits.connections:
            silent = next((each for each in self._inside if each.owes_request), None)
            if silent is None:
                connection.refuse(_busy("as many connections as the server takes wait for answers"))
                return
            silent.refuse(_busy("another connection needed the place of this one, which was silent longest"))
        self._inside[connection] = None

    def heard(self, connection: Connection) -> None:
        """Note that a client has sent something."""
        self._inside.move_to_end(connection)

    def leave(self, connection: Connection) -> None:
        """Count a connection no more that only waits for its client to read the last answer."""
        self._inside.pop(connection, None)
        self._leaving[connection] = None
        if len(self._leaving) > self.limits.leaving:
            first, _ = self._leaving.popitem(last=False)
            first.transport.abort()

    def gone(self, connection: Connection) -> None:
        """Forget a connection."""
        self._inside.pop(connection, None)
        self._leaving.pop(connection, None)

    def look(self) -> None:
        """End what has taken too long; called again and again."""
        now = self.clock()
        for connection in [*self._inside, *self._leaving]:
            connection.look(now)


class _Phase(Enum):
    """What a client sends next."""

    NOTHING = auto()  # of a request: it may begin one
    HEAD = auto()
    BODY = auto()
    ANSWERED = auto()  # as NOTHING, but no byte of it has come
    LEAVING = auto()


class _EnoughError(Exception):
    """A client has sent more requests than wait for answers at once."""


class Connection(HttpToolsProtocol):
    """A connection whose client must send its requests in time and within `Limits`.

    Args:
        connections: Those of the server.
        told: As uvicorn has it.
    """

    def __init__(self, connections: Connections, *given: Any, **told: Any) -> None:
        super().__init__(*given, **told)
        self._connections, self._limits = connections, connections.limits
        self._phase, self._since = _Phase.NOTHING, connections.clock()
        self._head = self._body = self._events = self._unparsed = 0
        self._stalled: float | None = None
        self._answering: RequestResponseCycle | None = None
        self._deaf = False
        self._wrong: BoatliftError | None = None

    # -- of the transport ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask for a place."""
        super().connection_made(transport)
        self._connections.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        self._connections.gone(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came, or drop it if nothing more is answered."""
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
            self._stop_hearing()  # whatever comes now is of another protocol, which is not spoken here
            return
        except httptools.HttpParserError as error:
            self._refuse_parsed(error)
            return
        self._unparsed = self._unparsed + len(data) if self._events == events else 0
        if (
            self._unparsed > self._limits.head_bytes
        ):  # the parser puts the parts of one long field together, again and again
            self.refuse(self._too_large())

    def pause_writing(self) -> None:
        """Note since when the client leaves answers unread."""
        super().pause_writing()
        self._stalled = self._connections.clock()

    def resume_writing(self) -> None:
        """Note that the client reads."""
        super().resume_writing()
        self._stalled = None

    # -- of the parser ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request, unless as many wait already as may."""
        if len(self.pipeline) >= self._limits.pipelined:
            raise _EnoughError
        super().on_message_begin()
        self._enter(_Phase.HEAD)
        self._head = 0

    def on_url(self, url: bytes) -> None:
        """Take part of the request's line."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that comes after a body says nothing."""
        self._count_head(len(name) + len(value))
        if self._phase is _Phase.HEAD:
            if len(self.headers) >= self._limits.headers:
                self._raise(self._too_large())
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Have the request answered, or put behind others."""
        super().on_headers_complete()
        self._enter(_Phase.BODY)
        self._body = 0

    def on_body(self, body: bytes) -> None:
        """Take part of a body. The answer says when it is too large; after some more the client has not heeded it."""
        self._body += len(body)
        self._events += 1
        if self._body > 2 * self._limits.body_bytes:
            self._raise(InvalidError("PUSH_TOO_LARGE", f"a push is at most {self._limits.body_bytes:,} bytes"))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        super().on_message_complete()
        self._enter(_Phase.ANSWERED)

    def on_response_complete(self) -> None:
        """Begin with the next request, if one waits."""
        super().on_response_complete()
        if self._phase is _Phase.ANSWERED:
            self._enter(_Phase.ANSWERED)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    # -- time and place -----------------------------------------------------------------------------------------------

    @property
    def owes_request(self) -> bool:
        """Whether the connection waits for its client, and no answer of the server's is under way."""
        return not self._is_answering and not self.transport.is_closing()

    def look(self, now: float) -> None:
        """End what has taken too long."""
        limits, took = self._limits, now - self._since
        if self._stalled is not None and now - self._stalled > limits.write_seconds:
            self.transport.abort()
        elif self._phase is _Phase.LEAVING:
            if took > limits.linger_seconds:
                self.transport.abort()
        elif self.transport.is_closing():
            self._leave()
        elif self.flow.read_paused or self._deaf:
            self._since = now  # it is the server that does not read
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
                    f"a request's headers come within {limits.head_seconds:g} s: push again, with the same key",
                )
            )
        elif self._phase is _Phase.BODY and took > limits.body_seconds + self._body / limits.body_rate:
            self.refuse(
                UnavailableError(
                    "TOO_SLOW",
                    f"a body comes within {limits.body_seconds:g} s and one more for each {limits.body_rate:,} bytes: push it again, "
                    f"with its key",
                )
            )

    def shutdown(self) -> None:
        """Answer what is whole, and refuse the rest."""
        if self._phase is _Phase.LEAVING:
            self.transport.abort()
        elif self._is_answering:
            super().shutdown()
        else:
            self.refuse(UnavailableError("NOT_RUNNING", "the dataflow stops: push again once it runs"))
            self.transport.close()

    def refuse(self, error: BoatliftError) -> None:
        """Refuse the request that is not whole, and end the connection; what came before it is answered."""
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
        """Whether a request that is whole has no answer yet."""
        cycle = self._answering
        arriving = self._phase is _Phase.BODY and cycle is self.cycle
        return cycle is not None and not cycle.response_complete and not arriving

    def _refuse_parsed(self, error: httptools.HttpParserError) -> None:
        if isinstance(error.__context__, _EnoughError):
            self._stop_hearing()
            return
        wrong, self._wrong = self._wrong, None
        self.refuse(wrong or InvalidError("BAD_REQUEST", "what came is no request of HTTP/1.1: send one"))

    def _stop_hearing(self) -> None:
        """Drop what comes from now on; the connection ends with the answer to the last request that is whole."""
        last = self.pipeline[0][0] if self.pipeline else self._answering
        self._deaf = True
        if last is None or last.response_complete:
            self._close()
        else:
            last.keep_alive = False

    def _close(self) -> None:
        """End the connection once its client has read the last answer, or has had the time to."""
        self._unset_keepalive_if_required()
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.flow.resume_reading()  # a socket that is closed with something unread takes back what it sent
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
            f"a request has at most {self._limits.headers} headers, and {self._limits.head_bytes:,} bytes of them: send fewer",
        )

    def _raise(self, error: BoatliftError) -> None:
        self._wrong = error
        raise error


def _busy(why: str) -> UnavailableError:
    return UnavailableError("SERVER_BUSY", f"{why}: push again in a moment, with the same key")
