"""Consoles of stores, and a client that asks as a browser does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boatlift.api.served import ROW_READERS
from boatlift.dataflow.contracts import RowReader
from boatlift.operators import operators_with_status
from boatlift.web.documents import Documents
from boatlift.web.server import Console, listener_at

__all__ = ["Asked", "Reader", "consoling"]

LOOK_SECONDS = 0.02


@dataclass
class Asked:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reader:
    """A console, and its reader."""

    console: Console
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        return self.console._server.address

    @property
    def token(self) -> str:
        return self.console.url.partition("#token=")[2]

    def ask(self, path: str, *, token: str | None = None, method: str = "GET", **headers: str) -> Asked:
        """Ask for a path; with the console's token unless another, or an empty one, is given."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        given = self.token if token is None else token
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            shown = {"Authorization": f"Bearer {given}"} if given else {}
            connection.request(method, path, headers={**shown, **named})
            answer = connection.getresponse()
            return Asked(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def document(self, name: str) -> Any:
        answer = self.ask(f"/api/v1/{name}")
        assert answer.status == 200, answer.body
        return answer.json

    @contextmanager
    def events(self) -> Iterator[Iterator[tuple[str, Any]]]:
        """Follow the events: each is its kind, and what it says."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {self.token}"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()

        def told() -> Iterator[tuple[str, Any]]:
            event: dict[str, str] = {}
            while line := answer.readline().decode():
                name, _, value = line.strip().partition(": ")
                if name:
                    event[name] = value
                elif "data" in event:
                    yield event["event"], json.loads(event["data"])
                    event = {}

        try:
            yield told()
        finally:
            connection.close()


@contextmanager
def consoling(store: Path | str, readers: Mapping[str, RowReader] = ROW_READERS) -> Iterator[Reader]:
    """Serve the console of a store."""
    documents = Documents(str(store), operators_with_status(), fresh_seconds=LOOK_SECONDS, readers=readers)
    console = Console(documents, listener_at(("127.0.0.1", 0), print), look_seconds=LOOK_SECONDS)
    console.serve()
    try:
        yield Reader(console)
    finally:
        console.close()
