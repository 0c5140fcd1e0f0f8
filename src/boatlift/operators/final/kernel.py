"""The kernel of final rows: a row is held until its time, and what is left of it is given then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boatlift.errors import DataError
from boatlift.kernels.aggregate.codec import PartialsCodec
from boatlift.kernels.kernel import ROWS_INPUT, StepOutput
from boatlift.kernels.network.node import refuse_negative
from boatlift.kernels.rows_until import LeavingRows, RowsUntil
from boatlift.kernels.step_state import STATE, KernelTime, StepState
from boatlift.state.column import shown
from boatlift.state.digest import digest
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.merge import merge_rows

__all__ = ["NEVER", "FinalKernel"]

NEVER = 1 << 62
"""The time at which a row without a time is final."""


@dataclass(frozen=True, slots=True)
class FinalKernel:
    """Final rows: see `boatlift.kernels.kernel.KeyedKernel`.

    Attributes:
        rows: The rows that may change yet.
        column: The column with the time after which a row stays, for errors.
    """

    rows: RowsUntil
    column: str

    @property
    def processor(self) -> str:
        """The processor's name."""
        return self.rows.processor

    @property
    def keys(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The time after which a row stays, and all columns."""
        return self.rows.keys

    @property
    def parts(self) -> Mapping[str, PartialsCodec]:
        """How often each row came."""
        return self.rows.parts

    @property
    def time(self) -> KernelTime:
        """The bound of event time, with the step's own rows."""
        return KernelTime.WATERMARK

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
        """The changes."""
        return {ROWS_INPUT: self.rows.layout.columns}

    @property
    def output_schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema(self.rows.columns)

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        state: StepState,
        *,
        upserts: bool = False,  # noqa: ARG002
    ) -> StepOutput:
        """Take a task's part of a step; see `KeyedKernel.step`.

        Raises:
            DataError: `[NOT_FINAL]` a row changes whose time the bound had passed; `[NEGATIVE_WEIGHT]` a row was taken
                back more often than it came; a run is missing, damaged or of another program.
        """
        came = self.rows.came(inputs[ROWS_INPUT], state)
        pieces = list(self.rows.leaving(state))
        later: LeavingRows | None = None
        if came is not None:
            final, later = self.rows.split(came, state.clock.now)
            if len(final):
                self._refuse_changes(final, state.clock.before)
                pieces.append(final)
        batches: list[pa.RecordBatch] = []
        if pieces:
            made = merge_rows(self.parts[STATE], pieces)
            columns = [column.to_arrow() for column in made.keys[1:]]
            refuse_negative(columns, made.values.rows, self.output_schema, "final rows", self.processor)
            batches = self.rows.repeated(made, 1, self.output_schema)
        return StepOutput(
            self.rows.held(later, state),
            tuple(batches),
            (),
            sum(batch.num_rows for batch in batches),
            sum(map(digest, batches)) % 2**64,
        )

    def _refuse_changes(self, rows: LeavingRows, before: int) -> None:
        """Refuse rows whose time the bound had passed before: at the bound itself, new rows may come."""
        over = np.flatnonzero(rows.keys[0].values < before)
        if len(over):
            columns = zip(self.output_schema.names, rows.keys[1:], strict=True)
            row = {name: shown(column.take(over[:1]).to_arrow()[0]) for name, column in columns}
            raise DataError(
                "NOT_FINAL",
                f"{row} of {self.processor} changes, or comes, after it was final by {self.column}: name a column "
                "after whose time no row that is not late changes it, such as the end of a window",
            )
