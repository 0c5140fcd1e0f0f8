"""What keys had before: their state, merged from all runs that know them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.operators.aggregate.kernel.layout import ROWS, Layout
from boatlift.operators.aggregate.kernel.order_code import ABSENT, merge_ranked
from boatlift.operators.aggregate.kernel.partials import Partials, PartialState, settle_sums
from boatlift.spark.keyed.column import unequal_rows
from boatlift.spark.keyed.group import ranges
from boatlift.spark.keyed.opened import OpenRun, Segment

__all__ = ["Previous", "probe"]

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_CHUNK = 1024


@dataclass(slots=True)
class Previous:
    """What keys had before.

    Attributes:
        found: Which keys had anything.
        everyone: Whether all had.
        state: Their state, one row a needle; nothing (zeros, no value) for the others.
    """

    found: npt.NDArray[np.bool_]
    everyone: bool
    state: PartialState


def probe(layout: Layout, needles: Partials, runs: Iterable[OpenRun]) -> Previous:
    """Finds the state of keys in runs, in time proportional to the keys asked for, not to the state.

    Args:
        layout: The processor's layout.
        needles: Keys, sorted by hash.
        runs: They may hold other key groups as well, or only some.
    """
    length = len(needles)
    found = np.zeros(length, np.bool_)
    everyone = False
    state = PartialState(length, {}, {})
    for run in runs:
        for segment in run.segments:
            asked, rows = _hits(needles, segment)
            if len(asked):
                _merge(state, asked, segment.pick(rows))
                if not everyone:
                    found[asked] = True
                    everyone = len(asked) == length
    if ROWS not in state.adds:
        state.adds[ROWS] = np.zeros(length, np.int64)
    settle_sums(layout, state)
    return Previous(found, everyone or bool(found.all()), state)


def _hits(needles: Partials, segment: Segment) -> tuple[Ints, Ints]:
    """Gives the pairs (needle, row) of equal keys; a needle is in one pair at most."""
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
    """Gives the pairs of equal hashes where neither side has one twice."""
    places = _search(many, few)
    inside = np.minimum(places, len(many) - 1)
    hits = np.flatnonzero(many[inside] == few)
    return hits, places[hits]


def _all_pairs(needles: Hashes, hashes: Hashes) -> tuple[Ints, Ints]:
    """Gives all pairs of equal hashes."""
    first, last = hashes.searchsorted(needles, "left"), hashes.searchsorted(needles, "right")
    return np.repeat(np.arange(len(needles)), last - first), ranges(first, last)


def _search(hashes: Hashes, needles: Hashes) -> Ints:
    """Does `hashes.searchsorted(needles)` for sorted needles, in stretches that stay in the processor's cache."""
    if len(needles) < 4 * _CHUNK:
        return hashes.searchsorted(needles)
    places = np.empty(len(needles), np.int64)
    bounds = [*hashes.searchsorted(needles[::_CHUNK]).tolist(), len(hashes)]
    for number, start in enumerate(range(0, len(needles), _CHUNK)):
        low, high = bounds[number], bounds[number + 1]
        stretch = hashes[low : high + 1].searchsorted(needles[start : start + _CHUNK])
        np.add(stretch, low, out=places[start : start + _CHUNK])
    return places


def _merge(state: PartialState, asked: Ints, hits: PartialState) -> None:
    everyone = hits.length == state.length
    for part, values in hits.adds.items():
        before = state.adds.get(part)
        if before is None and everyone:
            state.adds[part] = values
        elif everyone and before is not None:
            before += values
        else:
            if before is None:
                before = state.adds[part] = np.zeros(state.length, np.int64)
            before[asked] += values
    for (which, number), extreme in hits.extremes.items():
        known = state.extremes.get((which, number))
        if isinstance(extreme, pa.Array):
            places = np.zeros(state.length, np.int64)
            places[asked] = np.arange(hits.length)
            missing = np.ones(state.length, np.bool_)
            missing[asked] = False
            spread = extreme.take(pa.array(places, mask=missing))
            state.extremes[which, number] = spread if known is None else merge_ranked(which, known, spread)
        else:
            if known is None:
                known = state.extremes[which, number] = np.full(state.length, ABSENT[which])
            known[asked] = (np.minimum if which == "min" else np.maximum)(known[asked], extreme)
