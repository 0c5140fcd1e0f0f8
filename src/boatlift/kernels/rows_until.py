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
from boatlift.kernels.aggregate.codec import PartialsCodec
from boatlift.kernels.aggregate.partials import PartialAggregates
from boatlift.kernels.aggregate.step_input import aggregate
from boatlift.kernels.kernel import Kernel
from boatlift.kernels.step_state import STATE, StepState
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.merge import filtered
from boatlift.state.rows import KeyedRows
from boatlift.storage.records.records import RunRef

LeavingRows = KeyedRows[PartialAggregates]
"""Rows with their times to leave and their weights."""


@dataclass(frozen=True, slots=True)
class RowsUntil(Kernel):
    """The state of rows that are stored until a time.

    Attributes:
        columns: Name and type of each column.
        weighted: Whether rows come as changes.
    """

    processor: str
    columns: tuple[tuple[str, pa.DataType], ...]
    weighted: bool = False

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The time to leave, and all columns."""
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

    def leaving(self, state: StepState) -> Iterator[LeavingRows]:
        """Yield the rows of the state that leave after the time of the last step, up to that of this one."""
        codec, before, now = self.parts[STATE], state.clock.before, state.clock.now
        for segment in (segment for run in state.runs[STATE] for segment in run.segments):
            leaves = segment.key(0).values
            places = np.flatnonzero((leaves > before) & (leaves <= now) & state.share.holds(segment.hash))
            if len(places):
                yield segment.take(codec, places)

    def held(self, rows: LeavingRows | None, state: StepState) -> dict[str, RunRef]:
        """Write the rows that are stored from this step on; return their run."""
        if rows is None or not len(rows):
            return {}
        return state.written(self.processor, self.parts, {STATE: rows})

    def repeated(self, rows: LeavingRows, sign: int, schema: pa.Schema) -> list[pa.RecordBatch]:
        """Return each row, repeated by its weight.

        Args:
            schema: The columns; `_weight`, if it has one, becomes 1 or −1.
        """
        counts = sign * rows.values.rows
        order = np.repeat(np.arange(len(counts)), np.abs(counts))
        if not len(order):
            return []
        columns = [column.take(order).to_arrow() for column in rows.keys[1:]]
        weights = [pa.array(np.sign(counts)[order])] if len(schema) > len(columns) else []
        return [pa.RecordBatch.from_arrays([*columns, *weights], schema=schema)]
