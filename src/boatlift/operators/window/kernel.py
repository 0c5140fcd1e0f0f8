"""The kernel of windows that emit their rows once: steps only add to the state until a window has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from boatlift.kernels.aggregate.kernel import LayoutKernel
from boatlift.kernels.aggregate.partials import PartialAggregates, PartialsCodec
from boatlift.kernels.aggregate.results import KeyedOutput, results_of
from boatlift.kernels.aggregate.step_input import aggregate
from boatlift.kernels.kernel import ROWS_INPUT, KernelInputs, StepOutput
from boatlift.kernels.rows_until import rows_between
from boatlift.kernels.step_state import STATE, KernelTime, StepState
from boatlift.state.codec import KeyedRows
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.merge import filtered, merge_rows

_LATEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class FinalWindowKernel(LayoutKernel):
    """Aggregates by window, each emitted once.

    A step adds a run and looks nothing up. Runs are read only when the watermark reaches the end of a window: then the
    partial aggregates of the windows that have ended are merged. A run expires with the last of its windows
    (`RunRef.expires`).
    """

    time = KernelTime.WATERMARK
    window_end: int
    """The place of the key with the end of a window."""
    slide_us: int
    length_us: int
    """The length of a window, in microseconds: windows end that long after whole multiples of the slide."""

    @property
    def parts(self) -> Mapping[str, PartialsCodec]:
        return {STATE: PartialsCodec(self.layout)}

    @property
    def expiries(self) -> Mapping[str, ExpiryColumn]:
        return {STATE: ExpiryColumn("keys", self.window_end)}

    @property
    def output_schema(self) -> pa.Schema:
        return self.layout.result_schema

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:  # noqa: ARG002
        codec = self.parts[STATE]
        before, now = (_microseconds(each) for each in (state.clock.before, state.clock.now))
        added = aggregate(self.layout, inputs[ROWS_INPUT])
        pieces: list[KeyedRows[PartialAggregates]] = []
        if added is not None:
            state.share.check(added.hash)
            open_ = added.keys[self.window_end].values > now
            pieces.append(filtered(codec, added, ~open_))
            added = filtered(codec, added, open_)
        if (now - self.length_us) // self.slide_us > (before - self.length_us) // self.slide_us:
            pieces += rows_between(codec, state, self.window_end, before, now)
        runs = state.written(self.processor, self.parts, {STATE: added})
        pieces = [piece for piece in pieces if len(piece)]
        if not pieces:
            return StepOutput(runs)
        ended = merge_rows(codec, pieces)
        made = KeyedOutput(self.output_schema, ended.keys, len(ended))
        rows = made.rows(results_of(self.layout, ended.values), None, weight=None)
        return StepOutput(runs, rows.batches, (), len(ended), rows.digest)


def _microseconds(milliseconds: int) -> int:
    """Return a watermark in microseconds; one that no time of a row reaches stays out of reach."""
    return max(-_LATEST, min(_LATEST, milliseconds * 1000))
