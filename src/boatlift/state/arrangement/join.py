"""The inner join of two streams of changes, which is bilinear: the change of the result follows from the changes.

With arrangements A and B, and the changes ΔA and ΔB of a step, the change of A ⋈ B is ΔA ⋈ B + A ⋈ ΔB + ΔA ⋈ ΔB.
Weights multiply. The cost is that of the changed rows and of their partners.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boatlift.state.arrangement.arranged import Arranged
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.column import Column, Ints, Mask, is_supported, unequal_rows
from boatlift.state.group import ranges
from boatlift.state.opened import OpenRun
from boatlift.state.row_hash import hash_rows
from boatlift.state.segment import Segment

PAIRS_AT_ONCE = 1 << 20
"""The number of pairs that are made at a time, because a hot key may have many partners."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a join."""

    codec: ArrangementCodec
    keys: tuple[int, ...]
    """The places of the key columns among its columns, in the same order on both sides."""
    kept: tuple[int, ...]
    """The places of the columns in the result."""

    @property
    def kept_types(self) -> list[pa.DataType]:
        return [self.codec.schema.field(place).type for place in self.kept]

    def kept_of(self, columns: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
        return tuple(columns[place] for place in self.kept)


def join_change(
    left: Side,
    right: Side,
    changes: tuple[Arranged | None, Arranged | None],
    runs: tuple[Iterable[OpenRun[ArrangedRows]], Iterable[OpenRun[ArrangedRows]]],
) -> Iterator[tuple[list[pa.Array], Ints]]:
    """Return the change of a join, in pieces: the columns of the result, and the weights.

    Args:
        changes: The changes of the two sides; None: no change. No key has a NULL.
        runs: The arrangements of the two sides before the step.
    """
    change, other_change = changes
    if change is not None and len(change):
        for run in runs[1]:
            for segment in run.segments:
                yield from _pairs(left, change, right, segment)
        if other_change is not None and len(other_change):
            changed = Segment(other_change.hash, other_change.keys, other_change.values, other_change.collides)
            yield from _pairs(left, change, right, changed)
    if other_change is not None and len(other_change):
        for run in runs[0]:
            for segment in run.segments:
                for columns, weights in _pairs(right, other_change, left, segment):
                    mine = len(right.kept)
                    yield [*columns[mine:], *columns[:mine]], weights


def _pairs(
    side: Side, change: Arranged, other: Side, segment: Segment[ArrangedRows]
) -> Iterator[tuple[list[pa.Array], Ints]]:
    """Return the pairs of a change's rows with a segment's rows: columns of the change first."""
    first, last = segment.stretches(change.hash)
    counts = last - first
    for begin, end in _cuts(counts):
        rows = ranges(first[begin:end], last[begin:end])
        if not len(rows):
            continue
        asked = np.repeat(np.arange(begin, end), counts[begin:end])
        found = segment.read(other.codec, rows)
        mine = side.codec.take(change.values, asked)
        differ = unequal_rows(
            _keys(mine.rows, side.keys),
            np.arange(len(asked)),
            _keys(found.rows, other.keys),
            np.arange(len(rows)),
        )
        weights = mine.weights * found.weights
        columns = [*(mine.rows[place] for place in side.kept), *(found.rows[place] for place in other.kept)]
        if differ.any():  # keys with equal hashes
            same = np.flatnonzero(~differ)
            at = pa.array(same)
            columns, weights = [column.take(at) for column in columns], weights[same]
        if len(weights):
            yield columns, weights


def _keys(rows: Sequence[pa.Array], places: Sequence[int]) -> list[Column]:
    """Return the columns of a key for comparison; a nested column becomes two hashes."""
    keys = []
    for place in places:
        column = rows[place]
        if is_supported(column.type):
            keys.append(Column.from_arrow(column, column.type))
        else:
            hashes = (hash_rows([column], len(column), seed) for seed in (1, 2))
            keys += [Column(pa.int64(), each.view(np.int64)) for each in hashes]
    return keys


def _cuts(counts: Ints) -> Iterator[tuple[int, int]]:
    """Return ranges of rows with at most `PAIRS_AT_ONCE` partners, or of one row with more."""
    total = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        before = int(total[begin - 1]) if begin else 0
        end = max(begin + 1, int(total.searchsorted(before + PAIRS_AT_ONCE, "right")))
        yield begin, end
        begin = end


def without_null_keys(side: Side, columns: Sequence[pa.Array]) -> Mask | None:
    """Return which rows have a key without NULL, None if all have: the others have no partner."""
    known: Mask | None = None
    for place in side.keys:
        if columns[place].null_count:
            valid = columns[place].is_valid().to_numpy(zero_copy_only=False)
            known = valid if known is None else known & valid
    return known
