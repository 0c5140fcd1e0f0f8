"""The SQL of a PostgreSQL sink's table: what a step changes in it, and what it holds.

**NULL is one key.** From version 15 on the unique index of the key says so (`NULLS NOT DISTINCT`). In older servers
NULLs repeat in an index, and `ON CONFLICT` finds none of them: rows with a NULL in their key are deleted and inserted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.connectors.kit import difference_of_rows
from boatlift.connectors.postgres.values import HEADER, TIMES, TRAILER, column_type, copied, declared_values
from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    import psycopg

_STEP = "pg_temp._boatlift_step"
"""The rows of a step; the table ends with the transaction."""

_READ_AT_ONCE = 100_000
_NULLS_ARE_EQUAL = 150_000
"""The version of servers from which on a unique index can take NULL for one key."""

LONGEST_NAME = 63
MARK = "Written by Boatlift: do not change it by hand"


class SinkTable:
    """A table, and the statements that change it.

    Args:
        name: With its schema, quoted.
        place: As messages name it.
        key: The key columns; None: rows are appended.
        fields: The user's columns, the key's among them.
        weighted: Whether rows have a weight.
        unique: Whether a second row of a key is refused; otherwise it replaces the first.

    Attributes:
        columns: Name and type of each column of the table.
    """

    def __init__(
        self,
        name: str,
        place: str,
        key: Sequence[str] | None,
        fields: Sequence[pa.Field],
        weighted: bool,
        unique: bool,
    ) -> None:
        self.name, self.place, self.key = name, place, None if key is None else list(key)
        self._unique = unique
        self._weighted = weighted
        flawed = [field.name for field in fields if not _can_be_a_name(field.name)]
        if flawed:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"column {flawed[0]!r} has no name that PostgreSQL can have, without NUL and of up to {LONGEST_NAME} "
                "bytes: rename it",
            )
        weight = [pa.field(WEIGHT, pa.int64(), nullable=False)] if weighted and key is None else []
        self._fields = [*(field.with_nullable(True) for field in fields), *weight]
        self._types = {field.name: column_type(field) for field in self._fields}
        self.columns = {name: each.name for name, each in self._types.items()}
        self._key_index = ""
        self._nulls_are_equal = True
        self._lacks: list[str] = []

    def create(self, connection: psycopg.Connection[Any]) -> None:
        columns = ", ".join(
            f"{quoted(name)} {kind}{' NOT NULL' if name == WEIGHT else ''}" for name, kind in self.columns.items()
        )
        connection.execute(f"CREATE TABLE {self.name} ({columns})")
        connection.execute(f"COMMENT ON TABLE {self.name} IS '{MARK}'")
        if self.key is not None:
            connection.execute(self._create_index(connection))
        self.check(connection)

    def check(self, connection: psycopg.Connection[Any]) -> str:
        """Return the predicate of what is wrong with the table in the database; empty if it is this sink's.

        Raises:
            DataError: `[SINK_DAMAGED]` the index of the key is gone, or a column that was there.
        """
        found = columns_of(connection, self.name)
        if not found.items() <= self.columns.items() or ((WEIGHT in found) != (WEIGHT in self.columns)):
            return f"has columns {found}, and this sink writes {self.columns}"
        self._lacks = [name for name in self.columns if name not in found]
        dropped = connection.execute(
            "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attisdropped LIMIT 1", (self.name,)
        ).fetchone()
        if self._lacks and dropped is not None:
            raise DataError(
                "SINK_DAMAGED",
                f"{self.place} has no column {self._lacks[0]}, and a column was dropped from it: restore the table",
            )
        if self.key is None:
            return ""
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
                return ""
        raise DataError(
            "SINK_DAMAGED",
            f"{self.place} has lost the unique index of its key: restore it ({self._create_index(connection)})",
        )

    def has_all_columns(self) -> None:
        """Take note that a committed step has added the columns that the table lacked."""
        self._lacks = []

    def _create_index(self, connection: psycopg.Connection[Any]) -> str:
        assert self.key is not None
        equal = " NULLS NOT DISTINCT" if connection.info.server_version >= _NULLS_ARE_EQUAL else ""
        return f"CREATE UNIQUE INDEX ON {self.name} ({_listed(self.key)}){equal}"

    def apply(self, connection: psycopg.Connection[Any], pieces: Sequence[pa.Table]) -> None:
        """Write a step: its deletes, then its upserts; or append its rows.

        Raises:
            InvalidError: `[DUPLICATE_KEY]`.
            DataError: `[VALUE_REFUSED]`.
        """
        for name in self._lacks:  # a later version of the program has them; rows that are there have NULL in them
            connection.execute(f"ALTER TABLE {self.name} ADD COLUMN IF NOT EXISTS {quoted(name)} {self.columns[name]}")
        if not pieces:
            return
        rows = pa.concat_tables(pieces)
        whole = _listed(self.columns)
        cast = ", ".join(self._cast(name) for name in self.columns)
        if self.key is None:
            if all(each.sent_as == each.name for each in self._types.values()):
                self._copy(connection, self.name, rows)
                return
            self._stage(connection, rows)
            connection.execute(f"INSERT INTO {self.name} ({whole}) SELECT {cast} FROM {_STEP}")
            return
        by_key = [(name, "ascending") for name in self.key]
        rows = rows.take(pc.sort_indices(rows.select(self.key), sort_keys=by_key))  # which halves the index's time
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
        import psycopg

        assert self.key is not None
        keys = ", ".join(self.key)
        try:
            connection.execute(statement)
        except psycopg.errors.CardinalityViolation as error:
            raise InvalidError(
                "DUPLICATE_KEY",
                f"a step has two rows for key {_repeated(new, self.key)} ({keys}) of {self.place}: aggregate by that "
                "key, or add columns to it",
            ) from error
        except psycopg.errors.UniqueViolation as error:
            if error.diag.constraint_name != self._key_index or not self._unique:
                raise
            values = (error.diag.message_detail or "").partition(")=")[2].rpartition(" already")[0]
            raise InvalidError(
                "DUPLICATE_KEY",
                f"a step has a second row for key {values} ({keys}) of {self.place}, and unique=True says that there "
                "is none: aggregate by that key, or add columns to it",
            ) from error

    def _stage(self, connection: psycopg.Connection[Any], rows: pa.Table) -> None:
        sent = {name: each.sent_as for name, each in self._types.items()}
        if self._weighted:
            sent[WEIGHT] = "bigint"
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in sent.items())
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

    def _divided(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        if not self._weighted:
            return rows.slice(0, 0), rows
        weight = rows.column(WEIGHT)
        return rows.filter(pc.less(weight, 0)), rows.filter(pc.greater(weight, 0))

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
                raise InvalidError(
                    "DUPLICATE_KEY",
                    f"a step has a second row for key {found} ({', '.join(self.key)}) of {self.place}: aggregate by "
                    "that key, or add columns to it",
                )
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

    def difference(self, connection: psycopg.Connection[Any], pieces: Sequence[pa.Table], written: int) -> str:
        """Return, in words, the first row of the newest step that differs from the table's; empty if none does.

        Args:
            written: The transaction that wrote the step.
        """
        rows = pa.concat_tables(pieces)
        self._stage(connection, rows)
        names = list(self.columns)
        cast = ", ".join(self._cast(name, "s.") for name in names)
        if self.key is None:
            there = f"SELECT {_listed(names)} FROM {self.name} WHERE xmin::text::bigint = {written} % (2 ^ 32)::bigint"
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

    def held(self, connection: psycopg.Connection[Any]) -> pa.Table:
        """Return all rows with their declared types, without columns that the table has not yet, and `_weight`.

        Raises:
            InvalidError: `[SINK_NOT_READABLE]` a value is none of its column's type.
        """
        from psycopg.adapt import Loader

        class WholeNumber(Loader):
            def load(self, data: Any) -> int:
                return int.from_bytes(bytes(data), "big", signed=True)

        WholeNumber.format = 1  # type: ignore[assignment]  # binary
        there = columns_of(connection, self.name)
        fields = [field for field in self._fields if field.name in there]
        one = [] if self.key is None and self._weighted else [pa.field(WEIGHT, pa.int64())]
        schema = pa.schema([*fields, *one])
        batches = []
        with connection.cursor("_boatlift_held", binary=True) as cursor:
            for each in TIMES:
                cursor.adapters.register_loader(each, WholeNumber)
            cursor.execute(f"SELECT {_listed(field.name for field in fields)} FROM {self.name}")
            while rows := cursor.fetchmany(_READ_AT_ONCE):
                columns = [
                    declared_values(self.place, field, column)
                    for field, column in zip(fields, zip(*rows, strict=True), strict=True)
                ]
                ones = [pa.array([1] * len(rows), pa.int64())] * len(one)
                batches.append(pa.RecordBatch.from_arrays([*columns, *ones], schema=schema))
        return pa.Table.from_batches(batches, schema)


def columns_of(connection: psycopg.Connection[Any], table: str) -> dict[str, str]:
    """Return name and type of each column of an ordinary table; empty if there is none of that name."""
    rows = connection.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        "JOIN pg_class c ON c.oid = attrelid WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
        "AND relkind IN ('r', 'p') ORDER BY attnum",
        (table,),
    ).fetchall()
    return dict(rows)


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


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


def _repeated(rows: pa.Table, key: Sequence[str]) -> str:
    """Return a key that two rows have, for an error."""
    counts = rows.group_by(key).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts.column("count_all"), 1)).select(key)
    return repr(tuple(twice.slice(0, 1).to_pylist()[0].values())) if twice.num_rows else "that compares as equal"
