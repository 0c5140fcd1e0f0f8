"""A table in an SQLite database as a sink, with one row a key.

A step's rows, its number and its digest are written in one `BEGIN IMMEDIATE` transaction, so all of it is in the
database or nothing. `docs/formats/sqlite-sink.md` describes every byte, and `database` explains durability.

**Fencing.** The owner's token is in the database, and every commit reads it inside its own transaction. `open` and
`commit` exclude each other. So an older owner either has committed before `open` returned, and `open` returns that
step; or it finds the newer token and stops. A process that was stopped inside its transaction holds SQLite's lock,
which no other process may break. The successor waits, and then its error says how to find the process.
"""

from __future__ import annotations

import sqlite3 as driver
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from boatlift.connectors.kit import (
    Decision,
    SinkBase,
    StepLedger,
    checked_options,
    read_pieces,
    user_columns,
)
from boatlift.connectors.sqlite.database import Database, quoted
from boatlift.dataflow.contracts import (
    Committed,
    HeldRow,
    Json,
    Outcome,
    SinkCapabilities,
    SinkContext,
    SinkTwin,
    Staged,
    commit_together,
)
from boatlift.errors import DataError, Finding, InvalidError
from boatlift.paths import refuse_url
from boatlift.storage.filesystem import FileSystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from boatlift.connectors.sqlite.table import KeyedTable

_T = TypeVar("_T")
_NEWEST = 2**63 - 1
"""The largest number of a step: SQLite has no larger integer."""


@checked_options("bl.sqlite")
def sqlite(
    path: str | Path,
    *,
    table: str,
    key: Sequence[str],
    unique: bool = False,
    nan: Literal["refuse", "text"] = "refuse",
    lock_timeout: float = 60.0,
) -> SqliteSink:
    """Return a sink that keeps the newest row of every key in a table of an SQLite database.

    Args:
        path: The database file; made if absent. It may have other tables, and tables of other sinks.
        table: The table; the sink makes it, and no other program writes to it.
        key: The columns that tell rows apart; NULL is a key like any other.
        unique: True asserts that no two current rows have the same key, if the program does not prove it. The table
            then never replaces a row: a step with a second row of a key stops the dataflow (`[DUPLICATE_KEY]`), and
            nothing of the step is in the table.
        nan: The treatment of NaN, which SQLite cannot hold: `refuse` stops, `text` writes the text `NaN`.
        lock_timeout: How long to wait, in seconds, while another process is writing.

    Raises:
        InvalidError: `[BAD_OPTION]`.

    Examples:
        >>> worst = flights.group_by("origin").agg("worst", F.max("arr_delay").alias("delay"))
        >>> worst.sink("answers", bl.sqlite("answers.db", table="worst", key=["origin"]))
    """
    refuse_url(path, "a database")
    if isinstance(key, str) or not key or len(set(key)) != len(key):
        raise InvalidError("BAD_OPTION", f"key is {key!r}: give a list of different column names")
    if nan not in ("refuse", "text"):
        raise InvalidError("BAD_OPTION", f"nan is {nan!r}: choose 'refuse' or 'text'")
    if not table or "\0" in table or table.lower().startswith(("sqlite_", "_boatlift")):
        raise InvalidError("BAD_OPTION", f"table is {table!r}: choose a name that begins otherwise")
    if unique is not True and unique is not False:
        raise InvalidError("BAD_OPTION", f"unique is {unique!r}: choose True or False")
    if lock_timeout < 0:
        raise InvalidError("BAD_OPTION", f"lock_timeout is {lock_timeout}: give seconds, 0 or more")
    return SqliteSink(Path(path).absolute(), table, tuple(key), unique, nan == "text", lock_timeout)


class SqliteSink(SinkBase):
    """One row a key; the step's number is checked and recorded in the transaction of its rows.

    Args:
        filesystem: The acts that make the database's own name durable; a parameter so that tests can record them.
    """

    def __init__(
        self,
        path: Path,
        table: str,
        key: Sequence[str],
        unique: bool,
        nan_as_text: bool,
        lock_timeout: float,
        filesystem: FileSystem | None = None,
    ) -> None:
        self.key: Sequence[str] | None = key
        self._path = path
        self.shared_place = f"SQLite file {realpath(path)}"
        self._places = (f"table {table.lower()} of {realpath(path)}",)  # names of tables have no case in SQLite
        self._table_name = table
        self._key = key
        self._unique = unique
        self._nan_as_text = nan_as_text
        self._lock_timeout = lock_timeout
        self._database = Database(path, lock_timeout, filesystem or FileSystem())
        self._table: KeyedTable | None = None
        self._noted: Sequence[bytes] = ()

    @property
    def capabilities(self) -> SinkCapabilities:
        return SinkCapabilities(
            places=self._places,
            refuses_duplicates=self._unique,
            preflight=self._preflight,
            reads_back=self,
            keeps_note=self,
            shares_transaction=self,
            twin=self._twin,
        )

    def _twin(self, folder: Path, _name: str) -> SinkTwin:
        path = folder / f"sqlite-{sha256(realpath(self._path).encode()).hexdigest()[:12]}.db"

        def held() -> Iterator[HeldRow]:
            with closing(driver.connect(path)) as database:
                database.row_factory = driver.Row
                for row in database.execute(f"SELECT * FROM {quoted(self._table_name)}"):  # noqa: S608 - quoted
                    yield HeldRow(dict(row))

        twin = SqliteSink(path, self._table_name, self._key, self._unique, self._nan_as_text, self._lock_timeout)
        return SinkTwin(twin, held)

    def describe(self) -> Json:
        unique = {"unique": True} if self._unique else {}
        nan = "text" if self._nan_as_text else "refuse"
        place = {"kind": "sqlite", "path": str(self._path), "table": self._table_name}
        return {**place, "key": list(self._key), "nan": nan, **unique}

    def open(self, context: SinkContext) -> Committed | None:
        from boatlift.connectors.sqlite.table import KeyedTable

        self.close()
        self._context = context
        fields = user_columns(context, self._key)
        self._table = KeyedTable(self._table_name, self._key, fields, context.changes, self._unique, self._nan_as_text)
        try:
            with self._database.errors():
                self._database.connect()
                with self._database.transaction() as db:
                    self._claim(db, self._ledger(context), self._table)
                    noted = "SELECT note FROM _boatlift_notes WHERE dataflow = ? AND sink = ?"
                    self._noted = [note for (note,) in db.execute(noted, (context.dataflow, context.sink))]
                    return self._step(db, context)
        except BaseException:
            self.close()
            raise

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        return commit_together(self, [self.step_write(step, rows, digest, staged)])[0]

    def step_write(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> _TableStep:
        return _TableStep(self, Committed(step, rows, digest), staged, self._take_note())

    def transaction(self, act: Callable[[driver.Connection], _T]) -> _T:
        if not self._database.is_connected:
            raise self._ledger(self._opened).failed_before()
        with self._database.errors(), self._database.transaction() as connection:
            return act(connection)

    def write(self, db: driver.Connection, now: Committed, staged: Sequence[Staged], note: bytes) -> Outcome:
        """Write a step in a transaction, or compare it."""
        from boatlift.connectors.sqlite.table import KEPT_STEPS

        context, table, step = self._opened, self._table, now.step
        assert table is not None, "open comes first"
        ledger = self._ledger(context)
        self._check_owner(db, ledger)
        newest = self._step(db, context)
        held = -1 if newest is None else newest.step
        if ledger.decide(step, held) is Decision.COMPARE:
            record = self._step(db, context, step)
            if record is None and step <= held - KEPT_STEPS:
                return ledger.too_old(step)
            if record is None:
                raise ledger.lacks(step)

            def difference() -> str:
                # Later steps have overwritten the rows of older steps: only the newest can be compared row by row.
                return table.difference(db, read_pieces(now.rows, staged)) if step == held and staged else ""

            return ledger.compare(now, record, difference)
        table.add_columns(db)
        table.apply(db, read_pieces(now.rows, staged))
        db.execute(
            "INSERT INTO _boatlift_ledger (dataflow, sink, step, rows, digest, token) VALUES (?, ?, ?, ?, ?, ?)",
            (context.dataflow, context.sink, step, now.rows, now.digest, context.token),
        )
        db.execute(
            "DELETE FROM _boatlift_ledger WHERE dataflow = ? AND sink = ? AND step <= ?",
            (context.dataflow, context.sink, step - KEPT_STEPS),
        )
        if note:
            db.execute(
                "INSERT OR REPLACE INTO _boatlift_notes (dataflow, sink, note) VALUES (?, ?, ?)",
                (context.dataflow, context.sink, note),
            )
        return Outcome.APPENDED

    def notes(self) -> Sequence[bytes]:
        return self._noted

    def held(self, spark: SparkSession) -> DataFrame | None:
        table = self._table
        assert table is not None, "open comes first"
        with self._database.errors():
            rows = table.held(self._database.connection)
        return spark.createDataFrame(rows) if rows.num_rows else None

    def verify(self) -> Iterator[Finding]:
        """Check the database as SQLite does, the table's entry and its ledger; values carry no checksum."""
        from boatlift.connectors.sqlite.table import verify_table

        yield from verify_table(self._path, self._table_name)

    def close(self) -> None:
        self._database.close()

    def _preflight(self, context: SinkContext) -> None:
        from boatlift.connectors.sqlite.table import owner_of

        owner, ledger = owner_of(self._path, self._table_name), self._ledger(context)
        if owner is not None:
            dataflow, sink, store = owner
            if (dataflow, sink) != (context.dataflow, context.sink):
                raise ledger.foreign(f"belongs to sink {sink!r} of dataflow {dataflow!r}")
            ledger.refuse_other_store(store)

    def _claim(self, db: driver.Connection, ledger: StepLedger, table: KeyedTable) -> None:
        from boatlift.connectors.sqlite.table import FORMAT, LEDGER

        context = ledger.context
        for statement in LEDGER:
            db.execute(statement)
        name = (context.dataflow, context.sink)
        owner = db.execute(
            'SELECT dataflow, sink, format FROM _boatlift_sinks WHERE "table" = ?', (table.name,)
        ).fetchone()
        found = table.found(db)
        if owner is None:
            if found:
                raise ledger.foreign("was not made by a sink")
            held = db.execute('SELECT "table" FROM _boatlift_sinks WHERE dataflow = ? AND sink = ?', name)
            for (other,) in held:
                raise ledger.foreign(
                    f"is not where sink {context.sink!r} of {context.dataflow!r} wrote: that is {other}"
                )
            table.create(db)
            db.execute(
                'INSERT INTO _boatlift_sinks (dataflow, sink, "table", store, token, format) VALUES (?, ?, ?, ?, ?, ?)',
                (*name, table.name, context.store, context.token, FORMAT),
            )
            return
        if owner[2] > FORMAT:
            message = f"{ledger.place} has format {owner[2]}, this version writes {FORMAT}: upgrade Boatlift"
            raise DataError("NEWER_FORMAT", message)
        if owner[:2] != name:
            raise ledger.foreign(f"belongs to sink {owner[1]!r} of dataflow {owner[0]!r}")
        self._check_owner(db, ledger)
        if not found:
            raise DataError("SINK_DAMAGED", f"{ledger.place} is gone but its ledger is there: restore the database")
        key = table.keyed_by(db)
        if not dict(found).items() <= dict(table.columns).items() or key != table.key:
            raise ledger.foreign(f"has columns {found} and key {key}, not {table.columns}")
        db.execute("UPDATE _boatlift_sinks SET token = ? WHERE dataflow = ? AND sink = ?", (context.token, *name))

    def _check_owner(self, db: driver.Connection, ledger: StepLedger) -> None:
        found = db.execute(
            "SELECT store, token FROM _boatlift_sinks WHERE dataflow = ? AND sink = ?",
            (ledger.context.dataflow, ledger.context.sink),
        ).fetchone()
        if found is None:
            lost = f"{ledger.place} has lost its entry in _boatlift_sinks: restore the database"
            raise DataError("SINK_DAMAGED", lost)
        store, token = found
        ledger.refuse_other_store(store)
        ledger.refuse_newer_owner(token)

    def _step(self, db: driver.Connection, context: SinkContext, step: int | None = None) -> Committed | None:
        row = db.execute(
            "SELECT step, rows, digest FROM _boatlift_ledger WHERE dataflow = ? AND sink = ? AND step <= ? "
            "ORDER BY step DESC LIMIT 1",
            (context.dataflow, context.sink, _NEWEST if step is None else step),
        ).fetchone()
        return None if row is None or step not in (None, row[0]) else Committed(*row)

    def _ledger(self, context: SinkContext) -> StepLedger:
        return StepLedger(context, f"table {self._table_name} of {self._path}", "table", "restore the database")


@dataclass(frozen=True, slots=True)
class _TableStep:
    sink: SqliteSink
    now: Committed
    staged: Sequence[Staged]
    note: bytes

    def prepare(self, transaction: driver.Connection) -> None:
        """Do nothing: SQLite adds columns within a transaction."""

    def write(self, transaction: driver.Connection) -> Outcome:
        return self.sink.write(transaction, self.now, self.staged, self.note)

    def ended(self, outcome: Outcome) -> None:
        """Do nothing: the database alone knows what it holds."""
