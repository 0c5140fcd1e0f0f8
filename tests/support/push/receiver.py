"""A real HTTP server that takes posts, remembers them, and answers as it is told."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

__all__ = ["Receiver", "receiving"]


@dataclass
class Receiver:
    """A server that remembers requests.

    Attributes:
        url: Where it listens.
        answers: The status of each of the next answers, with headers; 200 when there is none left; 0: no answer.
        requests: Each request that was answered well: its key and its body.
        tried: The number of all requests.
    """

    url: str
    answers: deque[tuple[int, dict[str, str]]] = field(default_factory=deque)
    requests: list[tuple[str, bytes]] = field(default_factory=list)
    tried: int = 0

    def rows(self) -> list[dict[str, Any]]:
        return [row for _, body in self.requests for row in msgspec.json.decode(body)]


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """Run a server on a port, or on any free one."""
    silent = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.tried += 1
            status, headers = receiver.answers.popleft() if receiver.answers else (200, {})
            if status == 0:
                silent.wait(30)
                return
            if status < 300:
                receiver.requests.append((self.headers["Idempotency-Key"], body))
            said = b"that is no order" if status >= 300 else b""
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(said))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's word
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}/orders")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield receiver
        silent.set()
        server.shutdown()
