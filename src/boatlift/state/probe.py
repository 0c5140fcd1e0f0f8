"""Finding keys in runs, in time proportional to the keys looked for, not to the state."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boatlift.state.group import ranges
from boatlift.state.rows import KeyedRows
from boatlift.state.segment import Segment

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


def matching_rows(needles: KeyedRows[Any], segment: Segment[Any]) -> tuple[Ints, Ints]:
    """Return the pairs (needle, row) of equal keys; each needle and each row is in one pair at most.

    Args:
        segment: May hold other key groups as well, or only some.
    """
    if not len(segment):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if needles.collides or segment.collides:
        first, last = segment.stretches(needles.hash)
        asked, rows = np.repeat(np.arange(len(needles)), last - first), ranges(first, last)
    elif len(segment) * 8 < len(needles):
        rows, asked = _pairs(segment.hash, Segment(needles.hash, needles.keys, None, collides=False))
    else:
        asked, rows = _pairs(needles.hash, segment)
    if not len(asked):
        return asked, rows
    differ = np.zeros(len(rows), np.bool_)
    for mine, theirs in zip(needles.keys, segment.keys_at(rows), strict=True):
        differ |= mine.take(asked).differs(theirs)
    return (asked[~differ], rows[~differ]) if differ.any() else (asked, rows)


def _pairs(few: Hashes, many: Segment[Any]) -> tuple[Ints, Ints]:
    """Return the pairs of equal hashes where neither side has one twice."""
    places = many.places_of(few)
    inside = np.minimum(places, len(many) - 1)
    hits = np.flatnonzero(many.hashes_at(inside) == few)
    return hits, places[hits]
