"""Materialization: the rows of a stream that hold, kept as a table that queries read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.kernels.arranged_rows import ArrangedRowsKernel
from boatlift.kernels.kernel import ROWS_INPUT, KernelInputs, StepOutput, output_of
from boatlift.kernels.step_state import STATE, StepState
from boatlift.state.column import is_supported

if TYPE_CHECKING:
    from boatlift.spark.compile.keyed import CompiledKeyed
    from boatlift.spark.compile.operator import Columns, Kit


@dataclass(frozen=True, slots=True)
class Materialize(KeyedOperator):
    """Keeps the rows of a stream that hold, and passes its changes on.

        flights.materialize("kept_flights")

    Laws:
        * After each step its state has the sum of the changes of its input: of new rows all that came, each as often
          as it came.
        * Its output is the same changes, without those that cancel out within a step.
    """

    kind = "materialize"
    of_steps = ""
    keeps_rows = True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        (taken,) = inputs
        self.refuse_tables(
            taken,
            f"a whole table every time: give it a sink, or materialize what a lookup of {self.upstream} gives",
        )
        return Rows(self.name, RowKind.CHANGES, taken.source_times, unique=taken.unique)


class MaterializeKernel(ArrangedRowsKernel):
    """All rows, arranged by their columns, without those of nested types."""

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:  # noqa: ARG002
        change = self.moved(inputs[ROWS_INPUT], state)
        if change is None:
            return StepOutput()
        self.retracted(change, state)
        return output_of(self.repeated(change), state.written(self.processor, self.parts, {STATE: change}))


def compile_materialize(operator: Materialize, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile a materialization.

    Raises:
        InvalidError: `[TYPE_REFUSED]` rows with a column's values cannot be compared.
    """
    from boatlift.spark.compile.keyed import CompiledKeyed, rows_by_key, weighted_input
    from boatlift.spark.compile.operator import Columns
    from boatlift.spark.plans.column_rules import refuse_types
    from boatlift.spark.plans.fingerprint import fingerprint

    (takes,) = inputs
    refuse_types(takes.schema, operator.name)
    divide = [field.name for field in kit.arrow_of(takes.schema) if is_supported(field.type)]
    rows = rows_by_key(operator.name, divide, takes, kit)
    return CompiledKeyed(
        columns=Columns(operator.name, rows.frame.schema, changes=True, keys=takes.keys),
        fingerprint=fingerprint(rows.frame),
        keys=takes.keys,
        kernel=MaterializeKernel(operator.name, rows.keys, rows.arrow, takes.changes),
        inputs=(weighted_input(rows.taken, takes),),
    )


COMPILERS = {Materialize: compile_materialize}
