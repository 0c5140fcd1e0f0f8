"""Answers to pushes: a client waits on its request until a sink has the row with the request's key.

A push gets its key in a column of its rows. Whatever the dataflow makes of them, the row of a `bl.reply` sink with the
same key is the answer. The sink keeps answers in a table of SQLite, written once: so a client that asks again, after
whatever failure, gets the same bytes, and one that has left reads its answer later.
"""

from __future__ import annotations

import base64
import sqlite3 as driver
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from boatlift.connectors.kit import checked_options, read_pieces
from boatlift.connectors.sqlite.database import quoted
from boatlift.connectors.sqlite.sink import SqliteSink, sqlite
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import Committed, Json, Outcome, SinkContext, Staged
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    import pyarrow as pa

    from boatlift.connectors.push.source import PushSource


class Answers:
    """The requests that wait for an answer, and the sink that has the answers.

    Laws:
        * A key has one answer, and each request with the key gets it, before and after any failure.
        * A request is answered once its answer is durable.

    Attributes:
        column: The column with the key of a row's push.
        seconds: How long a request waits.
    """

    def __init__(self, column: str, seconds: float) -> None:
        self.column, self.seconds = column, seconds
        self._lock = threading.Lock()
        self._waiting: defaultdict[str, list[Future[bytes]]] = defaultdict(list)
        self._look: Callable[[str], bytes | None] | None = None

    def serve(self, look: Callable[[str], bytes | None] | None) -> None:
        """Set the function that returns the answer to a key, if there is one; None while no sink is open."""
        self._look = look

    def find(self, key: str) -> bytes | None:
        """Return the answer to a key as JSON; None if there is none yet."""
        look = self._look
        return None if look is None else look(key)

    def wait(self, key: str) -> Future[bytes]:
        """Return the coming answer to a key; `leave` ends the waiting."""
        answer: Future[bytes] = Future()
        with self._lock:
            self._waiting[key].append(answer)
        if (found := self.find(key)) is not None:  # looked up after it waits: none can come in between
            _give(answer, found)
        return answer

    def leave(self, key: str, answer: Future[bytes]) -> None:
        with self._lock:
            self._waiting[key].remove(answer)
            if not self._waiting[key]:
                del self._waiting[key]

    def came(self, keys: Iterable[str]) -> None:
        """Answer the requests with these keys, whose answers are durable now."""
        with self._lock:
            waiting = {key: list(self._waiting[key]) for key in keys if key in self._waiting}
        for key, answers in waiting.items():
            found = self.find(key)
            assert found is not None, "it is durable"
            for answer in answers:
                _give(answer, found)


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
    return ReplySink(answers, sqlite(path, table=table, key=[answers.column], unique=True))


class ReplySink(SqliteSink):
    """A table of SQLite whose rows are never replaced, and which answers requests."""

    def __init__(self, answers: Answers, table: SqliteSink) -> None:
        self.__dict__.update(table.__dict__)
        self._answers = answers
        of_key = f"{quoted(self._table_name)} WHERE {quoted(answers.column)} = ?"
        self._select = f"SELECT * FROM {of_key}"  # noqa: S608

    def describe(self) -> Json:
        return {**super().describe(), "kind": "reply"}

    def open(self, context: SinkContext) -> Committed | None:
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

    def _look(self, key: str) -> bytes | None:
        """Return the answer to a key as a JSON object of the columns as SQLite has them."""
        with closing(driver.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA busy_timeout = 5000")
            found = database.execute(self._select, (key,))
            names = [each[0] for each in found.description]
            row = found.fetchone()
        if row is None:
            return None
        values = [base64.b64encode(value).decode() if isinstance(value, bytes) else value for value in row]
        return msgspec.json.encode(dict(zip(names, values, strict=True)))
