"""The values of an arrangement's rows: a weight, and the row itself (docs/formats/run.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.state.group import grouped_sum

Ints = npt.NDArray[np.int64]

IDENTITY = ("_row1", "_row2")
"""The columns of a row's identity: two hashes of all its columns. Rows with one identity are the same row."""

ORDERED = ("_key", "_order", *IDENTITY)
"""The same in an arrangement with an order: before it a second hash of the arrangement's key, and the row's place."""

_WEIGHT = "weight"


@dataclass(frozen=True, slots=True)
class ArrangedRows:
    """Rows with weights.

    Attributes:
        weights: One a row; as a part of a sum it may be negative or 0. In a run it has the width of the file.
        rows: The columns of each row.
    """

    weights: Ints
    rows: tuple[pa.Array, ...]


@dataclass(frozen=True, slots=True)
class ArrangementCodec:
    """The codec of an arrangement. The keys of its runs are the rows' identities.

    A run is sorted by the hash of the arrangement's own key, then by identity: so all rows of a key are neighbours.

    Attributes:
        schema: The columns of the rows; their names are for errors.
        ordered: Whether the rows of a key stand in an order, so that the first of them can be read alone.
    """

    schema: pa.Schema
    ordered: bool = False

    @property
    def kind(self) -> str:
        return "arrangement"

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The identity of a row; before it, if rows have an order, their place in it."""
        return tuple((name, pa.int64()) for name in (ORDERED if self.ordered else IDENTITY))

    @property
    def description(self) -> Mapping[str, Any]:
        """The columns of the rows by their places, and whether the rows have an order."""
        columns = [[f"c{place}", str(kind)] for place, kind in enumerate(self.schema.types)]
        return {"columns": columns} | ({"ordered": True} if self.ordered else {})

    def of_older(self, description: Mapping[str, Any]) -> None:
        """Return None: rows have one form."""
        del description

    def fields_of(self, values: ArrangedRows) -> list[pa.Field]:
        """Return the columns; weights are mostly 1 and have one byte."""
        most = int(np.abs(values.weights).max(initial=0))
        kind = next(kind for kind, limit in _WIDTHS if most <= limit)
        return [pa.field(_WEIGHT, kind, nullable=False), *self._fields()]

    def fields_of_merged(self, runs: Sequence[Sequence[ArrangedRows]]) -> list[pa.Field]:
        """Return the columns, with weights of eight bytes."""
        del runs
        return [pa.field(_WEIGHT, pa.int64(), nullable=False), *self._fields()]

    def _fields(self) -> list[pa.Field]:
        return [pa.field(f"row.{number}", field.type) for number, field in enumerate(self.schema)]

    def encode(self, values: ArrangedRows, fields: Sequence[pa.Field]) -> list[pa.Array]:
        """Return the columns."""
        return [pa.array(values.weights).cast(fields[0].type), *values.rows]

    def decode(self, columns: Mapping[str, pa.Array]) -> ArrangedRows:
        """Return the columns of a record batch, as views."""
        weights = columns[_WEIGHT].to_numpy(zero_copy_only=True)
        return ArrangedRows(weights, tuple(columns[f"row.{number}"] for number in range(len(self.schema))))

    def read(self, stored: ArrangedRows, rows: Ints | slice) -> ArrangedRows:
        """Return some rows of a record batch."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(stored.weights))
            columns = tuple(column.slice(start, stop - start) for column in stored.rows)
        else:
            columns = tuple(_taken(column, rows) for column in stored.rows)
        return ArrangedRows(stored.weights[rows].astype(np.int64), columns)

    def take(self, values: ArrangedRows, rows: Ints) -> ArrangedRows:
        """Return some of the rows."""
        return ArrangedRows(values.weights[rows], tuple(_taken(column, rows) for column in values.rows))

    def merge(self, pieces: Sequence[ArrangedRows], order: Ints, starts: Ints) -> ArrangedRows:
        """Add up the weights of equal rows."""
        weights = np.concatenate([piece.weights for piece in pieces])
        firsts = order[starts]
        columns = (pa.concat_arrays([piece.rows[n] for piece in pieces]) for n in range(len(self.schema)))
        return ArrangedRows(grouped_sum(weights[order], starts), tuple(_taken(column, firsts) for column in columns))

    def is_zero(self, values: ArrangedRows, *, oldest: bool = False) -> npt.NDArray[np.bool_]:
        """Return which rows have weight 0."""
        del oldest
        nothing: npt.NDArray[np.bool_] = values.weights == 0
        return nothing


_NUMBERS = {
    kind.id: np.dtype(f"<i{kind.bit_width // 8}")
    for kind in (
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.timestamp("us"),
    )
}
"""The types of columns whose values are numbers, by their id, each with a NumPy type of the same width."""


def _taken(column: pa.Array, rows: Ints) -> pa.Array:
    """Return some values of a column; of few rows, NumPy takes numbers at a fraction of the cost of a compute call."""
    storage = _NUMBERS.get(column.type.id)
    if storage is None or column.null_count:
        return column.take(pa.array(rows))
    values = np.frombuffer(column.buffers()[1] or b"", storage)[column.offset : column.offset + len(column)]
    return pa.Array.from_buffers(column.type, len(rows), [None, pa.py_buffer(values[rows])])


_WIDTHS = ((pa.int8(), 127), (pa.int16(), 2**15 - 1), (pa.int32(), 2**31 - 1), (pa.int64(), 2**63 - 1))
