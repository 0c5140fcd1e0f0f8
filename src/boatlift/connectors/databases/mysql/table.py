"""The SQL of a sink's table in MariaDB or MySQL: what a step changes in it, and what it holds.

**The key is the primary key**, so no value of it is NULL. Texts have a collation in which case, accents and spaces at
the end count. An upsert whose row meets another unique index finds a row of another key: it then sets the key to NULL,
which the server refuses.

**Appended rows are numbered** by a column that `SELECT *` does not show; the ledger has the first number of each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from boatlift.connectors.databases.dialect import TableSpec, quoted
from boatlift.connectors.databases.mysql.dialect import LONGEST_NAME, ROW, MysqlSession, can_be_a_name
from boatlift.connectors.databases.mysql.refusals import COLUMN_IS_THERE, DUPLICATE, number_of
from boatlift.connectors.databases.mysql.values import MysqlType, column_type, declared_values, is_sized, row_lists
from boatlift.connectors.databases.table import MARK, READ_AT_ONCE, UNIQUE_IS_SAID, SinkTable, repeated
from boatlift.connectors.kit import first_difference
from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from boatlift.connectors.databases.mysql.dialect import MysqlDialect

_KEYS = "_boatlift_step"
"""The temporary table for keys of a step."""

_INDEX_BYTES = 3_072


class MysqlTable(SinkTable[MysqlSession]):
    """A table, and the statements that change it; rows are literals in statements of half a megabyte."""

    def __init__(self, dialect: MysqlDialect, session: MysqlSession, spec: TableSpec) -> None:
        super().__init__(spec)
        self._dialect = dialect
        _check_names([field.name for field in spec.fields])
        keys = [field for field in spec.fields if field.name in (spec.key or ())]
        sized = [field.name for field in keys if is_sized(field.type)]
        fixed = sum(32 if pa.types.is_decimal(field.type) else 8 for field in keys if field.name not in sized)
        room = max(0, _INDEX_BYTES - fixed) // max(1, len(sized)) // 4 * 4
        self._types: dict[str, MysqlType] = {
            field.name: column_type(field, session.collation, room if field.name in sized else 0)
            for field in self._fields
        }
        self.columns = {name: each.name for name, each in self._types.items()}
        self.transaction = "0"

    def create(self, session: MysqlSession) -> None:
        columns = [self._definition(name) for name in self.columns]
        if self.key is None:
            columns.append(f"{ROW} bigint NOT NULL AUTO_INCREMENT INVISIBLE, PRIMARY KEY ({ROW})")
        else:
            columns.append(f"PRIMARY KEY ({_listed(self.key)})")
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(columns)}) ENGINE=InnoDB ROW_FORMAT=DYNAMIC "
            f"DEFAULT CHARACTER SET utf8mb4 COLLATE {session.collation} COMMENT='{_mark(len(self.columns))}'"
        )
        if wrong := self.check(session):  # made meanwhile
            raise DataError("SINK_OF_ANOTHER_DATAFLOW", f"{self.place} {wrong}: give the sink a table of its own")

    def _definition(self, name: str) -> str:
        needed = " NOT NULL" if name == WEIGHT or name in (self.key or ()) else ""
        return f"{_quoted(name)} {self.columns[name]}{needed}"

    def _found(self, session: MysqlSession) -> dict[str, str]:
        return self._dialect.columns_of(session, self.name)

    def _check_made(self, session: MysqlSession) -> None:
        engine, comment = self._dialect.made(session, self.name) or ("", "")
        if engine != "InnoDB":
            raise InvalidError(
                "SINK_UNSUITABLE",
                f"{self.place} has no transactions, as it is kept by {engine}: ALTER TABLE {self.name} ENGINE=InnoDB",
            )
        if comment != _mark(len(self.columns) - len(self.lacks)):
            raise DataError(
                "SINK_DAMAGED",
                f"{self.place} has lost a column, or its comment, which is {comment!r}: restore the table",
            )
        if self._dialect.primary_key(session, self.name) != (self.key or [ROW]):
            restored = f"ALTER TABLE {self.name} ADD PRIMARY KEY ({_listed(self.key or [ROW])})"
            raise DataError("SINK_DAMAGED", f"{self.place} has lost its primary key: restore it ({restored})")

    def add_columns(self, session: MysqlSession) -> None:
        added = ", ".join(f"ADD COLUMN {self._definition(name)}" for name in self.lacks)
        try:
            session.execute(f"ALTER TABLE {self.name} {added}, COMMENT='{_mark(len(self.columns))}'")
        except pymysql.OperationalError as error:
            if number_of(error) != COLUMN_IS_THERE or self._found(session) != self.columns:
                raise

    def _append(self, session: MysqlSession, rows: pa.Table | None) -> None:
        ((newest,),) = session.execute(f"SELECT coalesce(max({ROW}), 0) FROM {self.name}").fetchall()
        self.transaction = str(newest + 1)
        if rows is not None:
            self._insert(session, self.name, rows)

    def _upsert(self, session: MysqlSession, rows: pa.Table) -> None:
        assert self.key is not None
        for name in self.key:
            if rows.column(name).null_count:
                raise DataError(
                    "NULL_KEY",
                    f"column {name} of the key of {self.place} is NULL in a row, and in MariaDB and MySQL no key has "
                    "NULL: filter it, or fill it by coalesce",
                )
        gone, new = self._divided(rows)
        if (twice := repeated(self._keys_of(new), self.key)) is not None:
            raise self._two_rows(repr(twice))
        if gone.num_rows:
            self._delete(session, self._keys_of(gone), self._keys_of(new))
        if not new.num_rows:
            return
        if self._unique:
            self._insert_or_refuse(session, new)
            return
        same = " AND ".join(f"{_quoted(name)} <=> VALUES({_quoted(name)})" for name in self.key)
        first, *others = [self.key[0], *(name for name in self.columns if name not in self.key)]
        values = [f"{_quoted(first)} = IF({same}, VALUES({_quoted(first)}), NULL)"]
        values += [f"{_quoted(name)} = VALUES({_quoted(name)})" for name in others]
        self._insert(session, self.name, new, f" ON DUPLICATE KEY UPDATE {', '.join(values)}")

    def _insert_or_refuse(self, session: MysqlSession, new: pa.Table) -> None:
        try:
            self._insert(session, self.name, new)
        except pymysql.IntegrityError as error:
            text = str(error.args[-1])
            if number_of(error) != DUPLICATE or not text.endswith("PRIMARY'"):
                raise
            raise self._second_row(text.partition("entry ")[2].rpartition(" for key")[0], UNIQUE_IS_SAID) from error

    def _insert(self, session: MysqlSession, table: str, rows: pa.Table, then: str = "") -> None:
        names = [name for name in rows.column_names if name in self._types]
        begin = f"INSERT INTO {table} ({_listed(names)}) VALUES ".encode()
        types = [self._types[name] for name in names]
        for some in row_lists(rows.select(names), types, session.largest - len(begin) - len(then) - 1024):
            session.execute(begin + some + then.encode())

    def _delete(self, session: MysqlSession, gone: pa.Table, new: pa.Table) -> None:
        """Delete the keys that go; a key that comes again is updated in its place, or refused if keys are unique."""
        assert self.key is not None
        gone = gone.group_by(self.key).aggregate([])
        if not self._unique and new.num_rows:
            gone = gone.join(new, self.key, join_type="left anti")
        if gone.num_rows:
            self._stage(session, gone)
            session.execute(f"DELETE t FROM {_KEYS} s STRAIGHT_JOIN {self.name} t ON {self._same_key()}")

    def _stage(self, session: MysqlSession, keys: pa.Table) -> None:
        assert self.key is not None
        columns = ", ".join(self._definition(name) for name in self.key)
        session.execute(f"DROP TEMPORARY TABLE IF EXISTS {_KEYS}")
        session.execute(
            f"CREATE TEMPORARY TABLE {_KEYS} ({columns}, PRIMARY KEY ({_listed(self.key)})) ENGINE=InnoDB "
            f"ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE {session.collation}"
        )
        self._insert(session, _KEYS, keys)

    def _same_key(self) -> str:
        return " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in self.key or ())

    def _keys_of(self, rows: pa.Table) -> pa.Table:
        """Return the keys of rows, equal where the server finds them equal: it has one zero."""
        keys = rows.select(self.key)
        for place, field in enumerate(keys.schema):
            if pa.types.is_floating(field.type):
                keys = keys.set_column(place, field, pc.add(keys.column(place), pa.scalar(0.0, field.type)))
        return keys

    def difference(self, session: MysqlSession, pieces: Sequence[pa.Table], transaction: int) -> str:
        rows = pa.concat_tables(pieces)
        names = [field.name for field in self._fields]
        if self.key is None:
            there = f"{self.name} t WHERE t.{ROW} >= {transaction}"
        else:
            _, rows = self._divided(rows)
            self._stage(session, self._keys_of(rows).group_by(self.key).aggregate([]))
            there = f"{_KEYS} s STRAIGHT_JOIN {self.name} t ON {self._same_key()}"
        found = self._table_of(self._fields, session.read(f"SELECT {_listed(names, 't.')} FROM {there}", READ_AT_ONCE))
        return first_difference(found, [rows.select(names)])

    def _read(self, session: MysqlSession, fields: Sequence[pa.Field]) -> Iterator[Sequence[tuple[Any, ...]]]:
        return session.read(f"SELECT {_listed(field.name for field in fields)} FROM {self.name}", READ_AT_ONCE)

    def _declared(self, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        return declared_values(field, values)


def _mark(columns: int) -> str:
    return f"{MARK} ({columns} columns)"


def _quoted(name: str) -> str:
    return quoted(name, "`")


def _listed(names: Iterable[str], of: str = "") -> str:
    return ", ".join(f"{of}{_quoted(name)}" for name in names)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not can_be_a_name(name) or name.lower() == ROW:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"column {name!r} has no name that MariaDB and MySQL can have, of up to {LONGEST_NAME} characters of "
                "the basic plane, without NUL and without a space at the end: rename it",
            )
    if len({name.lower() for name in names}) != len(names):
        raise InvalidError("SCHEMA_MISMATCH", f"two of the columns {names} have one name on the server: rename one")
