"""Partial aggregates as rows: the branches of a union send them in place of their rows (Falkirk Wheel §2.3).

A row has a key, one column with the addends of the key, and one for each minimum and maximum. The addends are pairs of
64-bit numbers, little-endian, in ascending order: the code of an `Addend`, and its value, which is not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import ARGUMENT, HASH
from boatlift.errors import DataError
from boatlift.kernels.aggregate.exact_sum import LOWEST
from boatlift.kernels.aggregate.kernel import AggregateKernel, LayoutKernel
from boatlift.kernels.aggregate.layout import ROWS, SUMS, Addend, Layout
from boatlift.kernels.aggregate.partials import PartialAggregates, PartialsCodec
from boatlift.kernels.aggregate.results import KeyedOutput
from boatlift.kernels.aggregate.step_input import aggregate, keys_and_groups
from boatlift.kernels.kernel import ROWS_INPUT, KernelInputs, StepOutput
from boatlift.kernels.step_state import StepState
from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column

ADDENDS = f"{ARGUMENT}0"
"""The column of the addends; the columns of the extremes have the numbers after it."""

_KINDS = ("rows", "nulls", "nan", "inf", "-inf", "huge", *SUMS)
_MOST = 1 << 62
_ROWS = 1 << 16
"""Rows of a batch, whose addends must have less than 2 GB."""


def extreme_columns(layout: Layout) -> list[tuple[str, int]]:
    """Return for each minimum and maximum the name of its column, and the argument's number."""
    return [(f"{ARGUMENT}{at}", argument) for at, (_, argument) in enumerate(layout.extremes, 1)]


def partial_schema(layout: Layout) -> pa.Schema:
    """Return the schema of partial aggregates as rows."""
    kinds = [
        (name, pa.int64() if layout.by_code(at) else layout.arguments[at][1]) for name, at in extreme_columns(layout)
    ]
    return pa.schema([*layout.keys, pa.field(ADDENDS, pa.binary(), nullable=False), *kinds])


@dataclass(frozen=True, slots=True)
class PartialKernel(LayoutKernel):
    """The partial aggregates of each step's rows, as rows; no state.

    Law: the rows of a step, combined, have the bits that `AggregateKernel` adds for the step's rows.
    """

    @property
    def parts(self) -> dict[str, PartialsCodec]:
        return {}

    @property
    def output_schema(self) -> pa.Schema:
        return partial_schema(self.layout)

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:  # noqa: ARG002
        groups = aggregate(self.layout, inputs[ROWS_INPUT])
        if groups is None:
            return StepOutput()
        state.share.check(groups.hash)
        batches: list[pa.RecordBatch] = []
        total = 0
        for start in range(0, len(groups), _ROWS):
            places = np.arange(start, min(start + _ROWS, len(groups)))
            values = PartialsCodec(self.layout).take(groups.values, places)
            keys = [key.take(places) for key in groups.keys]
            rows = KeyedOutput(self.output_schema, keys, len(places)).rows(self._columns(values), None, weight=None)
            batches += rows.batches
            total += rows.digest
        return StepOutput({}, tuple(batches), (), len(groups), total & ((1 << 64) - 1))

    def _columns(self, values: PartialAggregates) -> list[Column]:
        columns = [Column(pa.binary(), _encoded(values))]
        for pair in self.layout.extremes:
            extreme = values.extremes[pair]
            if isinstance(extreme, pa.Array):
                columns.append(Column.from_arrow(extreme, extreme.type, canonical=False))
            else:
                columns.append(Column(pa.int64(), extreme))
        return columns


@dataclass(frozen=True, slots=True)
class CombiningKernel(AggregateKernel):
    """A running aggregation over partial aggregates as rows; its state and its results are those of the rows."""

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        return {ROWS_INPUT: (*partial_schema(self.layout).names, HASH)}

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:
        batches = [batch for batch in inputs[ROWS_INPUT] if batch.num_rows]
        if not batches:
            return StepOutput()
        delta = _combined(self.layout, batches)
        state.share.check(delta.hash)
        return self.add_step(delta, state, upserts=upserts)


def _combined(layout: Layout, batches: Sequence[pa.RecordBatch]) -> KeyedRows[PartialAggregates]:
    """Return the sums of partial aggregates by key."""
    keys, grouping = keys_and_groups(layout, batches)
    pieces = [_decoded(layout, batch) for batch in batches]
    most = int(np.diff(grouping.starts, append=len(grouping.order)).max())
    counts = (values for piece in pieces for addend, values in piece.addends.items() if addend.kind not in SUMS)
    if max(int(np.abs(each).max()) for each in counts) * most >= _MOST:
        raise DataError("OVERFLOW", "the weights of one step may add up to 2^62 or more for a key")
    merged = PartialsCodec(layout).merge(pieces, grouping.order, grouping.starts)
    firsts = grouping.order[grouping.starts]
    return KeyedRows(grouping.hash, [column.take(firsts) for column in keys], merged, grouping.collides)


def _code(addend: Addend) -> int:
    return (_KINDS.index(addend.kind) << 40) | ((addend.argument + 1) << 10) | (addend.limb - LOWEST)


def _addend(code: int) -> Addend:
    return Addend(_KINDS[code >> 40], ((code >> 10) & ((1 << 30) - 1)) - 1, (code & 1023) + LOWEST)


def _encoded(partials: PartialAggregates) -> pa.Array:
    """Return the addends of each row that are not 0, as bytes."""
    present = sorted((_code(addend), values) for addend, values in partials.addends.items())
    values = np.stack([each for _, each in present], axis=1)
    there = values != 0
    pairs = np.empty((int(there.sum()), 2), "<i8")
    pairs[:, 0] = np.broadcast_to(np.array([code for code, _ in present]), values.shape)[there]
    pairs[:, 1] = values[there]
    ends = np.zeros(partials.length + 1, np.int32)
    np.cumsum(there.sum(axis=1) * pairs.strides[0], out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), partials.length, [None, pa.py_buffer(ends), pa.py_buffer(pairs)])


def _decoded(layout: Layout, batch: pa.RecordBatch) -> PartialAggregates:
    column = batch.column(ADDENDS)
    _, ends, content = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    pairs = np.frombuffer(content or b"", "<i8")[offsets[0] // 8 : offsets[-1] // 8].reshape(-1, 2)
    rows = np.repeat(np.arange(len(column)), np.diff(offsets) // pairs.strides[0])
    partials = PartialAggregates(len(column), {ROWS: np.zeros(len(column), np.int64)}, {})
    for code in np.unique(pairs[:, 0]):
        here = pairs[:, 0] == code
        values = partials.addends.setdefault(_addend(int(code)), np.zeros(len(column), np.int64))
        values[rows[here]] = pairs[here, 1]
    for (name, argument), pair in zip(extreme_columns(layout), layout.extremes, strict=True):
        array = batch.column(name)
        partials.extremes[pair] = array.to_numpy() if layout.by_code(argument) else array
    return partials


__all__ = ["ADDENDS", "CombiningKernel", "PartialKernel", "extreme_columns", "partial_schema"]
