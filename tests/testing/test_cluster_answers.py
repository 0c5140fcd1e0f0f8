"""The answers of a master on loopback while it starts."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from boatlift.testing.cluster import alive_workers

FRONT_PAGE = b"<!DOCTYPE html><html><body>Spark Master</body></html>"
LIST = json.dumps({"workers": [{"state": "ALIVE"}, {"state": "DEAD"}, {"state": "ALIVE"}]}).encode()


@contextmanager
def master(answer: bytes) -> Iterator[str]:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/json/"
        server.shutdown()
        thread.join()


def test_workers_that_are_alive_are_counted() -> None:
    with master(LIST) as address:
        assert alive_workers(address) == 2


def test_a_master_that_is_still_attaching_its_pages_cannot_say() -> None:
    with master(FRONT_PAGE) as address:
        assert alive_workers(address) is None


def test_a_master_that_does_not_listen_cannot_say() -> None:
    with master(LIST) as address:
        pass
    assert alive_workers(address) is None
