"""News for readers: what they get, how many there may be, and that none waits for another."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from boatlift.storage.records.records import SinkCommit, Stopped
from boatlift.web.documents import Document
from boatlift.web.events import GATHER_SECONDS, READERS, Events
from support.console import consoling
from support.engine.hosts import crashed
from support.waiting import until
from support.worlds.facts import made


def test_a_reader_gets_the_status_at_once_and_each_one_after(tmp_path: Path) -> None:
    log = crashed(tmp_path)
    with consoling(tmp_path) as reader, reader.events() as events:
        kind, first = next(events)
        assert (kind, first["sinks"]["totals"], first["state"]) == ("status", 5, "running or crashed")
        log.append([SinkCommit("totals", 6)])
        assert next(events)[1]["sinks"]["totals"] == 6
        log.append([Stopped()])
        assert next(events)[1]["state"] == "stopped"


def test_trouble_with_the_store_is_told_and_its_end_too(tmp_path: Path) -> None:
    crashed(tmp_path)
    newest = max((tmp_path / "log").iterdir())
    whole = newest.read_bytes()
    with consoling(tmp_path) as reader, reader.events() as events:
        assert next(events)[0] == "status"
        (tmp_path / "log").rename(tmp_path / "away")
        kind, said = next(events)
        assert kind == "trouble"
        assert said["condition"]
        assert said["message"]
        (tmp_path / "away").rename(tmp_path / "log")
        assert next(events)[0] == "status"
    assert newest.read_bytes() == whole


def test_one_reader_too_many_is_refused_and_has_a_place_once_another_leaves(tmp_path: Path) -> None:
    crashed(tmp_path)
    with consoling(tmp_path) as reader, ExitStack() as others:
        first = ExitStack()
        next(first.enter_context(reader.events()))
        for _ in range(READERS - 1):
            assert next(others.enter_context(reader.events()))[0] == "status"
        with pytest.raises(AssertionError, match="SERVER_BUSY"), reader.events():
            pass
        refused = reader.ask("/api/v1/events")
        assert (refused.status, refused.json["condition"], refused.headers["retry-after"]) == (503, "SERVER_BUSY", "1")
        assert reader.document("status")["state"] == "running or crashed", "documents are for all"
        first.close()
        until(lambda: reader.console._events._readers == READERS - 1)
        next(others.enter_context(reader.events()))


def test_a_reader_that_never_reads_keeps_nobody_waiting(tmp_path: Path) -> None:
    log = crashed(tmp_path)
    with consoling(tmp_path) as reader, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect(reader.address)
        deaf.sendall(
            f"GET /api/v1/events HTTP/1.1\r\nHost: localhost:{reader.address[1]}\r\n"
            f"Authorization: Bearer {reader.token}\r\n\r\n".encode()
        )
        with reader.events() as events:
            seen = (said["sinks"]["totals"] for kind, said in events if kind == "status")
            for step in range(7, 40):
                log.append([made(step, "rows"), SinkCommit("totals", step)])
                assert step in seen, "the stream has ended"


def test_while_nobody_reads_nothing_is_looked_at(tmp_path: Path) -> None:
    crashed(tmp_path)
    with consoling(tmp_path) as reader:
        with reader.events() as events:
            next(events)
            assert reader.console._events._watching is not None
        until(lambda: reader.console._events._watching is None)


def test_hints_lead_to_one_look_in_the_pause_between_two(tmp_path: Path) -> None:
    """Whatever steps do: each of them hints."""
    looks = 0

    async def status() -> Document:
        nonlocal looks
        looks += 1
        return Document(b"{}", str(looks))

    async def hinted() -> None:
        events, came = Events(status, 3600.0), asyncio.Event()

        async def send(message: dict[str, Any]) -> None:
            came.set()
            for _ in range(100):
                events.hint()
                await asyncio.sleep(0)

        serving = asyncio.create_task(events.serve(asyncio.Event().wait, send))  # type: ignore[arg-type]
        await came.wait()
        await asyncio.sleep(2 * GATHER_SECONDS)
        await events.close()
        await serving

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, asyncio.wait_for(hinted(), 30)).result()
    assert looks == 1


def test_the_end_of_the_console_ends_the_stream(tmp_path: Path) -> None:
    crashed(tmp_path)
    with ExitStack() as stack:
        with consoling(tmp_path) as reader:
            events = stack.enter_context(reader.events())
            next(events)
        assert [kind for kind, _ in events if kind != "status"] == []


def test_a_stream_that_is_closed_while_it_sends_has_an_end() -> None:
    """A browser takes a stream without an end for a fault of the server."""
    sent: list[dict[str, Any]] = []

    async def status() -> Document:
        return Document(b"{}", "1")

    async def served() -> None:
        events = Events(status)

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if message["type"] == "http.response.body":
                await events.close()

        await events.serve(asyncio.Event().wait, send)  # type: ignore[arg-type]

    # On a thread of its own: this one may have the loop of a browser.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, asyncio.wait_for(served(), 30)).result()
    assert [message.get("more_body") for message in sent] == [None, True, False]
