"""The codec of arrangements: a row's values are its weight and its columns (docs/formats/run.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from boatlift.state.column import Ints, Mask
from boatlift.state.group import grouped_sum

IDENTITY = ("_row1", "_row2")
"""The columns of a row's identity: two hashes of all its columns. Rows with equal identities are the same row."""

ORDERED = ("_key", "_order", *IDENTITY)
"""The identity in an arrangement with an order: a second hash of the key and the row's place come first."""

_WEIGHT = "weight"


@dataclass(frozen=True, slots=True)
class ArrangedRows:
    """Rows with weights."""

    weights: Ints
    """One per row; negative or 0 in a part of a sum. In a run they have the file's width."""
    rows: tuple[pa.Array, ...]


@dataclass(frozen=True, slots=True)
class ArrangementCodec:
    """The codec of an arrangement. The keys of its runs are the rows' identities.

    A run is sorted by the hash of the arrangement's key, then by identity, so that the rows of a key are neighbours.
    """

    schema: pa.Schema
    """The columns of the rows; their names are for errors."""
    ordered: bool = False
    """Whether the rows of a key are sorted, so that the first of them can be read alone."""
    kind = "arrangement"

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        return tuple((name, pa.int64()) for name in (ORDERED if self.ordered else IDENTITY))

    @property
    def description(self) -> Mapping[str, Any]:
        """The columns of the rows by position, and whether the rows have an order."""
        columns = [[f"c{place}", str(kind)] for place, kind in enumerate(self.schema.types)]
        return {"columns": columns} | ({"ordered": True} if self.ordered else {})

    def of_older(self, description: Mapping[str, Any]) -> None:
        del description  # rows have only one form

    def fields_of(self, values: ArrangedRows) -> list[pa.Field]:
        """Return the columns; weights are mostly 1 and then have one byte."""
        most = int(np.abs(values.weights).max(initial=0))
        kind = next(kind for kind, limit in _WIDTHS if most <= limit)
        return [pa.field(_WEIGHT, kind, nullable=False), *self._fields()]

    def fields_of_merged(self, runs: Sequence[Sequence[ArrangedRows]]) -> list[pa.Field]:
        del runs
        return [pa.field(_WEIGHT, pa.int64(), nullable=False), *self._fields()]

    def _fields(self) -> list[pa.Field]:
        return [pa.field(f"row.{number}", field.type) for number, field in enumerate(self.schema)]

    def encode(self, values: ArrangedRows, fields: Sequence[pa.Field]) -> list[pa.Array]:
        return [pa.array(values.weights).cast(fields[0].type), *values.rows]

    def decode(self, columns: Mapping[str, pa.Array]) -> ArrangedRows:
        weights = columns[_WEIGHT].to_numpy(zero_copy_only=True)
        return ArrangedRows(weights, tuple(columns[f"row.{number}"] for number in range(len(self.schema))))

    def read(self, stored: ArrangedRows, rows: Ints | slice) -> ArrangedRows:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(stored.weights))
            columns = tuple(column.slice(start, stop - start) for column in stored.rows)
        else:
            columns = tuple(_taken(column, rows) for column in stored.rows)
        return ArrangedRows(stored.weights[rows].astype(np.int64), columns)

    def take(self, values: ArrangedRows, rows: Ints) -> ArrangedRows:
        return ArrangedRows(values.weights[rows], tuple(_taken(column, rows) for column in values.rows))

    def merge(self, pieces: Sequence[ArrangedRows], order: Ints, starts: Ints) -> ArrangedRows:
        weights = np.concatenate([piece.weights for piece in pieces])
        firsts = order[starts]
        columns = (pa.concat_arrays([piece.rows[n] for piece in pieces]) for n in range(len(self.schema)))
        return ArrangedRows(grouped_sum(weights[order], starts), tuple(_taken(column, firsts) for column in columns))

    def is_zero(self, values: ArrangedRows, *, oldest: bool = False) -> Mask:
        del oldest
        nothing: Mask = values.weights == 0
        return nothing


_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_NUMBERS = {
    kind.id: np.dtype(f"<i{kind.bit_width // 8}")
    for kind in (*_WHOLE, pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us"))
}
"""The number types, by id, each with a NumPy type of the same width."""


def _taken(column: pa.Array, rows: Ints) -> pa.Array:
    """Return some values of a column; for few rows, NumPy is much faster than Arrow's compute call."""
    storage = _NUMBERS.get(column.type.id)
    if storage is None or column.null_count:
        return column.take(pa.array(rows))
    values = np.frombuffer(column.buffers()[1] or b"", storage)[column.offset : column.offset + len(column)]
    return pa.Array.from_buffers(column.type, len(rows), [None, pa.py_buffer(values[rows])])


_WIDTHS = ((pa.int8(), 127), (pa.int16(), 2**15 - 1), (pa.int32(), 2**31 - 1), (pa.int64(), 2**63 - 1))
