"""The kernel of duplicates: the keys of a step are looked up once, and new ones are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.dataflow.columns import HASH
from boatlift.kernels.kernel import ROWS_INPUT, Kernel, StepOutput, output_of
from boatlift.kernels.step_state import STATE, KernelTime, StepState
from boatlift.state.column import Column
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.group import group
from boatlift.state.newest.codec import NewestCodec
from boatlift.state.newest.held import Cells, TouchedKeys, held_rows, written_rows
from boatlift.state.row_hash import hash_rows
from boatlift.state.rows_in_order import rows_and_hashes

Ints = npt.NDArray[np.int64]
_AT = pa.schema([pa.field("at", pa.int64())])


@dataclass(frozen=True, slots=True)
class DuplicatesKernel(Kernel):
    """New rows without duplicates.

    Attributes:
        processor: The processor's name.
        keys: Name and type of each key column.
        columns: The columns of the rows, the keys among them.
        column: The column with the time of a row; None: duplicates are so for ever.
        within: The time in which they are, in milliseconds.
    """

    processor: str
    keys: tuple[tuple[str, pa.DataType], ...]
    columns: pa.Schema
    column: str | None = None
    within: int = 0

    @property
    def parts(self) -> Mapping[str, NewestCodec]:
        return {STATE: NewestCodec(self.keys, _AT)}

    @property
    def time(self) -> KernelTime:
        return KernelTime.NONE if self.column is None else KernelTime.WATERMARK_BEFORE

    @property
    def expiries(self) -> Mapping[str, ExpiryColumn]:
        return {} if self.column is None else {STATE: ExpiryColumn("columns", 0, later=self.within)}

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        return {ROWS_INPUT: (*self.columns.names, HASH)}

    @property
    def output_schema(self) -> pa.Schema:
        return self.columns

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        state: StepState,
        *,
        upserts: bool = False,  # noqa: ARG002
    ) -> StepOutput:
        """Take a task's part of a step; see `Kernel.step`."""
        batches = [batch for batch in inputs[ROWS_INPUT] if batch.num_rows]
        if not batches:
            return StepOutput()
        hashes, rows = rows_and_hashes(batches, self.columns)
        state.share.check(hashes)
        times = self._times(rows, state.clock.now)
        first, touched = self._first_of_keys(hashes, rows, times)
        held = held_rows(self.parts[STATE], touched, state.runs[STATE])
        duplicate = np.zeros(len(touched), np.bool_)
        duplicate[held.key] = True if self.column is None else self._lasts(held, state.clock.now)
        new = np.flatnonzero(~duplicate)
        if not len(new):
            return StepOutput()
        at = times[first[new]]
        cells = Cells(new, (), (pa.array(at),))
        added = written_rows(touched, cells, np.ones(len(new), np.bool_), state.time)
        return output_of(rows.take(pa.array(first[new])), state.written(self.processor, self.parts, {STATE: added}))

    def _lasts(self, held: Cells, now: int) -> npt.NDArray[np.bool_]:
        """Return whether rows of keys that had a row are still duplicates of it."""
        (at,) = held.columns
        return np.asarray(at) + self.within > now

    def _times(self, rows: pa.Table, now: int) -> Ints:
        """Return the time of each row in milliseconds since 1970."""
        if self.column is None:
            return np.zeros(rows.num_rows, np.int64)
        column = rows.column(self.column)
        whole = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        times: Ints = pc.fill_null(whole, max(now, -(1 << 50)) * 1000).to_numpy() // 1000
        return times

    def _first_of_keys(self, hashes: npt.NDArray[np.uint64], rows: pa.Table, times: Ints) -> tuple[Ints, TouchedKeys]:
        """Return the number of each key's earliest row, and the keys; of equal times the content decides."""
        keys = [Column.from_arrow(rows.column(name), kind) for name, kind in self.keys]
        grouping = group(hashes, keys)
        first = grouping.order[grouping.starts].copy()
        counts = np.diff(np.append(grouping.starts, len(grouping.order)))
        several = np.flatnonzero(counts > 1)
        if len(several):
            of_key = np.repeat(np.arange(len(counts)), counts)
            places = np.flatnonzero(counts[of_key] > 1)
            numbers, key = grouping.order[places], of_key[places]
            content = hash_rows(
                [column.combine_chunks() for column in rows.take(pa.array(numbers)).columns], len(numbers), 1
            )
            order = np.lexsort((content, times[numbers], key))
            begins = np.ones(len(order), np.bool_)
            begins[1:] = key[order][1:] != key[order][:-1]
            first[several] = numbers[order[begins]]
        return first, TouchedKeys(grouping.hash, [each.take(first) for each in keys])
