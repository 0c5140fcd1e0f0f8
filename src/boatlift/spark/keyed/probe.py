"""Finding keys in runs, in time proportional to the keys looked for, not to the state."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boatlift.spark.keyed.column import unequal_rows
from boatlift.spark.keyed.group import ranges
from boatlift.spark.keyed.opened import Segment
from boatlift.spark.keyed.rows import KeyedRows

__all__ = ["matching_rows"]

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_CHUNK = 1024


def matching_rows(needles: KeyedRows[Any], segment: Segment[Any]) -> tuple[Ints, Ints]:
    """Return the pairs (needle, row) of equal keys; each needle and each row is in one pair at most.

    Args:
        needles: The keys that are looked for.
        segment: May hold other key groups as well, or only some.
    """
    if not len(segment.hash):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if needles.collides or segment.collides:
        asked, rows = _all_pairs(needles.hash, segment.hash)
    elif len(segment.hash) * 8 < len(needles.hash):
        rows, asked = _pairs(segment.hash, needles.hash)
    else:
        asked, rows = _pairs(needles.hash, segment.hash)
    if not len(asked):
        return asked, rows
    differ = unequal_rows(needles.keys, asked, segment.keys, rows)
    return (asked[~differ], rows[~differ]) if differ.any() else (asked, rows)


def _pairs(few: Hashes, many: Hashes) -> tuple[Ints, Ints]:
    """Return the pairs of equal hashes where neither side has one twice."""
    places = _search(many, few)
    inside = np.minimum(places, len(many) - 1)
    hits = np.flatnonzero(many[inside] == few)
    return hits, places[hits]


def _all_pairs(needles: Hashes, hashes: Hashes) -> tuple[Ints, Ints]:
    """Return all pairs of equal hashes."""
    first, last = hashes.searchsorted(needles, "left"), hashes.searchsorted(needles, "right")
    return np.repeat(np.arange(len(needles)), last - first), ranges(first, last)


def _search(hashes: Hashes, needles: Hashes) -> Ints:
    """Return `hashes.searchsorted(needles)` of sorted needles, in stretches that stay in the processor's cache."""
    if len(needles) < 4 * _CHUNK:
        return hashes.searchsorted(needles)
    places = np.empty(len(needles), np.int64)
    bounds = [*hashes.searchsorted(needles[::_CHUNK]).tolist(), len(hashes)]
    for number, start in enumerate(range(0, len(needles), _CHUNK)):
        low, high = bounds[number], bounds[number + 1]
        stretch = hashes[low : high + 1].searchsorted(needles[start : start + _CHUNK])
        np.add(stretch, low, out=places[start : start + _CHUNK])
    return places
