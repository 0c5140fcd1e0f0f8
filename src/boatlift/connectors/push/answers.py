"""Answers to pushes: a client waits on its request until a sink has the row with the request's key.

A push gets its key in a column of its rows. Whatever the dataflow makes of them, the row of a `bl.reply` sink with the
same key is the answer. The sink keeps answers in a table of SQLite, written once: so a client that asks again, after
whatever failure, gets the same bytes, and one that has left reads its answer later.
"""

from __future__ import annotations

import base64
import logging
import math
import sqlite3 as driver
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import closing, suppress
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

    Laws:
        * A key has one answer, and each request with the key gets it, before and after any failure.
        * A request is answered once its answer is durable.

    Attributes:
        column: The column with the key of a row's push.
        seconds: How long a request waits.
        has_sink: Whether there is a sink with the answers.
        is_open: Set while that sink is open.
    """

    def __init__(self, column: str, seconds: float) -> None:
        self.column, self.seconds, self.has_sink = column, seconds, False
        self._lock = threading.Lock()
        self._waiting: defaultdict[str, list[Future[bytes]]] = defaultdict(list)
        self._look: Look | None = None
        self.is_open = threading.Event()

    def serve(self, look: Look | None) -> None:
        """Set the function that returns the answers that there are to some keys; None while no sink is open."""
        self._look = look
        if look is None:
            self.is_open.clear()
            return
        self.is_open.set()
        self.came(list(self._waiting))

    def find(self, key: str) -> bytes | None:
        """Return the answer to a key as JSON; None if there is none yet.

        Raises:
            UnavailableError: `[NOT_RUNNING]` no sink is open; `[SINK_FAILED]`.
        """
        if (look := self._look) is None:
            raise UnavailableError("NOT_RUNNING", "the sink with the answers is not open yet: ask again in a moment")
        return look([key]).get(key)

    def wait(self, key: str) -> Future[bytes]:
        """Return the coming answer to a key; `leave` ends the waiting. Raises as `find`."""
        answer: Future[bytes] = Future()
        with self._lock:
            self._waiting[key].append(answer)
        try:
            found = self.find(key)  # looked up after it waits: none can come in between
        except UnavailableError:
            self.leave(key, answer)
            raise
        if found is not None:
            _give(answer, found)
        return answer

    def leave(self, key: str, answer: Future[bytes]) -> None:
        with self._lock:
            self._waiting[key].remove(answer)
            if not self._waiting[key]:
                del self._waiting[key]

    def came(self, keys: Iterable[str]) -> None:
        """Answer the requests with these keys, as far as they have durable answers."""
        with self._lock:
            waiting = {key: list(self._waiting[key]) for key in keys if key in self._waiting}
        if not waiting or self._look is None:
            return
        try:
            found = self._look(list(waiting))
        except UnavailableError:
            logger.warning("answers cannot be read: their clients ask again", exc_info=True)
            return
        for key, text in found.items():
            for answer in waiting[key]:
                _give(answer, text)


def _give(answer: Future[bytes], found: bytes) -> None:
    with suppress(InvalidStateError):  # it has it already, or its client has left
        answer.set_result(found)


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
        of_key = f"{quoted(self._table_name)} WHERE {quoted(answers.column)} = ?"
        self._select = f"SELECT * FROM {of_key}"  # noqa: S608

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
        self._answers.serve(self._look)
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

    def _look(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the answers that there are, as JSON objects of the columns as SQLite has them."""
        found = {}
        try:
            with closing(driver.connect(f"file:{quote(str(self._path))}?mode=ro", uri=True)) as database:
                database.execute("PRAGMA busy_timeout = 5000")
                for key in keys:
                    rows = database.execute(self._select, (key,))
                    if (row := rows.fetchone()) is not None:
                        names = (each[0] for each in rows.description)
                        found[key] = msgspec.json.encode(dict(zip(names, map(_json_of, row), strict=True)))
        except driver.Error as error:
            raise UnavailableError("SINK_FAILED", f"answers in {self._path} cannot be read: {error}") from error
        return found


def _json_of(value: Any) -> Any:
    """Return a value of SQLite as JSON has it: bytes in Base64, and an infinity as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value).replace("inf", "Infinity") if isinstance(value, float) and math.isinf(value) else value
