"""Final rows: the rows of changes that can change no more, each emitted once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import Rows
from boatlift.errors import DataError, InvalidError
from boatlift.kernels.kernel import ROWS_INPUT, KernelInputs, StepOutput
from boatlift.kernels.rows_until import LeavingRows, RowsUntil
from boatlift.kernels.step_state import KernelTime, StepState
from boatlift.state.column import shown

if TYPE_CHECKING:
    from boatlift.spark.compile.keyed import CompiledKeyed
    from boatlift.spark.compile.operator import Columns, Kit


@dataclass(frozen=True, slots=True)
class Final(KeyedOperator):
    """Emits each row of changes once, when the watermark reaches the time in `column`.

        hours.final("closed", at="window_end")

    Law: a row is emitted at the first step whose watermark has reached its time, if it still holds then. So a row that
    was retracted before is never emitted. A row without a time is never emitted.

    Attributes:
        column: The column with the time after which a row stays, such as the end of a window.
    """

    kind = "final"
    options = ("column",)
    column: str

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        self.refuse_tables(taken, "whole tables: none of their rows is final")
        return Rows(self.name, source_times=taken.source_times, unique=taken.unique)


NEVER = 1 << 62
"""The time at which a row without a time is final."""


@dataclass(frozen=True, slots=True)
class FinalKernel(RowsUntil):
    """Final rows; the time of a row is that after which it stays."""

    time = KernelTime.WATERMARK
    column: str = field(kw_only=True)
    """The column with that time, for errors."""

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        return {ROWS_INPUT: self.layout.columns}

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema(self.columns)

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:  # noqa: ARG002
        came = self.came(inputs[ROWS_INPUT], state)
        pieces = self.leaving(state)
        later: LeavingRows | None = None
        if came is not None:
            final, later = self.split(came, state.clock.now)
            if len(final):
                self._refuse_changes(final, state.clock.before)
                pieces.append(final)
        return self.output(self.emitted(pieces, 1, "final rows"), later, state)

    def _refuse_changes(self, rows: LeavingRows, before: int) -> None:
        """Refuse rows whose time the watermark had passed before; at the watermark new rows may come: `[NOT_FINAL]`."""
        over = np.flatnonzero(rows.keys[0].values < before)
        if len(over):
            columns = zip(self.output_schema.names, rows.keys[1:], strict=True)
            row = {name: shown(column.take(over[:1]).to_arrow()[0]) for name, column in columns}
            raise DataError(
                "NOT_FINAL",
                f"{row} of {self.processor} changes, or comes, after it was final by {self.column}: name a column "
                "after whose time no row that is not late changes it, such as the end of a window",
            )


def compile_final(operator: Final, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile final rows: an expression gives the time after which a row stays, and a kernel emits the row then.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`, `[TYPE_REFUSED]`; `[NO_LATENESS]` the input has no watermark.
    """
    from boatlift.spark.aggregates.compiled import compile_until
    from boatlift.spark.compile.keyed import CompiledKeyed
    from boatlift.spark.compile.operator import Columns, no_watermark
    from boatlift.spark.plans.fingerprint import fingerprint

    (takes,) = inputs
    name, column = operator.name, operator.column
    if not takes.has_watermark:
        raise InvalidError("NO_LATENESS", no_watermark(name, "gives rows that change no more", takes))
    made = compile_until(name, column, takes, kit, later=0, missing=NEVER)
    return CompiledKeyed(
        columns=Columns(name, made.by_key.frame.schema, keys=takes.keys, has_watermark=True, watermark_column=column),
        fingerprint=fingerprint(made.by_key.frame),
        keys=takes.keys or None,
        kernel=FinalKernel(name, made.by_key.keys, takes.changes, column=column),
        inputs=(made.taken,),
    )


COMPILERS = {Final: compile_final}
