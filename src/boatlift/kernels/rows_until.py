"""Rows that a kernel stores until a time: each row's state has the time at which it leaves.

A step adds a run without look-ups. Rows that leave are found by a pass over the times in the runs. A run whose rows
have all left is dropped (`RunRef.expires`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import LEAVES
from boatlift.kernels.aggregate import AggregateColumn, Layout
from boatlift.kernels.aggregate.partials import PartialAggregates, PartialsCodec
from boatlift.kernels.aggregate.step_input import aggregate
from boatlift.kernels.kernel import Kernel, StepOutput
from boatlift.kernels.network.node import refuse_negative
from boatlift.kernels.step_state import STATE, StepState
from boatlift.state.codec import KeyedRows
from boatlift.state.digest import digest
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.merge import filtered, merge_rows

LeavingRows = KeyedRows[PartialAggregates]
"""Rows with their times to leave and their weights."""


def rows_between(codec: PartialsCodec, state: StepState, key: int, before: int, now: int) -> Iterator[LeavingRows]:
    """Yield the rows of a task's state whose time, in a key column, is after a time, up to another."""
    for segment in (segment for run in state.runs[STATE] for segment in run.segments):
        times = segment.key(key).values
        places = np.flatnonzero((times > before) & (times <= now) & state.share.holds(segment.hash))
        if len(places):
            yield segment.take(codec, places)


@dataclass(frozen=True, slots=True)
class RowsUntil(Kernel):
    """The state of rows that are stored until a time."""

    processor: str
    columns: tuple[tuple[str, pa.DataType], ...]
    weighted: bool = False

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        return ((LEAVES, pa.int64()), *self.columns)

    @property
    def layout(self) -> Layout:
        """The count of each row, by its time to leave and its columns."""
        count = AggregateColumn("count_all", None, "_count", None, pa.int64())
        return Layout(self.keys, (count,), weighted=self.weighted)

    @property
    def parts(self) -> Mapping[str, PartialsCodec]:
        return {STATE: PartialsCodec(self.layout)}

    @property
    def expiries(self) -> Mapping[str, ExpiryColumn]:
        return {STATE: ExpiryColumn("keys", 0)}

    def came(self, batches: Sequence[pa.RecordBatch], state: StepState) -> LeavingRows | None:
        """Return the rows that arrive, without duplicates, with their weights; None if there are none."""
        came = aggregate(self.layout, batches)
        if came is None:
            return None
        state.share.check(came.hash)
        kept = filtered(self.parts[STATE], came, came.values.rows != 0)
        return kept if len(kept) else None

    def split(self, rows: LeavingRows, time: int) -> tuple[LeavingRows, LeavingRows]:
        """Return the rows that have left by a time, and the others."""
        later = rows.keys[0].values > time
        return filtered(self.parts[STATE], rows, ~later), filtered(self.parts[STATE], rows, later)

    def leaving(self, state: StepState) -> list[LeavingRows]:
        """Return the rows of the state that leave after the time of the last step, up to that of this one."""
        return list(rows_between(self.parts[STATE], state, 0, state.clock.before, state.clock.now))

    def emitted(self, pieces: Sequence[LeavingRows], sign: int, place: str) -> list[pa.RecordBatch]:
        """Return the sum of rows, each repeated by its weight; see `repeated`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row was retracted more often than it came.
        """
        if not pieces:
            return []
        rows = merge_rows(self.parts[STATE], pieces)
        columns = [column.to_arrow() for column in rows.keys[1:]]
        refuse_negative(columns, rows.values.rows, self.output_schema, place, self.processor)
        return self.repeated(rows, sign)

    def output(self, batches: Sequence[pa.RecordBatch], held: LeavingRows | None, state: StepState) -> StepOutput:
        """Return the output of a step, and write the rows that are stored from this step on."""
        runs = state.written(self.processor, self.parts, {STATE: held})
        rows = sum(batch.num_rows for batch in batches)
        return StepOutput(runs, tuple(batches), (), rows, sum(map(digest, batches)) % 2**64)

    def repeated(self, rows: LeavingRows, sign: int) -> list[pa.RecordBatch]:
        """Return each row, repeated by its weight; `_weight`, if the output has it, becomes 1 or −1."""
        schema = self.output_schema
        counts = sign * rows.values.rows
        order = np.repeat(np.arange(len(counts)), np.abs(counts))
        if not len(order):
            return []
        columns = [column.take(order).to_arrow() for column in rows.keys[1:]]
        weights = [pa.array(np.sign(counts)[order])] if len(schema) > len(columns) else []
        return [pa.RecordBatch.from_arrays([*columns, *weights], schema=schema)]
