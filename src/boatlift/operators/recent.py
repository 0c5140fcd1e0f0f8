"""Recent rows: `WHERE at > now() - INTERVAL 1 HOUR`, kept true as time passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.kernels.kernel import ROWS_INPUT, KernelInputs, StepOutput
from boatlift.kernels.rows_until import RowsUntil
from boatlift.kernels.step_state import KernelTime, StepState

if TYPE_CHECKING:
    from boatlift.spark.compile.keyed import CompiledKeyed
    from boatlift.spark.compile.operator import Columns, Kit


@dataclass(frozen=True, slots=True)
class Recent(KeyedOperator):
    """Keeps the rows whose time is less than a period ago, as changes: a temporal filter.

        orders.recent("last_hour", "at", "1 hour")

    A second input is the stream of ticks, if the dataflow has one: rows leave at its steps too.

    Law: after each step those rows hold whose time is later than the step's recorded clock less the period. A row
    without a time never holds. The clock rises at each step, and a replay sees the same clocks.

    Attributes:
        period_ms: The age, in milliseconds, at which a row leaves.
        inclusive: Whether a row of exactly that age still holds.
    """

    kind = "recent"
    options = ("column", "period_ms", "inclusive")
    column: str
    period_ms: int
    inclusive: bool = False

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        taken = inputs[0]
        self.refuse_tables(taken, f"a whole table every time: filter in the function of {self.upstream}")
        return Rows(self.name, RowKind.CHANGES, taken.source_times, unique=taken.unique)


@dataclass(frozen=True, slots=True)
class RecentKernel(RowsUntil):
    """Rows that leave as time passes."""

    time = KernelTime.CLOCK
    ticks: tuple[str, ...] | None = None
    """The columns of a second input, whose rows only let time pass; None: there is none."""

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        rows = {ROWS_INPUT: self.layout.columns}
        return rows if self.ticks is None else {**rows, "ticks": (*self.ticks, HASH)}

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([*self.columns, pa.field(WEIGHT, pa.int64(), nullable=False)])

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:  # noqa: ARG002
        came = self.came(inputs[ROWS_INPUT], state)
        if came is not None:
            _, came = self.split(came, state.clock.now)
        coming = [] if came is None else self.repeated(came, 1)
        leaving = self.emitted(self.leaving(state), -1, "recent rows")
        return self.output([*coming, *leaving], came, state)


_BEFORE_ALL = 0
"""The time at which a row without a time leaves: before the first step."""


def compile_recent(operator: Recent, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile recent rows: an expression gives the time at which a row leaves, and a kernel retracts the row then."""
    from boatlift.spark.aggregates.compiled import compile_until
    from boatlift.spark.compile.keyed import CompiledKeyed, ticks_input
    from boatlift.spark.compile.operator import Columns
    from boatlift.spark.plans.fingerprint import fingerprint

    (takes, *ticks), name = inputs, operator.name
    made = compile_until(
        name,
        operator.column,
        takes,
        kit,
        later=operator.period_ms,
        missing=_BEFORE_ALL,
        inclusive=operator.inclusive,
    )
    by_time = [ticks_input(each, kit) for each in ticks]
    return CompiledKeyed(
        columns=Columns(
            name, made.by_key.frame.schema, changes=True, keys=takes.keys, has_watermark=takes.has_watermark
        ),
        fingerprint=fingerprint(made.by_key.frame),
        keys=takes.keys,
        kernel=RecentKernel(name, made.by_key.keys, takes.changes, ("number",) if ticks else None),
        inputs=(made.taken, *by_time),
    )


COMPILERS = {Recent: compile_recent}
