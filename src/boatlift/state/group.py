"""Groups equal keys: sorts rows by hash, then by key, and finds where each key begins.

Different keys may have one hash; the key columns distinguish them. This costs one comparison of neighbours: only rows
whose hash several keys share are sorted by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from boatlift.state.column import Column, Hashes, Ints, Mask, sort_rows, unequal_rows

_RADIX_PAYS = 1 << 13


class RowValues(Protocol):
    """Values of rows, indexed like an array; only the requested rows are read."""

    def __getitem__(self, places: Ints, /) -> Any:
        """Return the values of some rows, as an array."""


class Grouping(NamedTuple):
    """An order of rows, and the places in it where keys begin."""

    order: Ints
    """Row numbers, by hash, then by key."""
    starts: Ints
    """Positions in `order`, ascending; the first is 0."""
    hash: Hashes
    """The hash of each key (one for each start)."""
    collides: bool
    """Whether two keys have one hash."""


def sort_hashes(hashes: Hashes) -> Ints:
    """Return an order that sorts hashes, which is fast for evenly spread hashes.

    NumPy sorts 16-bit numbers by radix. Two such passes sort by the upper 32 bits. Hashes that share these with a
    neighbour are then sorted separately.
    """
    if len(hashes) < _RADIX_PAYS:
        return np.argsort(hashes)
    by_second = np.argsort((hashes >> np.uint64(32)).astype(np.uint16), kind="stable")
    upper = (hashes >> np.uint64(48)).astype(np.uint16)
    order: Ints = by_second[np.argsort(upper[by_second], kind="stable")]
    in_order = hashes[order]
    falls = np.flatnonzero(in_order[1:] < in_order[:-1])
    if not len(falls):
        return order
    if len(falls) > len(hashes) // 64:
        return np.argsort(hashes)
    top = in_order >> np.uint64(32)
    crowded = np.unique(top[falls])
    first, last = top.searchsorted(crowded, "left"), top.searchsorted(crowded, "right")
    places = ranges(first, last)
    rows = order[places]
    order[places] = rows[np.argsort(hashes[rows])]
    return order


def group(hashes: Hashes, keys: Sequence[Column], order: Ints | None = None) -> Grouping:
    """Return an order in which rows of equal keys are neighbours.

    Args:
        hashes: One per row; equal keys have equal hashes.
        order: An order that sorts the hashes, if it is known.
    """
    if order is None:
        order = sort_hashes(hashes)
    in_order = hashes[order]
    begins = np.empty(len(order), np.bool_)
    begins[:1] = True
    np.not_equal(in_order[1:], in_order[:-1], out=begins[1:])
    repeats = np.flatnonzero(~begins)
    collides = False
    if len(repeats):
        differ = unequal_rows(keys, order[repeats], keys, order[repeats - 1])
        if differ.any():
            collides = True
            at = repeats[differ]
            begins[at] = True
            order, begins = _tell_apart(hashes, keys, order, begins, in_order, at)
    starts = np.flatnonzero(begins)
    return Grouping(order, starts, in_order if len(starts) == len(order) else in_order[starts], collides)


def grouped_sum(values: Ints, starts: Ints) -> Ints:
    """Return the sum of each group's values; exact if it is an int64, even if sums in between wrap."""
    if len(starts) == len(values):
        return values
    running = np.cumsum(values)
    ends = np.empty(len(starts), np.int64)
    ends[:-1] = starts[1:] - 1
    ends[-1:] = len(values) - 1
    totals = running[ends]
    totals[1:] -= totals[:-1].copy()
    return totals


def _tell_apart(
    hashes: Hashes,
    keys: Sequence[Column],
    order: Ints,
    begins: Mask,
    in_order: Hashes,
    at: Ints,
) -> tuple[Ints, Mask]:
    """Sort the rows whose hash several keys share by key; return the order and the begins.

    Rows of a hash that are sorted already, such as those of one sorted piece, are left unchanged.

    Args:
        at: The places in the order where a key differs from the one before it and has the same hash.
    """
    at = at[_falls(keys, order[at - 1], order[at])]
    if not len(at):
        return order, begins
    shared = distinct_sorted(in_order[at])
    places = ranges(in_order.searchsorted(shared, "left"), in_order.searchsorted(shared, "right"))
    rows = order[places]
    rows = rows[sort_rows(hashes[rows], [column.take(rows) for column in keys])]
    order, begins = order.copy(), begins.copy()
    order[places] = rows
    same_hash = hashes[rows[1:]] == hashes[rows[:-1]]
    begins[places[1:]] = ~same_hash | unequal_rows(keys, rows[1:], keys, rows[:-1])
    return order, begins


def _falls(keys: Sequence[Column], rows: Ints, others: Ints) -> Mask:
    """Return which rows come after others in the order of `sort_rows`; all, if that is expensive to find out."""
    falls, equal = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
    for column in keys:
        if column.valid is not None or not column.is_whole:
            return np.ones(len(rows), np.bool_)
        here, there = column.values[rows], column.values[others]
        falls |= equal & (here > there)
        equal &= here == there
    return falls


def distinct_sorted(hashes: Hashes) -> Hashes:
    """Return ascending hashes without duplicates."""
    begins = np.ones(len(hashes), np.bool_)
    np.not_equal(hashes[1:], hashes[:-1], out=begins[1:])
    return hashes[begins]


def each_once(hashes: Hashes) -> Hashes:
    """Return hashes in ascending order, without duplicates; faster than `np.unique`."""
    return distinct_sorted(np.sort(hashes))


def ranges(first: Ints, last: Ints) -> Ints:
    """Return the concatenated ranges first[i] to last[i], which is exclusive."""
    lengths = last - first
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Ints = np.arange(total) + np.repeat(first - (ends - lengths), lengths)
    return numbers


def search_stretches(
    columns: Sequence[RowValues],
    first: Ints,
    last: Ints,
    wanted: Sequence[npt.NDArray[Any]],
    *,
    behind: bool = False,
) -> Ints:
    """Return for each range of sorted rows the first that is not before the wanted one, or the first behind it."""
    low, high = first.copy(), last.copy()
    while len(searched := np.flatnonzero(low < high)):
        middle = (low[searched] + high[searched]) >> 1
        below = np.zeros(len(searched), np.bool_)
        equal = np.ones(len(searched), np.bool_)
        for column, values in zip(columns, wanted, strict=True):
            here, there = column[middle], values[searched]
            below |= equal & (here < there)
            equal &= here == there
        below |= equal & behind
        low[searched[below]] = middle[below] + 1
        high[searched[~below]] = middle[~below]
    return low
