"""The kernel of the first rows of each key: an arrangement with an order, of which a step reads the touched keys.

A run is sorted by key and place in the order, so that only the rows that come first are read. New rows alone are kept
no longer than they are among the first; of changes every row is kept, because a row behind may move up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.kernels.kernel import ROWS_INPUT, KernelInputs, RowsKernel, StepOutput, output_of, rows_and_hashes
from boatlift.kernels.network.node import refuse_negative
from boatlift.kernels.step_state import STATE, StepState
from boatlift.operators.top_n.operator import PUSHED_OUT
from boatlift.state.arrangement.arranged import Arranged, arranged, key_words
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.ordered import FirstRows, KeyWords, Order, any_order_codes, order_codes, weights_held
from boatlift.state.merge import filtered, merge_rows


@dataclass(frozen=True, slots=True)
class TopNKernel(RowsKernel):
    """The first rows of each key."""

    count: int
    order: tuple[tuple[str, bool], ...]
    """The columns of the order, each with whether it descends."""
    weighted: bool
    """Whether the input is changes."""

    @property
    def parts(self) -> Mapping[str, ArrangementCodec]:
        return {STATE: ArrangementCodec(self.columns, ordered=True)}

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        return {ROWS_INPUT: (*self.columns.names, *([WEIGHT] if self.weighted else []), HASH)}

    @property
    def output_schema(self) -> pa.Schema:
        return self.columns.append(pa.field(WEIGHT, pa.int64(), nullable=False))

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:  # noqa: ARG002
        codec = self.parts[STATE]
        moved = self._moved(codec, [batch for batch in inputs[ROWS_INPUT] if batch.num_rows], state)
        if moved is None or not len(moved):
            return StepOutput()
        segments = [segment for run in state.runs[STATE] for segment in run.segments if len(segment)]
        retracted = filtered(codec, moved, moved.values.weights < 0)
        if len(retracted):
            left = weights_held(codec, retracted, segments) + retracted.values.weights
            refuse_negative(retracted.values.rows, left, self.columns, "the input", self.processor)
        keys = KeyWords.of(moved)
        sides: tuple[list[Arranged], list[Arranged]] = ([], [])
        for portion in FirstRows(self.count).around(codec, keys, segments, moved):
            for side, rows in zip(sides, portion, strict=True):
                side.append(self._first(codec, keys, rows))
        change = merge_rows(codec, [*map(_negated, sides[0]), *sides[1]])
        runs = state.written(self.processor, self.parts, {STATE: moved if self.weighted else change})
        gone = filtered(codec, change, change.values.weights < 0)
        pushed_out = merge_rows(codec, [gone, _negated(retracted)]).values.weights
        report = {PUSHED_OUT: -int(np.minimum(pushed_out, 0).sum())}
        return replace(output_of(self._repeated(change), runs), report=report)

    def _moved(self, codec: ArrangementCodec, batches: Sequence[pa.RecordBatch], state: StepState) -> Arranged | None:
        """Return the change of the input; None if there is none."""
        if not batches:
            return None
        hashes, rows = rows_and_hashes(batches, self.columns)
        state.share.check(hashes)
        weights = np.ones(rows.num_rows, np.int64)
        if self.weighted:
            weights = pa.Table.from_batches(batches).column(WEIGHT).to_numpy()
        columns = {name: rows.column(name).combine_chunks() for name in self.columns.names}
        first, descending = self.order[0]
        place = order_codes(columns[first], _order(descending=descending))
        words = key_words([columns[key] for key, _ in self.keys], rows.num_rows)
        return arranged(codec, list(columns.values()), weights, hashes, (words, place))

    def _first(self, codec: ArrangementCodec, keys: KeyWords, rows: Arranged) -> Arranged:
        """Return the first rows of each key, of rows of which some of each key are beyond the first."""
        numbers, weights = keys.numbers(rows), rows.values.weights
        content = [column.values for column in rows.keys[2:]]
        codes = [
            any_order_codes(rows.values.rows[self.columns.get_field_index(name)], _order(descending=descending))
            for name, descending in self.order
        ]
        order = np.lexsort((*reversed(content), *reversed(codes), numbers))
        total = np.cumsum(weights[order])
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        before_key = np.repeat((total - weights[order])[starts], np.diff(np.append(starts, len(order))))
        ahead = total - weights[order] - before_key
        taken = np.empty_like(weights)
        taken[order] = np.clip(self.count - ahead, 0, weights[order])
        return filtered(codec, replace(rows, values=ArrangedRows(taken, rows.values.rows)), taken > 0)

    def _repeated(self, change: Arranged) -> pa.Table:
        """Return each row as often as its weight says, with its sign."""
        weights = change.values.weights
        places = np.repeat(np.arange(len(weights)), np.abs(weights))
        columns = [column.take(pa.array(places)) for column in change.values.rows]
        return pa.Table.from_arrays([*columns, pa.array(np.sign(weights)[places])], schema=self.output_schema)


def _order(*, descending: bool) -> Order:
    return Order(descending, nulls_first=not descending)


def _negated(rows: Arranged) -> Arranged:
    return replace(rows, values=ArrangedRows(-rows.values.weights, rows.values.rows))
