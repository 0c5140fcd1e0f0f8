"""A server of one resource over HTTP, on a real socket, which misbehaves on order."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boatlift as bl
from boatlift.storage.local import LocalStore

SCHEMA = "a INT, b INT, c STRING"
LINES = b"a,b,c\n" + b"".join(b"%d,%d,text %d\n" % (number, -number, number) for number in range(300))


@dataclass
class Resource:
    """What the server has, and how it answers.

    Attributes:
        body: The bytes; None: 404.
        ranges, etags: Whether the server sends ranges, and ETags.
        weak: Whether an ETag is weak.
        conditions: Whether the server regards `If-Match` and `If-None-Match`.
        headers: Headers that a request must have; otherwise 401.
        next: Called for the next requests, one each, before anything is sent: it answers by itself and returns True, or
            returns False.
        requests: Method, headers and status of each request that was answered as usual.
    """

    body: bytes | None = b""
    ranges: bool = True
    etags: bool = True
    weak: bool = False
    conditions: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    next: list[Callable[[BaseHTTPRequestHandler], bool]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], int]] = field(default_factory=list)
    url: str = ""

    @property
    def etag(self) -> str:
        text = f'"{hashlib.sha256(self.body or b"").hexdigest()[:16]}"'
        return f"W/{text}" if self.weak else text

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if self.next and self.next.pop(0)(request):
            return
        status, body, more = self._answer_to(request)
        self.requests.append((request.command, dict(request.headers.items()), status))
        request.send_response(status)
        for name, value in more.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)

    def _answer_to(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        if any(request.headers.get(name) != value for name, value in self.headers.items()):
            return 401, b"", {}
        if self.body is None:
            return 404, b"", {}
        more = {"ETag": self.etag} if self.etags else {}
        if self.etags and self.conditions:
            if request.headers.get("If-Match", self.etag) != self.etag:
                return 412, b"", more
            if request.headers.get("If-None-Match") == self.etag:
                return 304, b"", more
        if not self.ranges:
            return 200, self.body, more
        more["Accept-Ranges"] = "bytes"
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
        if asked is None:
            return 200, self.body, more
        begin, end = int(asked[1]), min(int(asked[2]), len(self.body) - 1)
        if begin > end:
            return 416, b"", {**more, "Content-Range": f"bytes */{len(self.body)}"}
        return 206, self.body[begin : end + 1], {**more, "Content-Range": f"bytes {begin}-{end}/{len(self.body)}"}


@contextmanager
def served(name: str = "rows.csv", host: str = "127.0.0.1") -> Iterator[Resource]:
    """Serve a resource under a name."""
    resource = Resource()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            resource.answer(self)

        do_HEAD = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    resource.url = f"http://{host}:{server.server_address[1]}/{name}"
    try:
        yield resource
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sent(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> bool:
    """Send an answer, with the headers as given and no other."""
    request.send_response(status)
    for name, value in {
        "Content-Length": str(len(body)),
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body if request.command == "GET" else b"")
    return True


def source_of(resource: Resource, store: LocalStore | None = None, **options: Any) -> Any:
    """Return a source, attached as by a run, in which each look finds the period over."""
    source = bl.files(resource.url, **{"schema": SCHEMA, **options})
    if store is not None:
        scratch = store.root.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        source.capabilities.records_input.attach(store, scratch, "rows")
        source._inputs._clock = iter(range(10**6, 10**9, 10**4)).__next__
    return source


def names_in(store: LocalStore) -> list[str]:
    return [name.rpartition("/")[2] for name in store.list("fetched/")]
