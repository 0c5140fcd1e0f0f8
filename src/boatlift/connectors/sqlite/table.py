"""The SQL of a SQLite sink: the table for readers, the ledger beside it, and checks of both without the owner.

**NULL is one key.** SQLite's unique indexes treat any two NULLs as different, so `ON CONFLICT` never finds a NULL key.
The index is nevertheless a plain one over the key columns, because queries of readers use it. Rows with a NULL in the
key are replaced by `DELETE … WHERE k IS ?` and `INSERT`, which use the same index.

**Values.** No value changes, and NULL stays NULL:

| Arrow | SQLite | kept as |
|---|---|---|
| integers | INTEGER | exact 64 bits |
| booleans | INTEGER | 0 or 1 |
| floats | REAL | exact; −0.0 as 0.0 (SQLite has one zero); NaN refused, or the text `NaN`; infinities as such |
| decimals | TEXT | all digits of the scale, no exponent: `12.50` |
| strings | TEXT | as they are |
| binary | BLOB | as it is |
| dates | TEXT | `2013-01-31` |
| timestamps | TEXT | `2013-01-31T06:05:00.000000`, with a `Z` at the end if they are instants (UTC) |
| times of day | TEXT | `06:05:00.000000` |

Years beyond 9999 and before 0 have a sign: `+55840-11-08`, `-1199-02-15`.

All other types are refused with `[TYPE_REFUSED]`: cast them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from boatlift.connectors.kit import difference_of_rows
from boatlift.connectors.kit.arrow_text import dates_as_text, is_string, times_of_day, timestamps_as_text
from boatlift.connectors.sqlite.database import error_of, quoted
from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import DataError, Finding, InvalidError

FORMAT = 1

KEPT_STEPS = 65_536
"""The steps of a sink in the ledger, some 6 MB: a replay of older steps is not compared."""

_T = TypeVar("_T")

_AT_ONCE = 100_000  # rows that are Python objects at the same time

LEDGER = (
    """CREATE TABLE IF NOT EXISTS _boatlift_sinks (
        dataflow TEXT NOT NULL, sink TEXT NOT NULL, "table" TEXT NOT NULL UNIQUE COLLATE NOCASE,
        store TEXT NOT NULL, token INTEGER NOT NULL, format INTEGER NOT NULL,
        PRIMARY KEY (dataflow, sink)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS _boatlift_ledger (
        dataflow TEXT NOT NULL, sink TEXT NOT NULL, step INTEGER NOT NULL,
        rows INTEGER NOT NULL, digest TEXT NOT NULL, token INTEGER NOT NULL,
        PRIMARY KEY (dataflow, sink, step)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS _boatlift_notes (
        dataflow TEXT NOT NULL, sink TEXT NOT NULL, note BLOB NOT NULL,
        PRIMARY KEY (dataflow, sink)) WITHOUT ROWID""",
)
"""The statements for the tables with the steps of all sinks of a database, and with the newest note of each."""


def column_type(field: pa.Field) -> str:
    """Return the declared type, and with it the affinity, of the SQLite column for an Arrow column."""
    kind = field.type
    if (pa.types.is_integer(kind) and kind != pa.uint64()) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "BLOB"
    if (
        is_string(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_time(kind)
    ):
        return "TEXT"
    raise InvalidError(
        "TYPE_REFUSED", f"SQLite cannot hold column {field.name} of type {kind}: cast it in a transform, or drop it"
    )


def column_values(name: str, values: pa.ChunkedArray, nan_as_text: bool) -> list[Any]:
    """Return a column's values as SQLite takes them.

    Raises:
        DataError: `[NAN_REFUSED]`, naming the column: SQLite would turn NaN into NULL.
    """
    kind = values.type
    if pa.types.is_boolean(kind):
        return _numbers(values.cast(pa.int8()))
    if pa.types.is_floating(kind):
        return _floats(name, values.cast(pa.float64()), nan_as_text)
    if pa.types.is_integer(kind):
        return _numbers(values)
    if pa.types.is_decimal(kind):
        return [None if value is None else format(value, "f") for value in values.to_pylist()]
    if pa.types.is_timestamp(kind):
        return list(timestamps_as_text(values).to_pylist())
    if pa.types.is_date(kind):
        return list(dates_as_text(values).to_pylist())
    if pa.types.is_time(kind):
        return list(values.cast(pa.string()).to_pylist())
    return list(values.to_pylist())


def _numbers(values: pa.ChunkedArray) -> list[Any]:
    # NumPy is ten times as fast, but would turn integers beside NULLs into floats.
    return list(values.to_pylist() if values.null_count else values.to_numpy().tolist())


def _floats(name: str, values: pa.ChunkedArray, nan_as_text: bool) -> list[Any]:
    nans = pc.sum(pc.is_nan(values)).as_py() or 0
    if not nans:
        return _numbers(values)
    if not nan_as_text:
        raise DataError(
            "NAN_REFUSED",
            f"column {name} holds {nans} NaN, which SQLite would turn into NULL: choose nan='text', or filter them",
        )
    return ["NaN" if value is not None and value != value else value for value in values.to_pylist()]


def declared_values(table: str, field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """Return values of a column as SQLite gives them, with the column's declared type.

    Raises:
        InvalidError: `[SINK_NOT_READABLE]` a value is none of that type.
    """
    kind = field.type
    try:
        if pa.types.is_boolean(kind):
            return pa.array([None if value is None else bool(value) for value in values], kind)
        if pa.types.is_floating(kind):
            return pa.array([None if value is None else float(value) for value in values], pa.float64()).cast(kind)
        if pa.types.is_decimal(kind):
            return pa.array([None if value is None else Decimal(value) for value in values], kind)
        if pa.types.is_timestamp(kind):
            zone = pa.timestamp("us", "UTC" if kind.tz else None)
            return pa.array(values, pa.string()).cast(zone).cast(kind)
        if pa.types.is_time(kind):
            return times_of_day(pa.array(values, pa.string()), kind)
        if pa.types.is_date(kind):
            return pa.array(values, pa.string()).cast(kind)
        return pa.array(values, kind)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise InvalidError(
            "SINK_NOT_READABLE",
            f"column {field.name} of table {table} holds a value that is no {kind} ({error}): mend it, or choose "
            "--change SINK=now",
        ) from error


class KeyedTable:
    """A table with one row a key, and the statements that change it.

    Args:
        fields: Its columns, the key's among them.
        weighted: Whether rows have a weight: +1 an upsert, −1 a delete. Otherwise all are upserts.
        unique: Whether a second row of a key is refused; otherwise it replaces the first.
    """

    def __init__(
        self, name: str, key: Sequence[str], fields: Sequence[pa.Field], weighted: bool, unique: bool, nan_as_text: bool
    ) -> None:
        self.name = name
        self._unique = unique
        self._weighted = weighted
        self._nan_as_text = nan_as_text
        names = [field.name for field in fields]
        if any("\0" in column for column in names):
            raise InvalidError("SCHEMA_MISMATCH", f"a column of {names} has a NUL in its name: rename it")
        if len({column.lower() for column in names}) != len(names):
            raise InvalidError("SCHEMA_MISMATCH", f"two of the columns {names} have one name in SQLite: rename one")
        self._fields = [field.with_nullable(True) for field in fields]
        self.columns = [(field.name, column_type(field)) for field in fields]
        self.key = list(key)
        self._key_places = [names.index(column) for column in key]
        whole, keys = ", ".join(map(quoted, names)), ", ".join(map(quoted, key))
        is_key = " AND ".join(f"{quoted(column)} IS ?" for column in key)
        others = [quoted(column) for column in names if column not in key]
        action = "UPDATE SET " + ", ".join(f"{each} = excluded.{each}" for each in others) if others else "NOTHING"
        marks = ", ".join("?" for _ in names)
        self._select = f"SELECT {whole} FROM {quoted(name)} WHERE {is_key}"  # noqa: S608
        self._insert = f"INSERT INTO {quoted(name)} ({whole}) VALUES ({marks})"  # noqa: S608
        self._upsert = f"{self._insert} ON CONFLICT ({keys}) DO {action}"
        self._delete = f"DELETE FROM {quoted(name)} WHERE {is_key}"  # noqa: S608

    def create(self, connection: sqlite3.Connection) -> None:
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in self.columns)
        connection.execute(f"CREATE TABLE {quoted(self.name)} ({columns})")
        index = quoted(f"_boatlift_key_of_{self.name}")
        keys = ", ".join(map(quoted, self.key))
        connection.execute(f"CREATE UNIQUE INDEX {index} ON {quoted(self.name)} ({keys})")

    def add_columns(self, connection: sqlite3.Connection) -> None:
        """Add the columns that a later version of the program has; rows that are there have NULL in them."""
        found = {name for name, _ in self.found(connection)}
        for name, kind in self.columns:
            if name not in found:
                connection.execute(f"ALTER TABLE {quoted(self.name)} ADD COLUMN {quoted(name)} {kind}")

    def held(self, connection: sqlite3.Connection) -> pa.Table:
        """Return all rows with their declared types, without columns that the table has not yet, and `_weight`.

        Raises:
            InvalidError: `[SINK_NOT_READABLE]` a value is none of its column's type.
        """
        there = {name for name, _ in self.found(connection)}
        fields = [field for field in self._fields if field.name in there]
        selected = ", ".join(quoted(field.name) for field in fields)
        cursor = connection.execute(f"SELECT {selected} FROM {quoted(self.name)}")  # noqa: S608
        schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64())])
        batches = []
        while rows := cursor.fetchmany(_AT_ONCE):
            columns = [
                declared_values(self.name, field, column)
                for field, column in zip(fields, zip(*rows, strict=True), strict=True)
            ]
            batches.append(pa.RecordBatch.from_arrays([*columns, pa.array([1] * len(rows), pa.int64())], schema=schema))
        return pa.Table.from_batches(batches, schema)

    def found(self, connection: sqlite3.Connection) -> list[tuple[str, str]]:
        """Return the columns of the table in the database; empty if it does not exist."""
        rows = connection.execute("SELECT name, type FROM pragma_table_info(?)", (self.name,))
        return [(name, kind) for name, kind in rows]

    def keyed_by(self, connection: sqlite3.Connection) -> list[str]:
        """Return the columns of the key's index in the database."""
        rows = connection.execute("SELECT name FROM pragma_index_info(?)", (f"_boatlift_key_of_{self.name}",))
        return [name for (name,) in rows]

    def apply(self, connection: sqlite3.Connection, pieces: Sequence[pa.Table]) -> None:
        """Apply a step: its deletes, then its upserts, each in order of key (which halves the time)."""
        if not pieces:
            return
        rows = pa.concat_tables(pieces)
        if self._weighted:
            weight = rows.column(WEIGHT)
            gone, rows = rows.filter(pc.less(weight, 0)), rows.filter(pc.greater(weight, 0))
            for part in _parts(gone):
                connection.executemany(self._delete, self._tuples(part, self.key))
        self._write(connection, rows)

    def difference(self, connection: sqlite3.Connection, pieces: Sequence[pa.Table]) -> str:
        """Return, in words, the first row of the newest step that differs from the table's; empty if none does."""
        names = [name for name, _ in self.columns]
        for rows in pieces:
            held_now = rows.filter(pc.greater(rows.column(WEIGHT), 0)) if self._weighted else rows
            for row in self._tuples(_in_order(held_now, self.key), names):
                found = connection.execute(self._select, self._key_of(row)).fetchone()
                if found != row:
                    held = None if found is None else dict(zip(names, found, strict=True))
                    return difference_of_rows(held, dict(zip(names, row, strict=True)))
        return ""

    def _write(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        last: object = None
        for part in _parts(_in_order(rows, self.key)):
            keys = [*([last] if last is not None else []), *self._tuples(part, self.key)]
            for key, following in pairwise(keys):  # in order, so equal keys are adjacent
                if key == following:
                    raise InvalidError(
                        "DUPLICATE_KEY",
                        f"a step has two rows for key {key!r} ({', '.join(self.key)}) of table {self.name}: aggregate "
                        "by that key, or add columns to it",
                    )
            last = keys[-1]
            whole = self._tuples(part, [name for name, _ in self.columns])
            if any(part.column(name).null_count for name in self.key):
                self._write_with_null(connection, [row for row in whole if None in self._key_of(row)])
                whole = [row for row in whole if None not in self._key_of(row)]
            if not self._unique:
                connection.executemany(self._upsert, whole)
                continue
            handed = iter(whole)
            try:
                connection.executemany(self._insert, handed)
            except sqlite3.IntegrityError as error:
                left = sum(1 for _ in handed)
                raise self._second(self._key_of(whole[-1 - left])) from error

    def _write_with_null(self, connection: sqlite3.Connection, rows: Sequence[tuple[object, ...]]) -> None:
        """Write rows with a NULL in their keys, for which the unique index does nothing."""
        keys = [self._key_of(row) for row in rows]
        if self._unique:
            for key in keys:
                if connection.execute(self._select, key).fetchone() is not None:
                    raise self._second(key)
        else:
            connection.executemany(self._delete, keys)
        connection.executemany(self._insert, rows)

    def _key_of(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(row[place] for place in self._key_places)

    def _second(self, key: tuple[object, ...]) -> InvalidError:
        return InvalidError(
            "DUPLICATE_KEY",
            f"a step has a second row for key {key!r} ({', '.join(self.key)}) of table {self.name}, and unique=True "
            "says that there is none: aggregate by that key, or add columns to it",
        )

    def _tuples(self, rows: pa.Table, names: Sequence[str]) -> list[tuple[object, ...]]:
        columns = [column_values(name, rows.column(name), self._nan_as_text) for name in names]
        return list(zip(*columns, strict=True))


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, _AT_ONCE):
        yield rows.slice(start, _AT_ONCE)


def _in_order(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    return rows.take(pc.sort_indices(rows.select(key), sort_keys=[(name, "ascending") for name in key]))


def undisturbed(path: Path, read: Callable[[sqlite3.Connection], _T]) -> _T:
    """Return what is read of a database that is there; nothing is written, not even files beside it.

    With a write-ahead log an owner lives, or has died, and SQLite must read both files. Without a log SQLite can read
    without making files, but does not notice a process that begins to write: what was read meanwhile is read again.
    """
    log = Path(f"{path}-wal")
    while not log.exists():
        before = _version_of(path)
        try:
            found = _read(path, "immutable=1", read)
        except sqlite3.Error:
            if _version_of(path) == before and not log.exists():
                raise
            continue
        if _version_of(path) == before and not log.exists():
            return found
    return _read(path, "mode=ro", read)


def _read(path: Path, how: str, read: Callable[[sqlite3.Connection], _T]) -> _T:
    with closing(sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True)) as database:
        return read(database)


def _version_of(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def owner_of(path: Path, table: str) -> tuple[str, str, str] | None:
    """Return the dataflow, the sink and the store of a table; None if no sink has made the table."""
    if not path.exists():
        return None
    try:
        return undisturbed(path, lambda database: _owner_in(database, table))
    except (sqlite3.Error, OSError) as error:
        raise error_of(error, path) from error


def _owner_in(database: sqlite3.Connection, table: str) -> tuple[str, str, str] | None:
    if not _exists(database, "table", "_boatlift_sinks"):
        return None
    found: tuple[str, str, str] | None = database.execute(
        'SELECT dataflow, sink, store FROM _boatlift_sinks WHERE "table" = ?', (table,)
    ).fetchone()
    return found


def verify_table(path: Path, table: str) -> list[Finding]:
    """Return each fault of a sink's table; none if no sink has made it yet.

    SQLite keeps no checksums of rows, so a changed value is found only if it breaks the file.
    """
    try:
        return _undisturbed(path, table)
    except OSError as error:
        raise error_of(error, path) from error


def _undisturbed(path: Path, table: str) -> list[Finding]:
    log = Path(f"{path}-wal")
    while path.exists():
        # With a write-ahead log an owner lives, or has died, and SQLite must read both files. Without a log SQLite can
        # read without making files, but does not notice a process that begins to write.
        if log.exists():
            return list(_findings(path, "mode=ro", table))
        before = path.stat()
        findings = list(_findings(path, "immutable=1", table))
        now = path.stat()
        unchanged = (before.st_mtime_ns, before.st_size) == (now.st_mtime_ns, now.st_size)
        if not findings or (unchanged and not log.exists()):
            return findings
    return []


def _findings(path: Path, how: str, table: str) -> Iterator[Finding]:
    name = f"table {table} of {path}"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True)) as database:
            for (message,) in database.execute("PRAGMA integrity_check"):
                if message != "ok":
                    yield Finding(str(path), "SINK_DAMAGED", f"{path} is damaged, {message}: restore it from a copy")
            yield from _ledger_findings(database, name, table)
    except sqlite3.Error as error:
        known = error_of(error, path)
        if not isinstance(known, DataError):
            raise known from error
        yield Finding(str(path), known.condition, known.message)


def _ledger_findings(database: sqlite3.Connection, name: str, table: str) -> Iterator[Finding]:
    if not _exists(database, "table", "_boatlift_sinks"):
        return
    entry = database.execute(
        'SELECT dataflow, sink, format FROM _boatlift_sinks WHERE "table" = ?', (table,)
    ).fetchone()
    if entry is None:
        if _exists(database, "index", f"_boatlift_key_of_{table}"):  # which only a sink makes
            yield Finding(name, "SINK_DAMAGED", f"{name} has lost its entry in _boatlift_sinks: restore the database")
        return
    if entry[2] > FORMAT:
        newer = f"{name} has format {entry[2]}, this version reads {FORMAT}: upgrade Boatlift"
        yield Finding(name, "NEWER_FORMAT", newer)
        return
    if not _exists(database, "table", table):
        yield Finding(name, "SINK_DAMAGED", f"{name} is gone but its ledger is there: restore the database")
    steps, first, last = database.execute(
        "SELECT count(*), min(step), max(step) FROM _boatlift_ledger WHERE dataflow = ? AND sink = ?", entry[:2]
    ).fetchone()
    if steps and (last - first + 1 != steps or (first > 0 and steps < KEPT_STEPS)):
        gap = f"{name} has {steps} steps from {first} to {last} in its ledger: restore the database"
        yield Finding(name, "SINK_GAP", gap)


def _exists(database: sqlite3.Connection, kind: str, name: str) -> bool:
    found = database.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = ? AND name = ? COLLATE NOCASE", (kind, name)
    ).fetchone()
    return found is not None
