"""The SQL of a SQLite sink: the table for readers, and the ledger beside it.

**NULL is one key.** SQLite's unique indexes treat any two NULLs as different, so `ON CONFLICT` never finds a NULL key.
The index is nevertheless a plain one over the key columns, because queries of readers use it. Rows with a NULL in the
key are replaced by `DELETE … WHERE k IS ?` and `INSERT`, which use the same index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from boatlift.connectors.kit import difference_of_rows
from boatlift.connectors.sqlite.values import column_type, column_values
from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1

KEPT_STEPS = 65_536
"""The steps of a sink in the ledger, some 6 MB: a replay of older steps is not compared."""

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
)
"""The statements for the two tables with the steps of all sinks of a database."""


class KeyedTable:
    """A table with one row a key, and the statements that change it.

    Args:
        fields: Its columns, the key's among them.
        weighted: Whether rows have a weight: +1 an upsert, −1 a delete. Otherwise all are upserts.
        unique: Whether a second row of a key is refused; otherwise it replaces the first.
        nan_as_text: Whether NaN is written as text.

    Raises:
        InvalidError: `[TYPE_REFUSED]`, `[SCHEMA_MISMATCH]`.
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
        self.columns = [(field.name, column_type(field)) for field in fields]
        self.key = list(key)
        self._key_places = [names.index(column) for column in key]

    def create(self, connection: sqlite3.Connection) -> None:
        columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in self.columns)
        connection.execute(f"CREATE TABLE {_quoted(self.name)} ({columns})")
        index = _quoted(f"_boatlift_key_of_{self.name}")
        keys = ", ".join(map(_quoted, self.key))
        connection.execute(f"CREATE UNIQUE INDEX {index} ON {_quoted(self.name)} ({keys})")

    def found(self, connection: sqlite3.Connection) -> list[tuple[str, str]]:
        """Return the columns of the table in the database; empty if it does not exist."""
        rows = connection.execute("SELECT name, type FROM pragma_table_info(?)", (self.name,))
        return [(name, kind) for name, kind in rows]

    def keyed_by(self, connection: sqlite3.Connection) -> list[str]:
        """Return the columns of the key's index in the database."""
        rows = connection.execute("SELECT name FROM pragma_index_info(?)", (f"_boatlift_key_of_{self.name}",))
        return [name for (name,) in rows]

    def apply(self, connection: sqlite3.Connection, pieces: Sequence[pa.Table]) -> None:
        """Apply a step: its deletes, then its upserts, each in order of key (which halves the time).

        Raises:
            DataError: `[NAN_REFUSED]`.
            InvalidError: `[DUPLICATE_KEY]` two rows of the step have the same key; or keys are unique, and the table
                has a row of the key.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not pieces:
            return
        rows = pa.concat_tables(pieces)
        if self._weighted:
            weight = rows.column(WEIGHT)
            gone, rows = rows.filter(pc.less(weight, 0)), rows.filter(pc.greater(weight, 0))
            for part in _parts(gone):
                connection.executemany(self._delete_sql, self._tuples(part, self.key))
        self._upsert(connection, rows)

    def difference(self, connection: sqlite3.Connection, pieces: Sequence[pa.Table]) -> str:
        """Return, in words, the first row of the newest step that differs from the table's; empty if none does."""
        import pyarrow.compute as pc

        names = [name for name, _ in self.columns]
        columns = ", ".join(map(_quoted, names))
        for rows in pieces:
            held_now = rows.filter(pc.greater(rows.column(WEIGHT), 0)) if self._weighted else rows
            for row in self._tuples(_in_order(held_now, self.key), names):
                key = [row[place] for place in self._key_places]
                query = f"SELECT {columns} FROM {_quoted(self.name)} WHERE {self._is_key}"  # noqa: S608
                found = connection.execute(query, key).fetchone()
                if found != row:
                    held = None if found is None else dict(zip(names, found, strict=True))
                    return difference_of_rows(held, dict(zip(names, row, strict=True)))
        return ""

    def _upsert(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        last: object = None
        for part in _parts(_in_order(rows, self.key)):
            keys = [*([last] if last is not None else []), *self._tuples(part, self.key)]
            self._refuse_duplicates(keys)
            last = keys[-1]
            whole = self._tuples(part, [name for name, _ in self.columns])
            if any(part.column(name).null_count for name in self.key):
                with_null = [row for row in whole if any(row[place] is None for place in self._key_places)]
                whole = [row for row in whole if all(row[place] is not None for place in self._key_places)]
                self._insert_with_null(connection, with_null)
            if self._unique:
                self._insert(connection, whole)
            else:
                connection.executemany(self._upsert_sql, whole)

    def _insert_with_null(self, connection: sqlite3.Connection, rows: Sequence[tuple[object, ...]]) -> None:
        keys = [self._key_of(row) for row in rows]
        if self._unique:
            held = f"SELECT 1 FROM {_quoted(self.name)} WHERE {self._is_key}"  # noqa: S608
            for key in keys:
                if connection.execute(held, key).fetchone() is not None:
                    raise self._second(key)
        else:
            connection.executemany(self._delete_sql, keys)
        connection.executemany(self._insert_sql, rows)

    def _insert(self, connection: sqlite3.Connection, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert rows without a NULL in their keys, which the index holds to be unique."""
        handed = iter(rows)
        try:
            connection.executemany(self._insert_sql, handed)
        except sqlite3.IntegrityError as error:
            left = sum(1 for _ in handed)
            raise self._second(self._key_of(rows[-1 - left])) from error

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

    def _refuse_duplicates(self, keys: Sequence[object]) -> None:
        for key, following in pairwise(keys):  # in order, so equal keys are adjacent
            if key == following:
                raise InvalidError(
                    "DUPLICATE_KEY",
                    f"a step has two rows for key {key!r} ({', '.join(self.key)}) of table {self.name}: aggregate by "
                    "that key, or add columns to it",
                )

    @property
    def _insert_sql(self) -> str:
        names = ", ".join(_quoted(name) for name, _ in self.columns)
        marks = ", ".join("?" for _ in self.columns)
        return f"INSERT INTO {_quoted(self.name)} ({names}) VALUES ({marks})"  # noqa: S608

    @property
    def _upsert_sql(self) -> str:
        others = [_quoted(name) for name, _ in self.columns if name not in self.key]
        action = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others) if others else "NOTHING"
        return f"{self._insert_sql} ON CONFLICT ({', '.join(map(_quoted, self.key))}) DO {action}"

    @property
    def _delete_sql(self) -> str:
        return f"DELETE FROM {_quoted(self.name)} WHERE {self._is_key}"  # noqa: S608

    @property
    def _is_key(self) -> str:
        return " AND ".join(f"{_quoted(name)} IS ?" for name in self.key)


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, _AT_ONCE):
        yield rows.slice(start, _AT_ONCE)


def _in_order(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    import pyarrow.compute as pc

    return rows.take(pc.sort_indices(rows.select(key), sort_keys=[(name, "ascending") for name in key]))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
