"""Aggregates that need the single values of a key: those of DISTINCT, and minima and maxima over changes.

A distinct value counts once, as long as its weight is positive. If the least value of a key is retracted, the next one
becomes the least. So all values of a key are stored, for minima and maxima in order, with their weights. A step reads
only the values that it changes, or the first of them, and costs what it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.kernels.aggregate.layout import ROWS, Addend, Layout
from boatlift.kernels.aggregate.order_code import ABSENT, Extreme, codes_of, grouped_extreme, grouped_ranked
from boatlift.kernels.aggregate.partials import PartialAggregates
from boatlift.kernels.aggregate.step_input import aggregate
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes, key_words
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.ordered import FirstRows, KeyWords, Order, order_codes, weights_held
from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column, Ints
from boatlift.state.merge import filtered
from boatlift.state.opened import OpenRun
from boatlift.state.segment import Segment, matching_rows


def distinct_part(number: int) -> str:
    """Return the part of the state with the values of an argument."""
    return f"distinct.{number}"


def distinct_codec(layout: Layout, number: int) -> ArrangementCodec:
    """Return the codec of the values of an argument: the columns of the key, then the value."""
    return ArrangementCodec(pa.schema([*layout.keys, layout.arguments[number]]))


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """The values of an argument that a step adds and retracts."""

    moved: Arranged
    """With their weights, arranged by the aggregation's key."""
    left: Ints
    """The weight of each after the step."""
    signs: Ints
    """1: the value appears, −1: it disappears, 0: neither."""

    @classmethod
    def of(
        cls,
        codec: ArrangementCodec,
        change: tuple[Sequence[pa.Array], pa.Array, Ints],
        runs: Iterable[OpenRun[ArrangedRows]],
    ) -> DistinctValues:
        """Return the values that a step adds and retracts, given its rows: keys' columns, values, weights."""
        keys, values, weights = change
        known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        at = pa.array(known)
        columns = [column.take(at) for column in (*keys, values)]
        moved = arranged(codec, columns, weights[known], key_hashes(columns[:-1], len(known)))
        segments = [segment for run in runs for segment in run.segments if len(segment)]
        before = weights_held(codec, moved, segments)
        after = before + moved.values.weights
        return cls(moved, after, np.sign(after) - np.sign(before))


def counted_once(layout: Layout, delta: KeyedRows[PartialAggregates], number: int, values: DistinctValues) -> None:
    """Add the aggregates of an argument's distinct values to those that a step adds, in place."""
    count = np.zeros(len(delta), np.int64)
    part = _aggregated(layout, number, values)
    if part is not None:
        own, places = matching_rows(part, Segment(delta.hash, delta.keys, None, delta.collides))
        for addend, column in part.values.addends.items():
            if addend.kind not in ("rows", "nulls"):
                spread = np.zeros(len(delta), np.int64)
                spread[places] = column[own]
                delta.values.addends[Addend(addend.kind, number, addend.limb)] = spread
        count[places] = part.values.rows[own]
    delta.values.addends[Addend("nulls", number)] = delta.values.addends[ROWS] - count


def _aggregated(layout: Layout, number: int, values: DistinctValues) -> KeyedRows[PartialAggregates] | None:
    """Return the partial aggregates of the values that appear and disappear."""
    moved = np.flatnonzero(values.signs)
    if not len(moved):
        return None
    name, _ = layout.arguments[number]
    own = tuple(replace(each, distinct=False) for each in layout.aggregates if each.argument == name)
    at = pa.array(moved)
    columns = [column.take(at) for column in values.moved.values.rows]
    hashes = pa.array(values.moved.hash[moved].view(np.int64))
    names = [*(key for key, _ in layout.keys), name, WEIGHT, HASH]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array(values.signs[moved]), hashes], names=names)
    return aggregate(Layout(layout.keys, own, weighted=True), [batch])


_FIRST = FirstRows(1)


def part_of(pair: tuple[str, int]) -> str:
    """Return the part of the state with the values of a minimum or maximum."""
    return f"{pair[0]}.{pair[1]}"


def values_codec(layout: Layout, pair: tuple[str, int], expiring: int | None = None) -> ArrangementCodec:
    """Return the codec of the values of a minimum or maximum: the value, then the key column that expires.

    A row has hashes of its key but not the key itself, so it needs the column by which it expires.

    Args:
        pair: `min` or `max`, and the number of the argument.
        expiring: The place of that column in the key; None: values never expire.
    """
    columns = [layout.arguments[pair[1]], *([] if expiring is None else [layout.keys[expiring]])]
    return ArrangementCodec(pa.schema(columns), ordered=True)


@dataclass(frozen=True, slots=True)
class FirstValues:
    """The least or greatest values of some keys, before and after a step."""

    moved: Arranged
    gone: Arranged
    left: Ints
    """The weight of each retracted one after the step."""
    before: Extreme
    after: Extreme

    @classmethod
    def of(
        cls,
        layout: Layout,
        pair: tuple[str, int],
        keys: KeyedRows[PartialAggregates],
        change: tuple[list[pa.Array], pa.Array, Ints],
        runs: Iterable[OpenRun[ArrangedRows]],
        expiring: int | None = None,
    ) -> FirstValues:
        """Return the first values of keys.

        Args:
            pair: `min` or `max`, and the number of the argument.
            change: The step's rows: the columns of their keys, which are among `keys`; their values; their weights.
            expiring: The place in the key of the column by which values expire; see `values_codec`.
        """
        which, _ = pair
        key_columns, values, weights = change
        codec = values_codec(layout, pair, expiring)
        known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        at = pa.array(known)
        own, values = [column.take(at) for column in key_columns], values.take(at)
        hashes, word = key_hashes(own, len(known)), key_words(own, len(known))
        place = order_codes(values, Order(descending=which == "max", nulls_first=False))
        columns = [values] if expiring is None else [values, own[expiring]]
        moved = arranged(codec, columns, weights[known], hashes, (word, place))
        words = key_words([column.to_arrow() for column in keys.keys], len(keys))
        order = np.lexsort((words, keys.hash))
        asked = KeyWords(keys.hash[order], words[order])
        segments = [segment for run in runs for segment in run.segments if len(segment)]
        found: tuple[list[Arranged], list[Arranged]] = ([], [])
        for sides in _FIRST.around(codec, asked, segments, moved):
            for pieces, side in zip(found, sides, strict=True):
                pieces.append(side)
        before, after = (_spread(layout, pair, asked, order, pieces) for pieces in found)
        gone = filtered(codec, moved, moved.values.weights < 0)
        left = weights_held(codec, gone, segments) + gone.values.weights
        return cls(moved, gone, left, before, after)


def _spread(layout: Layout, pair: tuple[str, int], asked: KeyWords, order: Ints, pieces: list[Arranged]) -> Extreme:
    """Return the first value of each key, given candidates.

    Args:
        order: The place of each key of `asked` among the step's keys.
        pieces: The first values in the order; several may have equal codes.
    """
    which, number = pair
    kind = layout.arguments[number][1]
    there = [piece for piece in pieces if len(piece)]
    numbers = np.concatenate([np.zeros(0, np.int64), *(asked.numbers(piece) for piece in there)])
    values = pa.chunked_array([piece.values.rows[0] for piece in there], kind).combine_chunks()
    by_key = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[by_key], prepend=-1))
    places = order[numbers[by_key][starts]]
    if layout.by_code(number):
        codes = np.full(len(asked), ABSENT[which])
        if len(starts):
            own = codes_of(Column.from_arrow(values, kind, canonical=False))[by_key]
            codes[places] = grouped_extreme(which, own, None, starts)
        return codes
    best = grouped_ranked(which, values.take(pa.array(by_key)), starts)
    found = np.full(len(asked), -1)
    found[places] = np.arange(len(places))
    return best.take(pa.array(found, mask=found < 0))
