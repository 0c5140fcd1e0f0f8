"""News for readers of the console, as server-sent events.

Each event has a whole status, so a reader that was away, or is slow, misses nothing by getting the newest one alone:
no event is kept for it, and none is owed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from boatlift.errors import BoatliftError, UnavailableError
from boatlift.http.connections import refusal_of
from boatlift.http.server import Receive, Send
from boatlift.web.documents import Document

READERS = 16

COMMENT_SECONDS = 15.0
"""A reader that has got nothing for so long gets a comment, so that a connection that is gone is noticed."""

GATHER_SECONDS = 0.1
"""News that come within so many seconds are one event."""


class Events:
    """Sends each new status to readers; all on the event loop of the server, but for `hint`.

    Laws:
        * A reader gets an event at once, then one for each other status, in order; a slow one leaves some out.
        * Without a reader nothing is looked at; and it is looked once in `look_seconds` at most, whatever is hinted.
        * A reader beyond `READERS` is refused with `[SERVER_BUSY]`, and none waits for another.

    Args:
        status: Returns the document of the status.
        look_seconds: From one look at the store to the next.
    """

    def __init__(self, status: Callable[[], Awaitable[Document]], look_seconds: float = 1.0) -> None:
        self._status, self._seconds = status, look_seconds
        self._readers = 0
        self._newest, self._tag, self._number = b"", "", 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watching: asyncio.Task[None] | None = None
        self._another = asyncio.Condition()
        self._hinted = asyncio.Event()
        self._over = False

    def hint(self) -> None:
        """Say that the status may be another; from any thread."""
        if self._loop is not None and self._readers:
            with suppress(RuntimeError):  # the server has ended
                self._loop.call_soon_threadsafe(self._hinted.set)

    async def close(self) -> None:
        """End the streams of all readers."""
        self._over = True
        self._hinted.set()
        async with self._another:
            self._another.notify_all()

    async def serve(self, receive: Receive, send: Send) -> None:
        """Answer a request with events, until the reader or the server ends.

        Raises:
            UnavailableError: `[SERVER_BUSY]`; nothing was answered.
        """
        if self._readers >= READERS:
            raise UnavailableError(
                "SERVER_BUSY", f"{READERS} pages follow the dataflow: close one, and load this again"
            )
        self._readers += 1
        if self._watching is None:
            self._loop = asyncio.get_running_loop()
            self._watching = self._loop.create_task(self._watch())
        telling = asyncio.ensure_future(self._tell(send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait([telling, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (telling, gone):
                each.cancel()
            await asyncio.gather(telling, gone, return_exceptions=True)
            self._readers -= 1
            if not self._readers and self._watching is not None:
                self._watching.cancel()
                self._watching, self._tag = None, ""

    async def _tell(self, send: Send) -> None:
        head = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        seen, over = 0, False
        while not over:
            with suppress(TimeoutError):
                async with asyncio.timeout(COMMENT_SECONDS), self._another:
                    while not self._has_news(seen):
                        await self._another.wait()
            body = b": nothing new\n\n" if self._number == seen else self._newest
            seen, over = self._number, self._over  # the stream may be closed while this is sent
            await send({"type": "http.response.body", "body": body, "more_body": not over})

    def _has_news(self, seen: int) -> bool:
        return self._over or (self._tag != "" and self._number != seen)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._over:
            self._hinted.clear()
            looked = loop.time()
            await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._hinted.wait()
            await asyncio.sleep(max(GATHER_SECONDS, looked + self._seconds - loop.time()))

    async def _look(self) -> None:
        try:
            status = await self._status()
            kind, content, tag = b"status", status.content, status.tag
        except BoatliftError as error:  # it may pass: the store is away, or is being written
            kind, content, tag = b"trouble", refusal_of(error).body, str(error)
        except Exception as error:  # noqa: BLE001 - readers get it
            kind, content, tag = b"trouble", refusal_of(error).body, repr(error)
        if tag == self._tag:
            return
        async with self._another:
            self._newest = b"id: %d\nevent: %s\ndata: %s\n\n" % (self._number + 1, kind, content)
            self._tag, self._number = tag, self._number + 1
            self._another.notify_all()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
