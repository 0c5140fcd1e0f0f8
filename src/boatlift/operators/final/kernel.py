"""The kernel of final rows: a row is held until its time, and emitted then as often as it still holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from boatlift.errors import DataError
from boatlift.kernels.kernel import ROWS_INPUT, StepOutput
from boatlift.kernels.network.node import refuse_negative
from boatlift.kernels.rows_until import LeavingRows, RowsUntil
from boatlift.kernels.step_state import STATE, KernelTime, StepState
from boatlift.state.column import shown
from boatlift.state.digest import digest
from boatlift.state.merge import merge_rows

NEVER = 1 << 62
"""The time at which a row without a time is final."""


@dataclass(frozen=True, slots=True)
class FinalKernel(RowsUntil):
    """Final rows; the time of a row is that after which it stays.

    Attributes:
        column: The column with that time, for errors.
    """

    time = KernelTime.WATERMARK

    column: str = field(kw_only=True)

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        return {ROWS_INPUT: self.layout.columns}

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema(self.columns)

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        state: StepState,
        *,
        upserts: bool = False,  # noqa: ARG002
    ) -> StepOutput:
        """Take a task's part of a step; see `Kernel.step`.

        Raises:
            DataError: `[NOT_FINAL]` a row changes whose time the watermark had passed; `[NEGATIVE_WEIGHT]` a row was
                retracted more often than it came; a run is missing, damaged or of another program.
        """
        came = self.came(inputs[ROWS_INPUT], state)
        pieces = list(self.leaving(state))
        later: LeavingRows | None = None
        if came is not None:
            final, later = self.split(came, state.clock.now)
            if len(final):
                self._refuse_changes(final, state.clock.before)
                pieces.append(final)
        batches: list[pa.RecordBatch] = []
        if pieces:
            made = merge_rows(self.parts[STATE], pieces)
            columns = [column.to_arrow() for column in made.keys[1:]]
            refuse_negative(columns, made.values.rows, self.output_schema, "final rows", self.processor)
            batches = self.repeated(made, 1, self.output_schema)
        return StepOutput(
            self.held(later, state),
            tuple(batches),
            (),
            sum(batch.num_rows for batch in batches),
            sum(map(digest, batches)) % 2**64,
        )

    def _refuse_changes(self, rows: LeavingRows, before: int) -> None:
        """Refuse rows whose time the watermark had passed before: at the watermark itself, new rows may come."""
        over = np.flatnonzero(rows.keys[0].values < before)
        if len(over):
            columns = zip(self.output_schema.names, rows.keys[1:], strict=True)
            row = {name: shown(column.take(over[:1]).to_arrow()[0]) for name, column in columns}
            raise DataError(
                "NOT_FINAL",
                f"{row} of {self.processor} changes, or comes, after it was final by {self.column}: name a column "
                "after whose time no row that is not late changes it, such as the end of a window",
            )
