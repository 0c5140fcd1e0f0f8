"""Answers to pushes: a client waits on its request until a sink has the row with the request's key.

A push gets its key in a column of its rows. Whatever the dataflow makes of them, the row of a `bl.reply` sink with the
same key is the answer. The sink keeps answers in a table of SQLite, written once: so a client that asks again, after
whatever failure, gets the same bytes, and one that has left reads its answer later.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import sqlite3 as driver
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from boatlift.connectors.kit import checked_options, read_pieces
from boatlift.connectors.sqlite.database import quoted
from boatlift.connectors.sqlite.sink import SqliteSink, sqlite
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import Committed, Json, Outcome, SinkContext, Staged
from boatlift.errors import DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

    from boatlift.connectors.push.source import PushSource


Look = Callable[[Sequence[str]], dict[str, bytes]]

logger = logging.getLogger(__name__)


class PushAnswers:
    """The requests that wait for an answer, and the sink that has the answers.

    The thread of the server alone calls `wait` and `leave`; any thread may call the others.

    Laws:
        * A key has one answer, and each request with the key gets it, before and after any failure.
        * A request is answered once its answer is durable.
        * All requests that a step answers cost one look into the sink, and wake the server once.

    Attributes:
        column: The column with the key of a row's push.
        seconds: How long a request waits.
        has_sink: Whether there is a sink with the answers.
        is_open: Set while that sink is open.
    """

    def __init__(self, column: str, seconds: float) -> None:
        self.column, self.seconds, self.has_sink = column, seconds, False
        self._waiting: dict[str, list[asyncio.Future[bytes | None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look: Look | None = None
        self.is_open = threading.Event()

    def give_key(self, rows: Sequence[dict[str, Any]], key: str | None) -> None:
        """Give the one row of a push its key.

        Raises:
            InvalidError: `[BAD_OPTION]` the push has no key.
            DataError: `[BAD_ROW]` it has several rows, or its row another key.
        """
        if key is None:
            raise InvalidError("BAD_OPTION", "a push that is answered needs a key of its own: send Idempotency-Key")
        if len(rows) > 1:
            raise DataError("BAD_ROW", f"{len(rows)} rows under one key, which has one answer: push them one by one")
        for row in rows:
            if row.get(self.column) not in (None, key):
                raise DataError("BAD_ROW", f"{self.column} is the key of the push: leave it out, or give {key!r}")
            row[self.column] = key

    def serve(self, look: Look | None) -> None:
        """Set the function that returns the answers that there are to some keys; None while no sink is open."""
        self._look = look
        if look is None:
            self.is_open.clear()
            return
        self.is_open.set()
        self.came(list(self._waiting))

    def look(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the answers that there are to some keys, as JSON.

        Raises:
            UnavailableError: `[NOT_RUNNING]` no sink is open; `[SINK_FAILED]`.
        """
        if (look := self._look) is None:
            raise UnavailableError("NOT_RUNNING", "the sink with the answers is not open yet: ask again in a moment")
        return look(keys)

    def find(self, key: str) -> bytes | None:
        """Return the answer to a key as JSON; None if there is none yet. Raises as `look`."""
        return self.look([key]).get(key)

    def wait(self, key: str) -> asyncio.Future[bytes | None]:
        """Return the coming answer to a key; `leave` ends the waiting.

        No answer is missed if the request waits before its row is recorded; for a row that was recorded before, look
        afterwards.
        """
        self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes | None] = self._loop.create_future()
        self._waiting.setdefault(key, []).append(answer)
        return answer

    def leave(self, key: str, answer: asyncio.Future[bytes | None]) -> None:
        left = [each for each in self._waiting.get(key, ()) if each is not answer]
        if left:
            self._waiting[key] = left  # `came` finds the key at any time
        else:
            self._waiting.pop(key, None)

    def came(self, keys: Iterable[str]) -> None:
        """Answer the requests with these keys, as far as they have durable answers."""
        wanted, loop = [key for key in keys if key in self._waiting], self._loop
        if not wanted or loop is None or self._look is None:
            return
        try:
            found = self._look(wanted)
        except UnavailableError:
            logger.warning("answers cannot be read: their clients ask again", exc_info=True)
            return
        with suppress(RuntimeError):  # the server has ended, and the requests with it
            loop.call_soon_threadsafe(self._give, found)

    def _give(self, found: Mapping[str, bytes]) -> None:
        for key, text in found.items():
            for answer in self._waiting.get(key, ()):
                if not answer.done():  # else its time is over
                    answer.set_result(text)


@checked_options("bl.reply")
def reply(source: PushSource, path: str | Path, *, table: str = "answers") -> ReplySink:
    """Return a sink that answers the requests of pushes, exactly once.

    Each row answers the request whose key it has in the source's key column. The answer is the row as a JSON object.
    A second row with a key stops the dataflow before it is an answer (`[DUPLICATE_KEY]`).

    Args:
        source: The source of the pushes: `bl.push(…, ack="answer", key="COLUMN")`.
        path: The database file of SQLite that keeps the answers; made if absent.
        table: The table; the sink makes it, and no other program writes to it.

    Raises:
        InvalidError: `[BAD_OPTION]` the source does not answer so.

    Examples:
        >>> questions = bl.push("id STRING, origin STRING", ack="answer", key="id")
        >>> asked = flow.source("questions", questions)
        >>> asked.transform("answers", lambda df: df).sink("replies", bl.reply(questions, "answers.db"))
    """
    answers = getattr(source, "answers", None)
    if answers is None:
        raise InvalidError("BAD_OPTION", 'give bl.reply the source of the pushes: bl.push(…, ack="answer", key="id")')
    if answers.has_sink:
        raise InvalidError("BAD_OPTION", "the source has a bl.reply already: give all answers to one sink")
    answers.has_sink = True
    return ReplySink(answers, sqlite(path, table=table, key=[answers.column], unique=True))


class ReplySink(SqliteSink):
    """A table of SQLite whose rows are never replaced, and which answers requests."""

    def __init__(self, answers: PushAnswers, table: SqliteSink) -> None:
        self.__dict__.update(table.__dict__)
        self._answers = answers
        self._kept = _KeptAnswers(self._path, self._table_name, answers.column)

    def describe(self) -> Json:
        return {**super().describe(), "kind": "reply"}

    def open(self, context: SinkContext) -> Committed | None:
        from boatlift.connectors.kit.arrow_text import is_string

        column = self._answers.column
        if column in context.schema.names and not is_string(context.schema.field(column).type):
            raise InvalidError(
                "TYPE_REFUSED", f"{column} is the key of a push, a STRING: let {context.sink} have it so"
            )
        held = super().open(context)
        self._answers.serve(self._kept.look)
        return held

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        pieces = read_pieces(rows, staged) if staged else []
        keys = [key for piece in pieces for key in self._keys_of(piece, step)]
        outcome = super().commit(step, rows, digest, staged)
        self._answers.came(keys)
        return outcome

    def close(self) -> None:
        answers = self.__dict__.get("_answers")
        if answers is not None:
            answers.serve(None)
            self._kept.close()
        super().close()

    def _keys_of(self, piece: pa.Table, step: int) -> list[str]:
        keys: list[str | None] = piece.column(self._answers.column).to_pylist()
        if WEIGHT in piece.column_names and any(weight < 0 for weight in piece.column(WEIGHT).to_pylist()):
            raise DataError(
                "ANSWER_CHANGED",
                f"step {step} of {self._opened.sink} takes an answer back, which a client may have: let a row of the "
                "stream answer a request only when it is final",
            )
        if None in keys:
            raise DataError(
                "ANSWER_WITHOUT_KEY",
                f"step {step} of {self._opened.sink} has a row without {self._answers.column}: pass the column on, or "
                "filter such rows out",
            )
        return [key for key in keys if key is not None]


class _KeptAnswers:
    """Reads the table of answers, through one connection of its own that stays open."""

    def __init__(self, path: Path, table: str, column: str) -> None:
        self._path, self._column, self._lock = path, column, threading.Lock()
        some = f"{quoted(table)} WHERE {quoted(column)} IN"
        self._select = f"SELECT * FROM {some} (SELECT value FROM json_each(?))"  # noqa: S608 - quoted
        self._connection: driver.Connection | None = None

    def look(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the answers that there are, as JSON objects of the columns as SQLite has them."""
        with self._lock:
            try:
                if self._connection is None:
                    there = f"file:{quote(str(self._path))}?mode=ro"
                    self._connection = driver.connect(there, uri=True, check_same_thread=False, isolation_level=None)
                    self._connection.execute("PRAGMA busy_timeout = 5000")
                cursor = self._connection.execute(self._select, (json.dumps(keys),))
                names, rows = [each[0] for each in cursor.description], cursor.fetchall()
            except driver.Error as error:
                self._close()
                raise UnavailableError("SINK_FAILED", f"answers in {self._path} cannot be read: {error}") from error
        place = names.index(self._column)
        return {row[place]: msgspec.json.encode(dict(zip(names, map(_json_of, row), strict=True))) for row in rows}

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _json_of(value: Any) -> Any:
    """Return a value of SQLite as JSON has it: bytes in Base64, and an infinity as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value).replace("inf", "Infinity") if isinstance(value, float) and math.isinf(value) else value
