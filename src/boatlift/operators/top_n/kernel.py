"""The kernel of the first rows of each key: an arrangement with an order, of which a step reads the touched keys.

A run is sorted by key and place in the order, so that only the rows that come first are read. New rows alone are kept
no longer than they are among the first; of changes every row is kept, because a row behind may move up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from boatlift.kernels.arranged_rows import ArrangedRowsKernel, negated
from boatlift.kernels.kernel import ROWS_INPUT, KernelInputs, StepOutput, output_of
from boatlift.kernels.step_state import STATE, StepState
from boatlift.operators.top_n.operator import PUSHED_OUT
from boatlift.state.arrangement.arranged import Arranged, key_words
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.ordered import FirstRows, KeyWords, Order, any_order_codes, order_codes
from boatlift.state.column import Ints
from boatlift.state.merge import filtered, merge_rows


@dataclass(frozen=True, slots=True)
class TopNKernel(ArrangedRowsKernel):
    """The first rows of each key."""

    ordered: ClassVar[bool] = True

    count: int
    order: tuple[tuple[str, bool], ...]
    """The columns of the order, each with whether it descends."""

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:  # noqa: ARG002
        codec = self.parts[STATE]
        moved = self.moved(inputs[ROWS_INPUT], state, self._places)
        if moved is None:
            return StepOutput()
        retracted = self.retracted(moved, state)
        segments = [segment for run in state.runs[STATE] for segment in run.segments if len(segment)]
        keys = KeyWords.of(moved)
        sides: tuple[list[Arranged], list[Arranged]] = ([], [])
        for portion in FirstRows(self.count).around(codec, keys, segments, moved):
            for side, rows in zip(sides, portion, strict=True):
                side.append(self._first(codec, keys, rows))
        change = merge_rows(codec, [*map(negated, sides[0]), *sides[1]])
        runs = state.written(self.processor, self.parts, {STATE: moved if self.weighted else change})
        gone = filtered(codec, change, change.values.weights < 0)
        pushed_out = merge_rows(codec, [gone, negated(retracted)]).values.weights
        report = {PUSHED_OUT: -int(np.minimum(pushed_out, 0).sum())}
        return replace(output_of(self.repeated(change), runs), report=report)

    def given(self, kept: Arranged) -> Arranged:
        return self._first(self.parts[STATE], KeyWords.of(kept), kept)

    def _places(self, rows: pa.Table) -> tuple[Ints, Ints]:
        first, descending = self.order[0]
        place = order_codes(rows.column(first).combine_chunks(), _order(descending=descending))
        return key_words([rows.column(key).combine_chunks() for key, _ in self.keys], rows.num_rows), place

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


def _order(*, descending: bool) -> Order:
    return Order(descending, nulls_first=not descending)
