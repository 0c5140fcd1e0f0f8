"""The kernels of aggregates: input rows become a run, and the change of the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from boatlift.errors import InvalidError
from boatlift.kernels.aggregate.layout import Layout
from boatlift.kernels.aggregate.partials import PartialAggregates, PartialsCodec
from boatlift.kernels.aggregate.results import (
    Around,
    Change,
    KeyedOutput,
    change_between,
    change_of,
    previous_of,
    results_of,
    those_of,
)
from boatlift.kernels.aggregate.step_input import aggregate
from boatlift.kernels.kernel import ROWS_INPUT, Kernel, KernelInputs, StepOutput
from boatlift.kernels.step_state import STATE, KernelTime, Runs, StepState, rows_of_share
from boatlift.state.codec import KeyedRows
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.key_groups import Share
from boatlift.state.merge import filtered, merge_rows
from boatlift.storage.records.records import RunRef


@dataclass(frozen=True, slots=True)
class LayoutKernel(Kernel):
    """The common part of the kernels of aggregates."""

    layout: Layout
    processor: str

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        return self.layout.keys

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        """The one input: keys, arguments, `_weight` if it is changes, `_hash`."""
        return {ROWS_INPUT: self.layout.columns}


@dataclass(frozen=True, slots=True)
class AggregateKernel(LayoutKernel):
    """A running aggregation: the state of a key is the sum of what all steps have added.

    A key exists as long as it has rows. Rows of a weighted input may be retracted; if its last row is retracted, a key
    emits its row with weight −1 and no other. Without keys all rows are one group: its first result follows its first
    input row, as in Spark's streaming aggregations.
    """

    key_names: tuple[str, ...] | None = None
    """The names of the keys in errors; by default those of the layout."""
    part: str = STATE
    window_end: int | None = None
    """The place of the key with the end of a window, if no row comes for a window that has ended; else None."""

    @property
    def time(self) -> KernelTime:
        return KernelTime.NONE if self.window_end is None else KernelTime.WATERMARK

    @property
    def expiries(self) -> Mapping[str, ExpiryColumn]:
        return {} if self.window_end is None else {self.part: ExpiryColumn("keys", self.window_end)}

    @property
    def parts(self) -> Mapping[str, PartialsCodec]:
        """Partial aggregates; merges drop a key that is zero throughout."""
        return {self.part: PartialsCodec(self.layout)}

    @property
    def output_schema(self) -> pa.Schema:
        return self.layout.output_schema

    @property
    def gives_rows(self) -> bool:
        return self.window_end is None  # else the rows of windows that have ended are gone

    def between(
        self, before: Mapping[str, Runs], after: Mapping[str, Runs], share: Share, *, upserts: bool = False
    ) -> StepOutput:
        codec = self.parts[self.part]
        sides = [rows_of_share(codec, list(runs.get(self.part, ())), share) for runs in (before, after)]
        there = [side for side in sides if side is not None]
        if not there:
            return StepOutput()
        keys = merge_rows(codec, there)
        old, new = (those_of(self.layout, keys, side) for side in sides)
        return _output_of(change_between(self.layout, keys, old, new, upserts=upserts), {})

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:
        delta = aggregate(self.layout, inputs[ROWS_INPUT])
        if delta is None:
            return StepOutput()
        state.share.check(delta.hash)
        return self.add_step(delta, state, upserts=upserts)

    def add_step(self, delta: KeyedRows[PartialAggregates], state: StepState, *, upserts: bool = False) -> StepOutput:
        """Add the partial aggregates of a step, of which some may be zero throughout."""
        codec = self.parts[self.part]
        nothing = codec.is_zero(delta.values)
        if nothing is not None:
            delta = filtered(codec, delta, ~nothing)
        return self.add(delta, state, upserts=upserts)

    def add(
        self,
        delta: KeyedRows[PartialAggregates],
        state: StepState,
        *,
        upserts: bool = False,
        first_values: Around | None = None,
    ) -> StepOutput:
        """Add partial aggregates to the state, with the minima and maxima that they lack, before and after."""
        if not len(delta):
            return StepOutput()
        names = self.key_names or tuple(name for name, _ in self.layout.keys)
        previous = previous_of(self.layout, delta, state.runs[self.part])
        change = change_of(
            self.layout, delta, previous, self.processor, names, upserts=upserts, first_values=first_values
        )
        return _output_of(change, state.written(self.processor, self.parts, {self.part: delta}))


def _output_of(change: Change, runs: Mapping[str, RunRef]) -> StepOutput:
    parts = (change.replaced, change.ended, change.after)
    return StepOutput(
        runs,
        (*change.ended.batches, *change.after.batches),
        change.replaced.batches,
        sum(batch.num_rows for part in parts for batch in part.batches),
        sum(part.digest for part in parts) & ((1 << 64) - 1),
    )


@dataclass(frozen=True, slots=True)
class ReduceKernel(LayoutKernel):
    """The aggregates of each step's rows alone: append-only rows without `_weight`, and no state.

    Raises:
        InvalidError: `[UNSUPPORTED_AGGREGATE]` the layout is weighted.
    """

    def __post_init__(self) -> None:
        if self.layout.weighted:
            raise InvalidError(
                "UNSUPPORTED_AGGREGATE",
                f"{self.processor} reduces the rows of one step, which cannot take back rows of earlier ones: "
                "aggregate changes with agg(…)",
            )

    @property
    def parts(self) -> Mapping[str, PartialsCodec]:
        return {}

    @property
    def output_schema(self) -> pa.Schema:
        return self.layout.result_schema

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:  # noqa: ARG002
        groups = aggregate(self.layout, inputs[ROWS_INPUT])
        if groups is None:
            return StepOutput()
        state.share.check(groups.hash)
        output = KeyedOutput(self.output_schema, groups.keys, len(groups))
        rows = output.rows(results_of(self.layout, groups.values), None, weight=None)
        return StepOutput({}, rows.batches, (), len(groups), rows.digest)
