"""Arrangements with an order: the first rows of a key are read without the rows after them.

The rows of a key are in several runs, and a later run may retract a row of an earlier one. So some rows of each run are
read: their sum is known up to the first unread row of any run. If that is not enough for a key, more rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.state.arrangement.arranged import Arranged
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.column import Column, Hashes, Ints, Mask, canonical_bits, fits_codes, text_bytes
from boatlift.state.group import grouped_sum, ranges, search_stretches
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.segment import Segment

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_BYTES = np.arange(8)


@dataclass(frozen=True, slots=True)
class Order:
    """The order of one column, as in ORDER BY."""

    descending: bool = False
    nulls_first: bool = True


def order_codes(column: pa.Array, order: Order) -> Ints:
    """Return a code for each value of fixed width, text or binary that keeps the order; NaN comes last, as in Spark."""
    codes = _ascending(column)
    if order.descending:
        codes = ~codes
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        codes = np.where(null, _LEAST if order.nulls_first else _MOST, codes)
    return codes


def any_order_codes(column: pa.Array, order: Order) -> Ints:
    """Return such codes for values of any supported type: codes, or ranks among the values of the column."""
    if fits_codes(column.type):
        return order_codes(column, order)
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    ranks = np.where(column.is_null().to_numpy(zero_copy_only=False), 0, ranks)
    return -ranks if order.descending else ranks


def exact_codes(column: pa.Array, order: Order) -> list[Ints]:
    """Return two codes for each value, which together keep the order and distinguish different values of the column."""
    null = column.is_null().to_numpy(zero_copy_only=False)
    return [np.where(null, -1 if order.nulls_first else 1, 0), any_order_codes(column, order)]


def _ascending(column: pa.Array) -> Ints:
    kind = column.type
    if pa.types.is_float32(kind):
        return _ascending(column.cast(pa.float64()))
    stored = Column.from_arrow(column, kind, canonical=False).values
    if isinstance(stored, pa.Array):
        return _first_bytes(stored)
    if pa.types.is_float64(kind):
        bits = canonical_bits(stored).view(np.int64)
        return np.where(bits < 0, bits ^ _MOST, bits)
    if pa.types.is_decimal(kind):
        low, high = stored["low"].view(np.int64), stored["high"]
        beyond = np.where(high < 0, _LEAST, _MOST)
        return np.where(high == low >> 63, low, beyond)
    return stored.astype(np.int64)


def _first_bytes(column: pa.Array) -> Ints:
    """Return the first eight bytes of each text as a number, which keeps the order."""
    offsets, data = text_bytes(column)
    padded = np.concatenate([data[: int(offsets[-1]) if len(column) else 0], np.zeros(8, np.uint8)])
    heads = padded[np.minimum(offsets[:-1], len(padded) - 8)[:, None] + _BYTES]
    heads[(offsets[1:] - offsets[:-1])[:, None] <= _BYTES] = 0
    words = np.ascontiguousarray(heads).view(">u8").reshape(-1).astype(np.uint64)
    return (words ^ np.uint64(1 << 63)).view(np.int64)


_KEY, _PLACE = 0, 1
"""The columns of an ordered arrangement's identity: the second hash of the key, and the code of the row's place."""


@dataclass(frozen=True, slots=True)
class KeyWords:
    """Keys, each as two hashes: ascending, without duplicates."""

    hash: Hashes
    word: Ints

    @classmethod
    def of(cls, rows: Arranged) -> KeyWords:
        hashes, words = rows.hash, rows.keys[_KEY].values
        begins = np.ones(len(rows), np.bool_)
        begins[1:] = (hashes[1:] != hashes[:-1]) | (words[1:] != words[:-1])
        return cls(hashes[begins], words[begins])

    def __len__(self) -> int:
        return len(self.hash)

    def numbers(self, rows: Arranged) -> Ints:
        """Return the number of each row's key, which must be among these."""
        first, last = self.hash.searchsorted(rows.hash, "left"), self.hash.searchsorted(rows.hash, "right")
        return search_stretches([self.word], first, last, [rows.keys[_KEY].values])

    def stretches(self, segment: Segment[ArrangedRows]) -> tuple[Ints, Ints]:
        """Return the begin and the end of each key's rows in a segment."""
        first, last = segment.stretches(self.hash)
        words = segment.key_values(_KEY)
        there = np.flatnonzero(first < last)
        mixed = there[(words[first[there]] != self.word[there]) | (words[last[there] - 1] != self.word[there])]
        if len(mixed):  # keys with equal hashes
            low, high, wanted = first[mixed], last[mixed], [self.word[mixed]]
            first[mixed] = search_stretches([words], low, high, wanted)
            last[mixed] = search_stretches([words], low, high, wanted, behind=True)
        return first, last


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The rows of a key up to a row in their order, and all that have the same place as that row."""

    count: int
    """The number of rows, counted with their weights."""
    different: bool = False
    """Whether `count` counts distinct places instead."""
    ahead: int = 4
    """The number of further rows to read at once; if they are too few, four times as many are read."""

    def around(
        self, codec: ArrangementCodec, keys: KeyWords, segments: Sequence[Segment[ArrangedRows]], change: Arranged
    ) -> Iterator[tuple[Arranged, Arranged]]:
        """Return the first rows of keys before a change of these keys and after it, in portions of keys."""
        stretches = [keys.stretches(segment) for segment in segments]
        pending = np.arange(len(keys))
        changed = keys.numbers(change)
        most = self.count + self.ahead
        while len(pending):
            held, known, complete = _read(codec, segments, stretches, pending, len(keys), most)
            asked = np.zeros(len(keys), np.bool_)
            asked[pending] = True
            mine = filtered(codec, change, asked[changed])
            nothing = filtered(codec, mine, np.zeros(len(mine), np.bool_))
            summed = merge_rows(codec, held or [nothing])
            sides = summed, merge_rows(codec, [summed, mine])
            numbers = [keys.numbers(rows) for rows in sides]
            cuts = [self._cuts(rows, own, len(keys)) for rows, own in zip(sides, numbers, strict=True)]
            ready = asked
            for cut in cuts:
                ready &= (cut < known) | complete
            before, after = (
                filtered(codec, rows, (_values(rows, _PLACE) <= cut[own]) & ready[own])
                for rows, own, cut in zip(sides, numbers, cuts, strict=True)
            )
            yield before, after
            pending = pending[~ready[pending]]
            most *= 4

    def _cuts(self, rows: Arranged, numbers: Ints, keys: int) -> Ints:
        """Return for each key the place up to which its rows come first; the last place if it has too few rows."""
        places = _values(rows, _PLACE)
        counts = rows.values.weights
        if self.different:
            counts = np.ones(len(rows), np.int64)
            counts[1:] = (numbers[1:] != numbers[:-1]) | (places[1:] != places[:-1])
        total = np.cumsum(counts)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        before = np.zeros(keys, np.int64)
        before[numbers[starts]] = total[starts] - counts[starts]
        reached = np.flatnonzero(total - before[numbers] >= self.count)
        cuts = np.full(keys, _MOST)
        cuts[numbers[reached][::-1]] = places[reached][::-1]  # the first place of each key is written last
        return cuts


def weights_held(codec: ArrangementCodec, rows: Arranged, segments: Sequence[Segment[ArrangedRows]]) -> Ints:
    """Return the weight of each of some rows in an arrangement."""
    held = np.zeros(len(rows), np.int64)
    wanted = [column.values for column in rows.keys]
    for segment in segments:
        columns = [segment.key_values(number) for number in range(len(wanted))]
        first, last = segment.stretches(rows.hash)
        low, high = (search_stretches(columns, first, last, wanted, behind=behind) for behind in (False, True))
        there = np.flatnonzero(low < high)
        places = ranges(low[there], high[there])
        if len(places):  # a state by iteration may have a row several times
            weights = segment.read(codec, places).weights
            held[there] += grouped_sum(weights, np.cumsum(high[there] - low[there]) - (high - low)[there])
    return held


def _read(
    codec: ArrangementCodec,
    segments: Sequence[Segment[ArrangedRows]],
    stretches: Sequence[tuple[Ints, Ints]],
    pending: Ints,
    keys: int,
    most: int,
) -> tuple[list[Arranged], Ints, Mask]:
    """Read up to `most` rows of each pending key from each segment.

    Returns:
        The rows; for each key the place of the first unread row; and whether all rows are read.
    """
    held = []
    known = np.full(keys, _MOST)
    complete = np.ones(keys, np.bool_)
    for segment, (first, last) in zip(segments, stretches, strict=True):
        begin, whole = first[pending], last[pending]
        end = np.minimum(begin + most, whole)
        left = np.flatnonzero(end < whole)
        cut = pending[left]
        known[cut] = np.minimum(known[cut], segment.key_values(_PLACE)[end[left]])
        complete[cut] = False
        places = ranges(begin, end)
        if len(places):
            held.append(segment.take(codec, places))
    return held, known, complete


def _values(rows: Arranged, column: int) -> Ints:
    values: Ints = rows.keys[column].values
    return values
