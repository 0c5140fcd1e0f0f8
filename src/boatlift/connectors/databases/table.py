"""The rows of a step as they change a sink's table, and the rows that a table holds, for all dialects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from boatlift.connectors.databases.dialect import TableSpec
from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import InvalidError

MARK = "Written by Boatlift: do not change it by hand"
"""The comment of a sink's table."""

READ_AT_ONCE = 100_000

_S = TypeVar("_S")
"""A connection to a server, of the dialect's own class."""


class SinkTable(ABC, Generic[_S]):
    """A table, and the statements that change it.

    Attributes:
        columns: Name and type of each column of the table, as the server has them.
        lacks: The columns that a later version of the program has, and the table has not yet.
        transaction: The expression for what finds the rows of an appended step again.
    """

    transaction: str

    def __init__(self, spec: TableSpec) -> None:
        self.name, self.place, self.key = spec.name, spec.place, spec.key
        self._unique, self._weighted = spec.unique, spec.weighted
        weight = [pa.field(WEIGHT, pa.int64(), nullable=False)] if spec.weighted and spec.key is None else []
        self._fields = [*(field.with_nullable(True) for field in spec.fields), *weight]
        self.columns: dict[str, str] = {}
        self.lacks: list[str] = []

    @abstractmethod
    def create(self, session: _S) -> None:
        """Make the table."""

    def check(self, session: _S) -> str:
        """Return the predicate of what is wrong with the table in the database; empty if it is this sink's.

        Raises:
            DataError: `[SINK_DAMAGED]` the index of the key is gone, or a column that was there.
        """
        found = self._found(session)
        if not found.items() <= self.columns.items() or ((WEIGHT in found) != (WEIGHT in self.columns)):
            return f"has columns {found}, and this sink writes {self.columns}"
        self.lacks = [name for name in self.columns if name not in found]
        self._check_made(session)
        return ""

    @abstractmethod
    def _found(self, session: _S) -> dict[str, str]:
        """Return name and type of each column in the database."""

    @abstractmethod
    def _check_made(self, session: _S) -> None:
        """Raise if the index of the key is gone, or a column that was there."""

    @abstractmethod
    def add_columns(self, session: _S) -> None:
        """Add the columns that the table lacks; rows that are there have NULL in them."""

    def apply(self, session: _S, pieces: Sequence[pa.Table]) -> None:
        """Write a step: its deletes, then its upserts; or append its rows.

        Raises:
            InvalidError: `[DUPLICATE_KEY]`.
            DataError: `[VALUE_REFUSED]`, `[NULL_KEY]`, `[NAN_REFUSED]`.
        """
        rows = pa.concat_tables(pieces) if pieces else None
        if self.key is None:
            self._append(session, rows)
        elif rows is not None:
            by_key = [(name, "ascending") for name in self.key]
            # Which halves the index's time.
            self._upsert(session, rows.take(pc.sort_indices(rows.select(self.key), sort_keys=by_key)))

    @abstractmethod
    def _append(self, session: _S, rows: pa.Table | None) -> None:
        """Add all rows of a step."""

    @abstractmethod
    def _upsert(self, session: _S, rows: pa.Table) -> None:
        """Delete and write rows, which are in order of the key."""

    @abstractmethod
    def difference(self, session: _S, pieces: Sequence[pa.Table], transaction: int) -> str:
        """Return, in words, the first row of the newest step that differs from the table's; empty if none does.

        Args:
            transaction: What the ledger has kept of `self.transaction`.
        """

    def held(self, session: _S) -> pa.Table:
        """Return all rows with their declared types, without columns that the table has not yet, and `_weight`.

        Raises:
            InvalidError: `[SINK_NOT_READABLE]` a value is none of its column's type.
        """
        there = self._found(session)
        fields = [field for field in self._fields if field.name in there]
        rows = self._table_of(fields, self._read(session, fields))
        if self.key is None and self._weighted:
            return rows
        return rows.append_column(pa.field(WEIGHT, pa.int64()), pa.array([1] * rows.num_rows, pa.int64()))

    @abstractmethod
    def _read(self, session: _S, fields: Sequence[pa.Field]) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the table's rows, many at once."""

    @abstractmethod
    def _declared(self, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        """Return values of a column, as they are read, with the column's declared type; raise what Arrow raises."""

    def _table_of(self, fields: Sequence[pa.Field], parts: Iterator[Sequence[tuple[Any, ...]]]) -> pa.Table:
        schema = pa.schema(fields)
        batches = []
        for rows in parts:
            columns = [
                self._readable(field, column) for field, column in zip(fields, zip(*rows, strict=True), strict=True)
            ]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        return pa.Table.from_batches(batches, schema)

    def _readable(self, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        try:
            return self._declared(field, values)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
            raise InvalidError(
                "SINK_NOT_READABLE",
                f"column {field.name} of {self.place} holds a value that is no {field.type} ({error}): mend it, or "
                "choose --change SINK=now",
            ) from error

    def _divided(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return rows that go, and rows that are new."""
        if not self._weighted:
            return rows.slice(0, 0), rows
        weight = rows.column(WEIGHT)
        return rows.filter(pc.less(weight, 0)), rows.filter(pc.greater(weight, 0))

    def _two_rows(self, key: str) -> InvalidError:
        """Return the error for a step that has two rows of a key."""
        assert self.key is not None
        return InvalidError(
            "DUPLICATE_KEY",
            f"a step has two rows for key {key} ({', '.join(self.key)}) of {self.place}: aggregate by that key, or add "
            "columns to it",
        )

    def _second_row(self, key: object, why: str = "") -> InvalidError:
        """Return the error for a row of a key that is there."""
        assert self.key is not None
        return InvalidError(
            "DUPLICATE_KEY",
            f"a step has a second row for key {key} ({', '.join(self.key)}) of {self.place}{why}: aggregate by that "
            "key, or add columns to it",
        )


UNIQUE_IS_SAID = ", and unique=True says that there is none"


def repeated(rows: pa.Table, key: Sequence[str]) -> tuple[Any, ...] | None:
    """Return a key that two rows have; None if there is none."""
    counts = rows.group_by(key).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts.column("count_all"), 1)).select(key)
    return tuple(twice.slice(0, 1).to_pylist()[0].values()) if twice.num_rows else None
