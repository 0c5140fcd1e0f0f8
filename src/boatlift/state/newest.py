"""Newest rows: the last written row of each key; a tombstone marks a key without a row (docs/formats/run.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column, Hashes, Ints, Mask, unequal_rows
from boatlift.state.group import distinct_sorted, group, ranges
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.opened import OpenRun

_TIME, _PRESENT = "time", "present"
_WIDTHS = ((pa.int8(), 2**7), (pa.int16(), 2**15), (pa.int32(), 2**31), (pa.int64(), 2**63))


@dataclass(frozen=True, slots=True)
class NewestRows:
    """Rows, each with the step that wrote it."""

    times: Ints
    present: Mask
    """Whether the key has a row from then on; False: a tombstone, whose columns are NULL."""
    columns: tuple[pa.Array, ...]


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of a record batch, as the run has them."""

    times: npt.NDArray[np.signedinteger]
    """As in `NewestRows`, in the width of the file."""
    present: pa.BooleanArray
    columns: tuple[pa.Array | None, ...]
    """As in `NewestRows`; None: the rows were written before the column was declared."""


@dataclass(frozen=True, slots=True)
class NewestCodec:
    """The codec of newest rows: of rows with equal keys, the row of the latest step counts.

    A step writes at most one row per key, so the latest is unique. A delta is the run of the changed keys, and a
    snapshot is a merge.
    """

    keys: tuple[tuple[str, pa.DataType], ...]
    schema: pa.Schema
    initial: tuple[pa.Scalar, ...] = ()
    """The value of each column in rows that were written before it was declared; empty: NULL."""
    stored: tuple[str, ...] | None = None
    """The names of the columns in the runs; None: all. Such a codec writes nothing."""
    kind = "newest"

    @property
    def description(self) -> Mapping[str, Any]:
        return {
            "keys": [[name, str(kind)] for name, kind in self.keys],
            "columns": [[field.name, str(field.type)] for field in self.schema],
        }

    def of_older(self, description: Mapping[str, Any]) -> NewestCodec | None:
        """Return the codec of runs that were written before some columns were declared."""
        own = self.description
        known = [column for column in description.get("columns", ()) if column in own["columns"]]
        if description.get("keys") != own["keys"] or description.get("columns") != known:
            return None
        return replace(self, stored=tuple(name for name, _ in known))

    def fields_of(self, values: NewestRows) -> list[pa.Field]:
        """Return the columns; times are as narrow as the latest allows."""
        return self._fields(int(values.times.max(initial=0)))

    def fields_of_merged(self, runs: Sequence[Sequence[StoredRows]]) -> list[pa.Field]:
        return self._fields(max((int(each.times.max(initial=0)) for run in runs for each in run), default=0))

    def _fields(self, latest: int) -> list[pa.Field]:
        kind = next(kind for kind, limit in _WIDTHS if latest < limit)
        rows = [pa.field(f"row.{number}", field.type) for number, field in enumerate(self.schema)]
        return [pa.field(_TIME, kind, nullable=False), pa.field(_PRESENT, pa.bool_(), nullable=False), *rows]

    def encode(self, values: NewestRows, fields: Sequence[pa.Field]) -> list[pa.Array]:
        return [pa.array(values.times).cast(fields[0].type), pa.array(values.present), *values.columns]

    def decode(self, columns: Mapping[str, pa.Array]) -> StoredRows:
        names = [field.name for field in self.schema] if self.stored is None else self.stored
        place = {name: f"row.{number}" for number, name in enumerate(names)}
        given = (columns[place[field.name]] if field.name in place else None for field in self.schema)
        return StoredRows(columns[_TIME].to_numpy(zero_copy_only=True), columns[_PRESENT], tuple(given))

    def read(self, stored: StoredRows, rows: Ints | slice) -> NewestRows:
        def chosen(column: pa.Array) -> pa.Array:
            if isinstance(rows, slice):
                start, stop, _ = rows.indices(len(stored.times))
                return column.slice(start, stop - start)
            return column.take(pa.array(rows))

        present = chosen(stored.present).to_numpy(zero_copy_only=False)
        given = (
            self._first_values(number, present) if column is None else chosen(column)
            for number, column in enumerate(stored.columns)
        )
        return NewestRows(stored.times[rows].astype(np.int64), present, tuple(given))

    def _first_values(self, number: int, present: Mask) -> pa.Array:
        """Return the values of a column in rows that were written without it: NULL in a tombstone."""
        kind = self.schema.field(number).type
        value = self.initial[number] if self.initial else pa.scalar(None, kind)
        return pc.if_else(pa.array(present), value, pa.scalar(None, kind))

    def take(self, values: NewestRows, rows: Ints) -> NewestRows:
        at = pa.array(rows)
        return NewestRows(values.times[rows], values.present[rows], tuple(each.take(at) for each in values.columns))

    def merge(self, pieces: Sequence[NewestRows], order: Ints, starts: Ints) -> NewestRows:
        times = np.concatenate([piece.times for piece in pieces])
        ordered = times[order]
        lengths = np.diff(np.append(starts, len(order)))
        latest = np.repeat(np.maximum.reduceat(ordered, starts), lengths) if len(starts) else ordered
        chosen = order[np.flatnonzero(ordered == latest)]
        at = pa.array(chosen)
        columns = (pa.concat_arrays([piece.columns[n] for piece in pieces]) for n in range(len(self.schema)))
        present = np.concatenate([piece.present for piece in pieces])
        return NewestRows(times[chosen], present[chosen], tuple(column.take(at) for column in columns))

    def is_zero(self, values: NewestRows, *, oldest: bool = False) -> Mask | None:
        """Return the tombstones, if no older run may have a row for them."""
        return ~values.present if oldest else None


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """Keys, sorted by hash, then by their columns, without duplicates."""

    hash: Hashes
    columns: Sequence[Column]
    """The key columns, canonical."""

    def __len__(self) -> int:
        return len(self.hash)

    def numbers(self, hashes: Hashes, columns: Sequence[Column]) -> Ints:
        """Return the number of each of some keys among these; -1 for a key that is not among them."""
        numbers = self.hash.searchsorted(hashes, "left")
        open_ = np.arange(len(hashes))
        while len(open_):
            at = numbers[open_]
            there = at < len(self.hash)
            there[there] = self.hash[at[there]] == hashes[open_[there]]
            numbers[open_[~there]] = -1
            open_ = open_[there]
            open_ = open_[unequal_rows(columns, open_, self.columns, numbers[open_])]
            numbers[open_] += 1  # another key with the same hash
        return numbers


@dataclass(frozen=True, slots=True)
class Cells:
    """Rows of touched keys; a key may have several, which further key columns distinguish."""

    key: Ints
    """The number of each row's key."""
    further: tuple[Column, ...]
    """The key columns after those of the touched keys."""
    columns: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.key)


def held_rows(codec: NewestCodec, touched: TouchedKeys, runs: Iterable[OpenRun[StoredRows]]) -> Cells:
    """Return the current rows of touched keys, in order; the keys of the codec begin with the columns of these."""
    wanted = distinct_sorted(touched.hash)
    pieces = []
    for segment in (segment for run in runs for segment in run.segments):
        places = ranges(*segment.stretches(wanted))
        if len(places):
            pieces.append(segment.take(codec, places))
    width = len(touched.columns)
    if not pieces:
        further = tuple(Column.from_arrow(pa.nulls(0, kind), kind) for _, kind in codec.keys[width:])
        return Cells(np.zeros(0, np.int64), further, tuple(pa.nulls(0, field.type) for field in codec.schema))
    rows = merge_rows(codec, pieces)
    rows = filtered(codec, rows, rows.values.present)
    numbers = touched.numbers(rows.hash, rows.keys[:width])
    known = np.flatnonzero(numbers >= 0)
    if len(known) < len(numbers):
        numbers = numbers[known]
        rows = KeyedRows(
            rows.hash[known], [key.take(known) for key in rows.keys], codec.take(rows.values, known), rows.collides
        )
    return Cells(numbers, tuple(rows.keys[width:]), rows.values.columns)


def written_rows(touched: TouchedKeys, cells: Cells, present: Mask, time: int) -> KeyedRows[NewestRows]:
    """Return rows in the form of a run; those that are not present become tombstones."""
    hashes = touched.hash[cells.key]
    keys = [*(column.take(cells.key) for column in touched.columns), *cells.further]
    grouping = group(hashes, keys)
    order = grouping.order
    at = pa.array(order)
    values = NewestRows(
        np.full(len(order), time, np.int64), present[order], tuple(column.take(at) for column in cells.columns)
    )
    return KeyedRows(hashes[order], [key.take(order) for key in keys], values, grouping.collides)
