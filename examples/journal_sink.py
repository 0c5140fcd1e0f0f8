"""A minimal sink: every row as a line of JSON in one SQLite file. `docs/connectors.md` explains it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from boatlift.connectors.kit import Decision, SinkBase, StepLedger, first_difference, read_pieces, user_columns
from boatlift.dataflow import Committed, Json, Outcome, SinkCapabilities, SinkContext, Staged
from boatlift.errors import Finding, UnavailableError

TABLES = (
    "CREATE TABLE owner (dataflow TEXT, sink TEXT, store TEXT, key TEXT, token INTEGER)",
    "CREATE TABLE steps (step INTEGER PRIMARY KEY, rows INTEGER, digest TEXT)",
    "CREATE TABLE lines (step INTEGER, line TEXT)",
)


class JournalSink(SinkBase):
    def __init__(self, path: str | Path, key: Sequence[str] | None = None) -> None:
        self.key = key
        self._path = Path(path)
        self._database: sqlite3.Connection | None = None

    @property
    def capabilities(self) -> SinkCapabilities:
        return SinkCapabilities(places=(f"journal {self._path.resolve()}",))  # which belongs to this sink alone

    def describe(self) -> Json:
        return {"kind": "journal", "path": str(self._path), "key": None if self.key is None else list(self.key)}

    def open(self, context: SinkContext) -> Committed | None:
        user_columns(context, self.key or ())  # refuses what no sink can hold, before anything is made
        self.close()
        self._context = context
        self._ledger = StepLedger(context, f"journal {self._path}", "journal", "restore it from a copy")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(self._path, timeout=60, isolation_level=None, check_same_thread=False)
        with self._transaction() as database:
            self._claim(database, self._ledger)
            return _step(database)

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        now = Committed(step, rows, digest)
        with self._transaction() as database:  # rows, number and digest: all of it is there then, or nothing
            self._check_owner(database, self._ledger)
            newest = _step(database)
            if self._ledger.decide(step, -1 if newest is None else newest.step) is Decision.COMPARE:
                held = _step(database, step)
                if held is None:
                    raise self._ledger.lacks(step)
                return self._ledger.compare(now, held, lambda: self._difference(database, now, staged))
            for piece in read_pieces(rows, staged):
                lines = [(step, json.dumps(row)) for row in piece.to_pylist()]
                database.executemany("INSERT INTO lines VALUES (?, ?)", lines)
            database.execute("INSERT INTO steps VALUES (?, ?, ?)", (step, rows, digest))
        return Outcome.APPENDED

    def verify(self) -> Iterator[Finding]:
        if not self._path.exists():
            return
        place = f"journal {self._path}"
        try:
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
                count, last = database.execute("SELECT count(*), max(step) FROM steps").fetchone()
        except sqlite3.Error as error:
            yield Finding(place, "SINK_DAMAGED", f"{place} cannot be read ({error}): restore it from a copy")
            return
        if count and count != last + 1:
            yield Finding(place, "SINK_GAP", f"{place} has {count} steps up to {last}: restore it from a copy")

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database = None

    def _claim(self, database: sqlite3.Connection, ledger: StepLedger) -> None:
        context, key = ledger.context, json.dumps(self.key)
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        if not tables:
            for statement in TABLES:
                database.execute(statement)
            owner = (context.dataflow, context.sink, context.store, key, context.token)
            database.execute("INSERT INTO owner VALUES (?, ?, ?, ?, ?)", owner)
            return
        if "owner" not in tables:
            raise ledger.foreign("was not made by a sink")
        found = database.execute("SELECT dataflow, sink, key FROM owner").fetchone()
        if found != (context.dataflow, context.sink, key):
            raise ledger.foreign(f"belongs to sink {found[1]!r} of dataflow {found[0]!r}, with key {found[2]}")
        self._check_owner(database, ledger)
        database.execute("UPDATE owner SET token = ?", (context.token,))

    @staticmethod
    def _check_owner(database: sqlite3.Connection, ledger: StepLedger) -> None:
        store, token = database.execute("SELECT store, token FROM owner").fetchone()
        ledger.refuse_other_store(store)  # before any token: tokens are numbers of one store
        ledger.refuse_newer_owner(token)

    def _difference(self, database: sqlite3.Connection, now: Committed, staged: Sequence[Staged]) -> str:
        import pyarrow as pa

        lines = database.execute("SELECT line FROM lines WHERE step = ?", (now.step,))
        held = pa.Table.from_pylist([json.loads(line) for (line,) in lines], schema=self._ledger.context.schema)
        return first_difference(held, read_pieces(now.rows, staged))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._database is None:
            raise self._ledger.failed_before()
        try:
            self._database.execute("BEGIN IMMEDIATE")  # excludes every other owner until its end
            yield self._database
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()  # which step is there now, only `open` can find out
            raise UnavailableError("SINK_FAILED", f"{self._path}: {error}; mend that, then run again") from error
        finally:
            if self._database is not None and self._database.in_transaction:
                self._database.execute("ROLLBACK")


def _step(database: sqlite3.Connection, step: int | None = None) -> Committed | None:
    """Return the record of a step, or of the newest."""
    query = "SELECT step, rows, digest FROM steps WHERE ? IS NULL OR step = ? ORDER BY step DESC LIMIT 1"
    row = database.execute(query, (step, step)).fetchone()
    return None if row is None else Committed(*row)
