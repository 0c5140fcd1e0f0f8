"""Minima and maxima over changes: the first value of a key in a sorted arrangement of all its values.

If the least value is retracted, the next one becomes the least. So all values of a key are stored, sorted, with their
weights. A step reads only the first of them, and costs what it changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.kernels.aggregate.layout import Layout
from boatlift.kernels.aggregate.order_code import ABSENT, Extreme, codes_of, grouped_extreme, grouped_ranked
from boatlift.kernels.aggregate.partials import PartialAggregates
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes, key_words
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.ordered import FirstRows, KeyWords, Order, order_codes, weights_held
from boatlift.state.column import Column
from boatlift.state.merge import filtered
from boatlift.state.opened import OpenRun
from boatlift.state.rows import KeyedRows

Ints = npt.NDArray[np.int64]

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
    """The least or greatest values of some keys, before and after a step.

    Attributes:
        moved: The values that the step adds and retracts.
        gone: The retracted ones.
        left: The weight of each retracted one after the step.
    """

    moved: Arranged
    gone: Arranged
    left: Ints
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
        hashes, word = _words(own, len(known))
        place = order_codes(values, Order(descending=which == "max", nulls_first=False))
        columns = [values] if expiring is None else [values, own[expiring]]
        moved = arranged(codec, columns, weights[known], hashes, (word, place))
        _, words = _words([column.to_arrow() for column in keys.keys], len(keys))
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


def _words(keys: list[pa.Array], rows: int) -> tuple[npt.NDArray[np.uint64], Ints]:
    return key_hashes(keys, rows), key_words(keys, rows)


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
