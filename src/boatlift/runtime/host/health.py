"""The HTTP port on which a run says whether it lives, and whether it owns its dataflow: for probes of an orchestrator.

| path | 200 | 503 |
|---|---|---|
| `/livez` | the process makes progress, or begins | its event loop hangs, or a step is stuck |
| `/readyz` | it owns the dataflow, has recovered, and executes | it begins, stands by, or stops |
| `/readyz?standbyok` | the same, or it is a ready standby | it begins, stops, or stands by and is not ready |

The answers hold no rows and no secrets, and need no credentials.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Self

import msgspec

from boatlift.errors import UnavailableError
from boatlift.runtime.host.deadlines import StuckCall
from boatlift.runtime.peers.channel import split
from boatlift.runtime.peers.detector import HUNG_SECONDS

STANDBY_SECONDS = 300.0
"""A standby that has not looked at its owner for so long hangs; requests to a store that is away may last a minute."""

CONNECTIONS = 16  # so many at once; a further one ends the oldest

REQUEST_SECONDS = 5.0  # for each read of a request

logger = logging.getLogger(__name__)


class Health:
    """What a run says of itself. Its own threads write, and those of the port read; no call waits.

    Args:
        clock: Returns seconds of a steady clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._stopping = clock, False
        self.begins()

    def begins(self, *, anew: bool = False) -> None:
        """The process starts, or recovers what it has taken over.

        Args:
            anew: A host that was asked to stop may have been fenced before it did; another one follows it.
        """
        if anew:
            self._stopping = False
        self._say("starting")

    def follows(self, ready: Callable[[], bool]) -> None:
        """The process is a standby.

        Args:
            ready: Returns whether the first step after a takeover would be quick.
        """
        self._say("standby", ready=ready)

    def owns(self, stuck: Callable[[], Sequence[StuckCall]]) -> None:
        """The process has recovered, and executes.

        Args:
            stuck: Returns the calls without progress; any thread.
        """
        self._say("owner", ready=lambda: True, stuck=stuck)

    def stops(self) -> None:
        """The process was asked to stop: whatever it does from now on, it does no more work."""
        self.turns()
        self._stopping = True  # whatever another thread says at the same moment

    def turns(self) -> None:
        """The loop of the owner, or of the standby, turns."""
        self._turned = self._clock()

    def _say(
        self,
        role: str,
        *,
        ready: Callable[[], bool] = lambda: False,
        stuck: Callable[[], Sequence[StuckCall]] = lambda: (),
    ) -> None:
        self.turns()
        self._said = (role, ready, stuck)  # at once: another thread sees no half of it

    @property
    def _now(self) -> tuple[str, Callable[[], bool], Callable[[], Sequence[StuckCall]]]:
        return ("stopping", lambda: False, lambda: ()) if self._stopping else self._said

    def livez(self) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of an answer."""
        role, _, stuck = self._now
        still = self._clock() - self._turned
        why = ""
        if role == "owner" and still >= HUNG_SECONDS:
            why = f"the event loop has not turned for {still:.0f} s"
        elif role == "standby" and still >= STANDBY_SECONDS:
            why = f"the standby has not looked at the owner for {still:.0f} s"
        elif calls := stuck():
            why = "no progress at " + ", ".join(f"step {each.step} of {each.processor}" for each in calls)
        return (503, {"role": role, "live": False, "why": why}) if why else (200, {"role": role, "live": True})

    def readyz(self, *, standby_ok: bool = False) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of an answer."""
        role, ready, _ = self._now
        is_ready = ready()
        status = 200 if is_ready and (role == "owner" or standby_ok) else 503
        return status, {"role": role, "ready": is_ready}

    def answer(self, target: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the body for the target of a GET."""
        match target.partition("?"):
            case "/livez", *_:
                return self.livez()
            case "/readyz", _, query:
                return self.readyz(standby_ok=query == "standbyok")
        return 404, {"error": "there are /livez, /readyz and /readyz?standbyok"}


class HealthPort:
    """Answers on threads of its own (a context manager); without an address it does nothing.

    Attributes:
        url: Where it answers.

    Raises:
        InvalidError: `[BAD_OPTION]` the address is none.
        UnavailableError: `[LISTEN_FAILED]`.
    """

    def __init__(self, address: str, health: Health) -> None:
        self.url = ""
        self._server: _Server | None = None
        if not address:
            return
        host, port = split(address)
        try:
            self._server = _Server(host, port, health)
        except (OSError, OverflowError) as error:
            raise UnavailableError(
                "LISTEN_FAILED", f"cannot listen at {address} for probes ({error}): free it, or give another --health"
            ) from error
        host, port = self._server.server_address[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def __enter__(self) -> Self:
        if self._server is not None:
            threading.Thread(target=self._server.serve_forever, name="boatlift-health", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class _Server(ThreadingMixIn, TCPServer):
    """Not `http.server.HTTPServer`, which asks a name server for the name of its address."""

    allow_reuse_address, daemon_threads, block_on_close = True, True, False
    request_queue_size = 4 * CONNECTIONS
    server_address: tuple[str, int]

    def __init__(self, host: str, port: int, health: Health) -> None:
        self.health = health
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._changing = threading.Lock()
        self._open: list[socket.socket] = []  # the oldest first
        super().__init__((host, port), _Answering)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            self._open.append(request)
            if len(self._open) > CONNECTIONS:
                with suppress(OSError):
                    self._open.pop(0).shutdown(socket.SHUT_RDWR)  # its thread closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changing, suppress(ValueError):
            self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("the probe of %s (%s) got no answer: %r", client_address, request, sys.exception())


class _Answering(BaseHTTPRequestHandler):
    """One connection: one request, as of HTTP/1.0."""

    server: _Server
    timeout = REQUEST_SECONDS
    server_version, sys_version = "boatlift", ""
    error_content_type, error_message_format = "application/json", '{"error": "no request of HTTP"}'

    def do_GET(self) -> None:
        self._answer(*self.server.health.answer(self.path))

    def _refuse(self) -> None:
        self._answer(405, {"error": "only GET is answered"}, allow="GET")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # any other method
            return self._refuse
        raise AttributeError(name)

    def _answer(self, status: int, body: dict[str, Any], **headers: str) -> None:
        content = msgspec.json.encode(body) + b"\n"
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Probes come every few seconds, and are no news."""
