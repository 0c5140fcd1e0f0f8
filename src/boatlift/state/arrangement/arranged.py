"""Arranges changes in memory: consolidates and sorts them like the rows of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column, Hashes, Ints
from boatlift.state.group import group, ranges
from boatlift.state.merge import filtered
from boatlift.state.row_hash import hash_rows
from boatlift.state.segment import Segment

Arranged = KeyedRows[ArrangedRows]


_WITHOUT_GROUP = np.uint64((1 << 52) - 1)

KEY_SEED = 0
"""The seed of a key's hash; a row's identity has the seeds 1 and 2."""

_WORD_SEED = 3


def key_hashes(columns: Sequence[pa.Array], rows: int, *, one_group: bool = False) -> Hashes:
    """Return the hash of each row's key, by which an arrangement is sorted; without columns all rows have one key.

    With `one_group` all rows are in key group 0, so that one task has them all.
    """
    if not columns:
        return np.zeros(rows, np.uint64)
    hashes = hash_rows(columns, rows, KEY_SEED)
    return hashes & _WITHOUT_GROUP if one_group else hashes


def key_words(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Return a second hash of each row's key, which distinguishes keys with equal first hashes."""
    return hash_rows(columns, rows, _WORD_SEED).view(np.int64)


def arranged(
    codec: ArrangementCodec, columns: Sequence[pa.Array], weights: Ints, hashes: Hashes, place: Sequence[Ints] = ()
) -> Arranged:
    """Return weighted rows as an arrangement has them: each row once, none with weight 0.

    Args:
        place: For an arrangement with an order: a second hash of each row's key, and the code of its place.
    """
    rows = len(weights)
    words = (*place, *(hash_rows(columns, rows, seed).view(np.int64) for seed in (1, 2)))
    identity = [Column(pa.int64(), each) for each in words]
    grouping = group(hashes, identity)
    values = codec.merge([ArrangedRows(weights, tuple(columns))], grouping.order, grouping.starts)
    firsts = grouping.order[grouping.starts]
    found = KeyedRows(grouping.hash, [column.take(firsts) for column in identity], values, grouping.collides)
    return filtered(codec, found, ~codec.is_zero(values))


def rows_of_keys(codec: ArrangementCodec, wanted: Hashes, segment: Segment[ArrangedRows]) -> Arranged:
    """Return the rows of a segment whose keys have one of some hashes, which ascend without duplicates."""
    return segment.take(codec, ranges(*segment.stretches(wanted)))
