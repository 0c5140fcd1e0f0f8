"""Aggregates of distinct values: each value of a key counts once, as long as its weight is positive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.kernels.aggregate.layout import ROWS, Addend, Layout
from boatlift.kernels.aggregate.partials import PartialAggregates
from boatlift.kernels.aggregate.step_input import aggregate
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.ordered import weights_held
from boatlift.state.opened import OpenRun
from boatlift.state.rows import KeyedRows
from boatlift.state.segment import Segment, matching_rows

Ints = npt.NDArray[np.int64]


def distinct_part(number: int) -> str:
    """Return the part of the state with the values of an argument."""
    return f"distinct.{number}"


def distinct_codec(layout: Layout, number: int) -> ArrangementCodec:
    """Return the codec of the values of an argument: the columns of the key, then the value."""
    return ArrangementCodec(pa.schema([*layout.keys, layout.arguments[number]]))


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """The values of an argument that a step adds and retracts.

    Attributes:
        moved: With their weights, arranged by the aggregation's key.
        left: The weight of each after the step.
        signs: 1: the value appears, −1: it disappears, 0: neither.
    """

    moved: Arranged
    left: Ints
    signs: Ints

    @classmethod
    def of(
        cls,
        codec: ArrangementCodec,
        change: tuple[Sequence[pa.Array], pa.Array, Ints],
        runs: Iterable[OpenRun[ArrangedRows]],
    ) -> DistinctValues:
        """Return the values that a step adds and retracts.

        Args:
            change: The step's rows: the columns of their keys, their values, their weights.
        """
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
    """Add the aggregates of an argument's distinct values to those that a step adds.

    Args:
        delta: The partial aggregates that the step adds, without those of the argument; changed in place.
    """
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
