"""The keys that a step touches, and their newest rows in the state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.state.column import Column, unequal_rows
from boatlift.state.group import distinct_sorted, group, ranges
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.newest.codec import NewestCodec, NewestRows, StoredRows
from boatlift.state.opened import OpenRun
from boatlift.state.rows import KeyedRows

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """Keys, sorted by hash, then by their columns, without duplicates.

    Attributes:
        columns: The key columns, canonical.
    """

    hash: Hashes
    columns: Sequence[Column]

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
    """Rows of touched keys; a key may have several, which further key columns distinguish.

    Attributes:
        key: The number of each row's key.
        further: The key columns after those of the touched keys.
        columns: The columns of the rows.
    """

    key: Ints
    further: tuple[Column, ...]
    columns: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.key)


def held_rows(codec: NewestCodec, touched: TouchedKeys, runs: Iterable[OpenRun[StoredRows]]) -> Cells:
    """Return the current rows of touched keys, in the order of their keys.

    Args:
        codec: The codec, whose keys begin with those of the touched keys.
    """
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


def written_rows(
    touched: TouchedKeys, cells: Cells, present: npt.NDArray[np.bool_], time: int
) -> KeyedRows[NewestRows]:
    """Return rows in the form of a run.

    Args:
        present: Which rows exist; the others become tombstones.
    """
    hashes = touched.hash[cells.key]
    keys = [*(column.take(cells.key) for column in touched.columns), *cells.further]
    grouping = group(hashes, keys)
    order = grouping.order
    at = pa.array(order)
    values = NewestRows(
        np.full(len(order), time, np.int64), present[order], tuple(column.take(at) for column in cells.columns)
    )
    return KeyedRows(hashes[order], [key.take(order) for key in keys], values, grouping.collides)
