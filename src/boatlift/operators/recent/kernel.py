"""The kernel of recent rows: a row leaves at its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.kernels.kernel import ROWS_INPUT, StepOutput
from boatlift.kernels.network.node import refuse_negative
from boatlift.kernels.rows_until import RowsUntil
from boatlift.kernels.step_state import STATE, KernelTime, StepState
from boatlift.state.digest import digest
from boatlift.state.merge import merge_rows


@dataclass(frozen=True, slots=True)
class RecentKernel(RowsUntil):
    """Rows that leave as time passes.

    Attributes:
        ticks: The columns of a second input, whose rows only let time pass; None: there is none.
    """

    time = KernelTime.CLOCK

    ticks: tuple[str, ...] | None = None

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        rows = {ROWS_INPUT: self.layout.columns}
        return rows if self.ticks is None else {**rows, "ticks": (*self.ticks, HASH)}

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([*self.columns, pa.field(WEIGHT, pa.int64(), nullable=False)])

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        state: StepState,
        *,
        upserts: bool = False,  # noqa: ARG002
    ) -> StepOutput:
        """Take a task's part of a step; see `Kernel.step`.

        Raises:
            DataError: `[NEGATIVE_WEIGHT]` a row that leaves was retracted more often than it came; a run is missing,
                damaged or of another program.
        """
        came = self.came(inputs[ROWS_INPUT], state)
        if came is not None:
            _, came = self.split(came, state.clock.now)
        leaving = list(self.leaving(state))
        batches = [] if came is None else self.repeated(came, 1, self.output_schema)
        if leaving:
            gone = merge_rows(self.parts[STATE], leaving)
            columns = [column.to_arrow() for column in gone.keys[1:]]
            refuse_negative(columns, gone.values.rows, self.output_schema, "recent rows", self.processor)
            batches += self.repeated(gone, -1, self.output_schema)
        return StepOutput(
            self.held(came, state),
            tuple(batches),
            (),
            sum(batch.num_rows for batch in batches),
            sum(map(digest, batches)) % 2**64,
        )
