"""The kernel of recent rows: a row leaves at its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.kernels.aggregate.codec import PartialsCodec
from boatlift.kernels.kernel import ROWS_INPUT, StepOutput
from boatlift.kernels.network.node import refuse_negative
from boatlift.kernels.rows_until import RowsUntil
from boatlift.kernels.step_state import STATE, KernelTime, StepState
from boatlift.state.digest import digest
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.merge import merge_rows

__all__ = ["RecentKernel"]


@dataclass(frozen=True, slots=True)
class RecentKernel:
    """Rows that leave as time passes: see `boatlift.kernels.kernel.KeyedKernel`.

    Attributes:
        rows: The rows that hold.
        ticks: The columns of a second input, whose rows say nothing but that time passes; None: there is none.
    """

    rows: RowsUntil
    ticks: tuple[str, ...] | None = None

    @property
    def processor(self) -> str:
        """The processor's name."""
        return self.rows.processor

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The time to leave, and all columns."""
        return self.rows.keys

    @property
    def parts(self) -> Mapping[str, PartialsCodec]:
        """How often each row came."""
        return self.rows.parts

    @property
    def time(self) -> KernelTime:
        """The recorded clock."""
        return KernelTime.CLOCK

    @property
    def expiries(self) -> Mapping[str, ExpiryColumn]:
        """The time of a row."""
        return self.rows.expiries

    @property
    def records_answers(self) -> bool:
        """False."""
        return False

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        """The rows; and ticks, if there are any."""
        rows = {ROWS_INPUT: self.rows.layout.columns}
        return rows if self.ticks is None else {**rows, "ticks": (*self.ticks, HASH)}

    @property
    def output_schema(self) -> pa.Schema:
        """The columns, and `_weight`."""
        return pa.schema([*self.rows.columns, pa.field(WEIGHT, pa.int64(), nullable=False)])

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
        came = self.rows.came(inputs[ROWS_INPUT], state)
        if came is not None:
            _, came = self.rows.split(came, state.clock.now)
        leaving = list(self.rows.leaving(state))
        batches = [] if came is None else self.rows.repeated(came, 1, self.output_schema)
        if leaving:
            gone = merge_rows(self.parts[STATE], leaving)
            columns = [column.to_arrow() for column in gone.keys[1:]]
            refuse_negative(columns, gone.values.rows, self.output_schema, "recent rows", self.processor)
            batches += self.rows.repeated(gone, -1, self.output_schema)
        return StepOutput(
            self.rows.held(came, state),
            tuple(batches),
            (),
            sum(batch.num_rows for batch in batches),
            sum(map(digest, batches)) % 2**64,
        )
