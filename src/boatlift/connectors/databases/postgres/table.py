"""The SQL of a PostgreSQL sink's table: what a step changes in it, and what it holds.

**NULL is one key.** From version 15 on the unique index of the key says so (`NULLS NOT DISTINCT`). In older servers
NULLs repeat in an index, and `ON CONFLICT` finds none of them: rows with a NULL in their key are deleted and inserted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg.adapt import Loader

from boatlift.connectors.databases.dialect import TableSpec, quoted
from boatlift.connectors.databases.postgres.values import HEADER, TIMES, TRAILER, column_type, copied, declared_values
from boatlift.connectors.databases.table import MARK, READ_AT_ONCE, UNIQUE_IS_SAID, SinkTable, repeated
from boatlift.connectors.kit import difference_of_rows
from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import DataError, InvalidError

_STEP = "pg_temp._boatlift_step"
"""The rows of a step; the table ends with the transaction."""

_NULLS_ARE_EQUAL = 150_000
"""The version of servers from which on a unique index can take NULL for one key."""

LONGEST_NAME = 63


class PostgresTable(SinkTable["psycopg.Connection[Any]"]):
    """A table, and the statements that change it; `COPY` fills a temporary one with the rows of a step."""

    transaction = "txid_current()"

    def __init__(self, spec: TableSpec) -> None:
        super().__init__(spec)
        flawed = [field.name for field in spec.fields if not _can_be_a_name(field.name)]
        if flawed:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"column {flawed[0]!r} has no name that PostgreSQL can have, without NUL and of up to {LONGEST_NAME} "
                "bytes: rename it",
            )
        self._types = {field.name: column_type(field) for field in self._fields}
        self.columns = {name: each.name for name, each in self._types.items()}
        self._key_index = ""
        self._nulls_are_equal = True

    def create(self, connection: psycopg.Connection[Any]) -> None:
        columns = ", ".join(
            f"{quoted(name)} {kind}{' NOT NULL' if name == WEIGHT else ''}" for name, kind in self.columns.items()
        )
        connection.execute(f"CREATE TABLE {self.name} ({columns})")
        connection.execute(f"COMMENT ON TABLE {self.name} IS '{MARK}'")
        if self.key is not None:
            connection.execute(self._create_index(connection))
        self.check(connection)

    def _found(self, connection: psycopg.Connection[Any]) -> dict[str, str]:
        return columns_of(connection, self.name)

    def _check_made(self, connection: psycopg.Connection[Any]) -> None:
        dropped = connection.execute(
            "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attisdropped LIMIT 1", (self.name,)
        ).fetchone()
        if self.lacks and dropped is not None:
            raise DataError(
                "SINK_DAMAGED",
                f"{self.place} has no column {self.lacks[0]}, and a column was dropped from it: restore the table",
            )
        if self.key is None:
            return
        self._nulls_are_equal = False
        equal = "i.indnullsnotdistinct" if connection.info.server_version >= _NULLS_ARE_EQUAL else "false"
        indexes = connection.execute(
            f"""SELECT c.relname, {equal}, array(SELECT attname::text FROM pg_attribute a
                WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey))
            FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass(%s)
            AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate""",
            (self.name,),
        ).fetchall()
        for name, nulls_are_equal, columns in indexes:
            if sorted(columns) == sorted(self.key):
                self._key_index, self._nulls_are_equal = name, nulls_are_equal
                return
        raise DataError(
            "SINK_DAMAGED",
            f"{self.place} has lost the unique index of its key: restore it ({self._create_index(connection)})",
        )

    def add_columns(self, connection: psycopg.Connection[Any]) -> None:
        for name in self.lacks:
            connection.execute(f"ALTER TABLE {self.name} ADD COLUMN IF NOT EXISTS {quoted(name)} {self.columns[name]}")

    def _create_index(self, connection: psycopg.Connection[Any]) -> str:
        assert self.key is not None
        equal = " NULLS NOT DISTINCT" if connection.info.server_version >= _NULLS_ARE_EQUAL else ""
        return f"CREATE UNIQUE INDEX ON {self.name} ({_listed(self.key)}){equal}"

    def _append(self, connection: psycopg.Connection[Any], rows: pa.Table | None) -> None:
        if rows is None:
            return
        if all(each.sent_as == each.name for each in self._types.values()):
            self._copy(connection, self.name, rows)
            return
        self._stage(connection, rows)
        cast = ", ".join(self._cast(name) for name in self.columns)
        connection.execute(f"INSERT INTO {self.name} ({_listed(self.columns)}) SELECT {cast} FROM {_STEP}")

    def _upsert(self, connection: psycopg.Connection[Any], rows: pa.Table) -> None:
        assert self.key is not None
        whole = _listed(self.columns)
        cast = ", ".join(self._cast(name) for name in self.columns)
        self._stage(connection, rows)
        gone, new = self._divided(rows)
        if gone.num_rows:
            self._delete_gone(connection, gone)
        if not new.num_rows:
            return
        if not self._nulls_are_equal:
            self._make_way_for_nulls(connection, new)
        added = f"INSERT INTO {self.name} ({whole}) SELECT {cast} FROM {_STEP} s{self._if('> 0')}"
        replaced = ", ".join(
            f"{quoted(each)} = excluded.{quoted(each)}"
            # A key alone is set too, so that a second row of it in the step is refused as it is elsewhere.
            for each in [name for name in self.columns if name not in self.key] or self.key
        )
        conflict = "" if self._unique else f" ON CONFLICT ({_listed(self.key)}) DO UPDATE SET {replaced}"
        self._or_duplicate(connection, f"{added}{conflict}", new)

    def _or_duplicate(self, connection: psycopg.Connection[Any], statement: str, new: pa.Table) -> None:
        assert self.key is not None
        try:
            connection.execute(statement)
        except psycopg.errors.CardinalityViolation as error:
            twice = repeated(new, self.key)
            raise self._two_rows("that compares as equal" if twice is None else repr(twice)) from error
        except psycopg.errors.UniqueViolation as error:
            if error.diag.constraint_name != self._key_index or not self._unique:
                raise
            values = (error.diag.message_detail or "").partition(")=")[2].rpartition(" already")[0]
            raise self._second_row(values, UNIQUE_IS_SAID) from error

    def _stage(self, connection: psycopg.Connection[Any], rows: pa.Table) -> None:
        sent = {name: each.sent_as for name, each in self._types.items()}
        if self._weighted:
            sent[WEIGHT] = "bigint"
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in sent.items())
        connection.execute(f"DROP TABLE IF EXISTS {_STEP}")  # of another sink in the same transaction
        connection.execute(f"CREATE TEMP TABLE _boatlift_step ({columns}) ON COMMIT DROP")
        self._copy(connection, _STEP, rows)

    def _copy(self, connection: psycopg.Connection[Any], table: str, rows: pa.Table) -> None:
        types = [column_type(field) for field in rows.schema]
        names = _listed(rows.column_names)
        with connection.cursor().copy(f"COPY {table} ({names}) FROM STDIN (FORMAT binary)") as copy:
            copy.write(HEADER)
            for part in copied(rows, types):
                copy.write(part)
            copy.write(TRAILER)

    def _delete_gone(self, connection: psycopg.Connection[Any], gone: pa.Table) -> None:
        """Delete the keys that go; a key that comes again is updated in its place, or refused if keys are unique."""
        assert self.key is not None
        again = "" if self._unique else f" AND NOT EXISTS (SELECT FROM {_STEP} u WHERE u.{WEIGHT} > 0 AND {{same}})"
        for nulls in _patterns(gone, self.key):
            same = self._same_key("u", "s", nulls)
            connection.execute(
                f"DELETE FROM {self.name} t USING {_STEP} s WHERE s.{WEIGHT} < 0 AND {self._same_key('t', 's', nulls)}"
                + again.format(same=same)
            )

    def _make_way_for_nulls(self, connection: psycopg.Connection[Any], new: pa.Table) -> None:
        assert self.key is not None
        for nulls in [each for each in _patterns(new, self.key) if each]:
            keys = _listed(self.key)
            where = f"{self._if('> 0') or ' WHERE true'} AND {self._null_pattern('s', nulls)}"
            twice = connection.execute(
                f"SELECT {keys} FROM {_STEP} s{where} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
            )
            there = f"{self.name} t WHERE EXISTS (SELECT FROM {_STEP} s{where} AND {self._same_key('t', 's', nulls)})"
            found = twice.fetchone()
            if found is None and self._unique:
                found = connection.execute(f"SELECT {keys} FROM {there} LIMIT 1").fetchone()
            if found is not None:
                raise self._second_row(found)
            connection.execute(f"DELETE FROM {there}")

    def _if(self, weight: str) -> str:
        return f" WHERE s.{WEIGHT} {weight}" if self._weighted else ""

    def _cast(self, name: str, of: str = "") -> str:
        each = self._types[name]
        return f"{of}{quoted(name)}" + ("" if each.sent_as == each.name else f"::{each.name}")

    def _same_key(self, one: str, other: str, nulls: frozenset[str]) -> str:
        """Return the condition that two rows have the same key, of which some columns are NULL: indexes serve it."""
        assert self.key is not None

        def value(alias: str, name: str) -> str:
            return f"t.{quoted(name)}" if alias == "t" else self._cast(name, f"{alias}.")

        return " AND ".join(
            f"{one}.{quoted(name)} IS NULL AND {other}.{quoted(name)} IS NULL"
            if name in nulls
            else f"{value(one, name)} = {value(other, name)}"
            for name in self.key
        )

    def _null_pattern(self, alias: str, nulls: frozenset[str]) -> str:
        assert self.key is not None
        return " AND ".join(f"{alias}.{quoted(name)} IS {'' if name in nulls else 'NOT '}NULL" for name in self.key)

    def difference(self, connection: psycopg.Connection[Any], pieces: Sequence[pa.Table], transaction: int) -> str:
        rows = pa.concat_tables(pieces)
        self._stage(connection, rows)
        names = list(self.columns)
        cast = ", ".join(self._cast(name, "s.") for name in names)
        if self.key is None:
            there = (
                f"SELECT {_listed(names)} FROM {self.name} WHERE xmin::text::bigint = {transaction} % (2 ^ 32)::bigint"
            )
            now = f"SELECT {cast} FROM {_STEP} s"
            both = [
                connection.execute(f"({one}) EXCEPT ALL ({other}) ORDER BY 1 LIMIT 1").fetchone()
                for one, other in ((there, now), (now, there))
            ]
            if both == [None, None]:
                return ""
            return difference_of_rows(*(each and dict(zip(names, each, strict=True)) for each in both))
        is_key = " AND ".join(f"t.{quoted(name)} IS NOT DISTINCT FROM {self._cast(name, 's.')}" for name in self.key)
        theirs = ", ".join(f"t.{quoted(name)}" for name in names)
        found = connection.execute(
            f"SELECT t.ctid IS NOT NULL, {theirs}, {cast} FROM {_STEP} s LEFT JOIN {self.name} t ON {is_key} "
            f"WHERE ROW({theirs}) IS DISTINCT FROM ROW({cast}){' AND s.' + WEIGHT + ' > 0' if self._weighted else ''} "
            "ORDER BY s.ctid LIMIT 1"
        ).fetchone()
        if found is None:
            return ""
        is_there, *values = found
        before, after = (dict(zip(names, part, strict=True)) for part in (values[: len(names)], values[len(names) :]))
        return difference_of_rows(before if is_there else None, after)

    def _read(
        self, connection: psycopg.Connection[Any], fields: Sequence[pa.Field]
    ) -> Iterator[Sequence[tuple[Any, ...]]]:
        with connection.cursor("_boatlift_held", binary=True) as cursor:
            for each in TIMES:
                cursor.adapters.register_loader(each, WholeNumber)
            cursor.execute(f"SELECT {_listed(field.name for field in fields)} FROM {self.name}")
            while rows := cursor.fetchmany(READ_AT_ONCE):
                yield rows

    def _declared(self, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        return declared_values(field, values)


class WholeNumber(Loader):
    """Loads times as the server sends them."""

    format = 1  # type: ignore[assignment]  # binary

    def load(self, data: Any) -> int:
        return int.from_bytes(bytes(data), "big", signed=True)


def columns_of(connection: psycopg.Connection[Any], table: str) -> dict[str, str]:
    """Return name and type of each column of an ordinary table; empty if there is none of that name."""
    rows = connection.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        "JOIN pg_class c ON c.oid = attrelid WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
        "AND relkind IN ('r', 'p') ORDER BY attnum",
        (table,),
    ).fetchall()
    return dict(rows)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _can_be_a_name(name: str) -> bool:
    return bool(name) and "\0" not in name and len(name.encode()) <= LONGEST_NAME


def _patterns(rows: pa.Table, key: Sequence[str]) -> list[frozenset[str]]:
    """Return the sets of key columns that are NULL together in a row."""
    codes = np.zeros(rows.num_rows, np.int64)
    for place, name in enumerate(key):
        if rows.column(name).null_count:
            codes |= rows.column(name).is_null().to_numpy().astype(np.int64) << place
    return [
        frozenset(name for place, name in enumerate(key) if code >> place & 1) for code in np.unique(codes).tolist()
    ]
