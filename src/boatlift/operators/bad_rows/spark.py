"""BAD ROWS on Spark: two filters of the rows of a source; the source itself makes letters of bad rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from boatlift.dataflow.contracts import BAD_ROW
from boatlift.operators.bad_rows.operator import BadRows
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.operator import Columns, Compiled, Kit, SparkOperator
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.row_steps import RowSteps
from boatlift.storage.records.payloads import RunsPayload, StepClock, payload_of, to_json

__all__ = ["BadRowsOnSpark"]


@dataclass(frozen=True, kw_only=True)
class CompiledFitting(Compiled):
    """The rows that fit, compiled."""

    row_wise: ClassVar[bool] = True

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        """Return the rows that fit."""
        del clock, state
        (rows,) = inputs
        assert rows is not None
        return rows.where(F.col(BAD_ROW).isNull()).drop(BAD_ROW)


@dataclass(frozen=True, kw_only=True)
class CompiledDeadLetters(Compiled):
    """The dead letters, compiled."""

    operator: BadRows

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        """Return the letters of the rows that do not fit."""
        del clock, state
        (rows,) = inputs
        assert rows is not None
        return self.operator.source.dead_letters(rows.where(F.col(BAD_ROW).isNotNull()))


class DeadLetterSteps(RowSteps):
    """Steps that stage letters, and whose state is how many there were so far."""

    def run(self, take: StepInput, state: Any) -> StepResult:
        """Execute one step."""
        recorded = None if state is None else payload_of(state)
        assert recorded is None or isinstance(recorded, RunsPayload)
        (receipts,), seconds = self._jobs.explained(self._unit, take, partial(self._job, (take,), dict))
        before = 0 if recorded is None else recorded.bad or 0
        kept = to_json(RunsPayload((), bad=before + sum(receipt.rows for receipt in receipts)))
        return self._jobs.result(self._unit, take, receipts, kept, seconds)


class BadRowsOnSpark(SparkOperator[BadRows]):
    """Compiles BAD ROWS."""

    def compile(self, operator: BadRows, inputs: Sequence[Columns], kit: Kit) -> Compiled:
        """Compile BAD ROWS."""
        (takes,) = inputs
        if operator.gives_dead_letters:
            dead_letters = operator.source.dead_letters(kit.empty(replace(takes, positioned=False)))
            return CompiledDeadLetters(columns=Columns(operator.name, dead_letters.schema), operator=operator)
        fields = [field for field in takes.schema.fields if field.name != BAD_ROW]
        return CompiledFitting(columns=replace(takes, origin=operator.name, schema=StructType(fields)))

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> RowSteps:
        """Return steps that stage rows; those of letters count them."""
        assert isinstance(unit.unit.keeper, BadRows)
        return DeadLetterSteps(unit, jobs) if unit.unit.keeper.gives_dead_letters else RowSteps(unit, jobs)
