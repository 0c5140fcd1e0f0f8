"""The kernel of recent rows: a row stands in the state with the time at which it leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.spark.aggregates.kernel import AggregateColumn, Layout
from boatlift.spark.aggregates.kernel.codec import PartialsCodec
from boatlift.spark.aggregates.kernel.partials import PartialAggregates
from boatlift.spark.aggregates.kernel.step_input import aggregate
from boatlift.spark.keyed.digest import digest
from boatlift.spark.keyed.kernel import ROWS_INPUT, StepOutput
from boatlift.spark.keyed.merge import filtered, merge_rows
from boatlift.spark.keyed.network.negative import refuse_negative
from boatlift.spark.keyed.rows import KeyedRows
from boatlift.spark.keyed.state import STATE, KernelTime, StepState

__all__ = ["LEAVES", "RecentKernel"]

LEAVES = "_leaves"
"""The column with the time at which a row leaves, in milliseconds since 1970."""

Weighted = KeyedRows[PartialAggregates]


@dataclass(frozen=True, slots=True)
class RecentKernel:
    """Rows that leave as time passes: see `boatlift.spark.keyed.kernel.KeyedKernel`.

    A step adds a run and looks nothing up; rows that leave are found by a pass over the times in the runs. A run of
    which all rows have left goes (`expires`).

    Attributes:
        processor: The processor's name.
        columns: Name and type of each column.
        weighted: Whether the input is changes.
        ticks: The columns of a second input, whose rows say nothing but that time passes; None: there is none.
    """

    processor: str
    columns: tuple[tuple[str, pa.DataType], ...]
    weighted: bool = False
    ticks: tuple[str, ...] | None = None

    @property
    def layout(self) -> Layout:
        """How often each row holds, by its time to leave and its columns."""
        count = AggregateColumn("count_all", None, "_count", None, pa.int64())
        return Layout(self.keys, (count,), weighted=self.weighted)

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The time to leave, and all columns."""
        return ((LEAVES, pa.int64()), *self.columns)

    @property
    def parts(self) -> Mapping[str, PartialsCodec]:
        """How often each row came."""
        return {STATE: PartialsCodec(self.layout)}

    @property
    def time(self) -> KernelTime:
        """The recorded clock."""
        return KernelTime.CLOCK

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        """The rows; and ticks, if there are any."""
        rows = {ROWS_INPUT: self.layout.columns}
        return rows if self.ticks is None else {**rows, "ticks": (*self.ticks, HASH)}

    @property
    def output_schema(self) -> pa.Schema:
        """The columns, and `_weight`."""
        return pa.schema([*self.columns, pa.field(WEIGHT, pa.int64(), nullable=False)])

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        state: StepState,
        *,
        upserts: bool = False,  # noqa: ARG002
    ) -> StepOutput:
        """Take a task's part of a step; see `KeyedKernel.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row that leaves was taken back more often than it came; a run is missing,
                damaged or of another program.
        """
        codec, now = self.parts[STATE], state.clock.now
        came = aggregate(self.layout, inputs[ROWS_INPUT])
        if came is not None:
            state.share.check(came.hash)
            came = filtered(codec, came, (came.keys[0].values > now) & (came.values.rows != 0))
        pieces = list(self._leaving(codec, state))
        gone = merge_rows(codec, pieces) if pieces else None
        if gone is not None:
            columns = [column.to_arrow() for column in gone.keys[1:]]
            refuse_negative(columns, gone.values.rows, self.output_schema, "recent rows", self.processor)
        batches = [
            *([] if came is None else self._batches(came, 1)),
            *([] if gone is None else self._batches(gone, -1)),
        ]
        last = int(came.keys[0].values.max()) if came is not None and len(came) else None
        return StepOutput(
            state.written(self.processor, self.parts, {STATE: came}, last),
            tuple(batches),
            (),
            sum(batch.num_rows for batch in batches),
            sum(map(digest, batches)) % 2**64,
        )

    def _leaving(self, codec: PartialsCodec, state: StepState) -> Iterator[Weighted]:
        """Yield the rows of the state that leave after the step before, up to this one."""
        before, now = state.clock.before, state.clock.now
        for segment in (segment for run in state.runs[STATE] for segment in run.segments):
            leaves = segment.keys[0].values
            places = np.flatnonzero((leaves > before) & (leaves <= now) & state.share.holds(segment.hash))
            if len(places):
                keys = [column.take(places) for column in segment.keys]
                yield KeyedRows(segment.hash[places], keys, codec.read(segment.values, places), segment.collides)

    def _batches(self, rows: Weighted, sign: int) -> list[pa.RecordBatch]:
        """Return each row as often as its weight says, with weight 1 or -1."""
        counts = sign * rows.values.rows
        order = np.repeat(np.arange(len(counts)), np.abs(counts))
        if not len(order):
            return []
        columns = [column.take(order).to_arrow() for column in rows.keys[1:]]
        weights = pa.array(np.sign(counts)[order])
        return [pa.RecordBatch.from_arrays([*columns, weights], schema=self.output_schema)]
