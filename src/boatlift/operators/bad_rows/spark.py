"""Bad rows on Spark: two filters of the rows of a source; the source itself makes dead letters of bad rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from boatlift.dataflow.contracts import BAD_ROW
from boatlift.operators.bad_rows.operator import BAD, DeadLetters, ValidRows
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.operator import Columns, Compiled, Kit, without_position
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.row_steps import RowSteps
from boatlift.spark.jobs.steps import HasSteps
from boatlift.storage.records.payloads import RunsPayload, StepClock, payload_of, to_json


@dataclass(frozen=True, kw_only=True)
class CompiledValidRows(Compiled):
    """Valid rows, compiled."""

    row_wise: ClassVar[bool] = True

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        del clock, state
        (rows,) = inputs
        assert rows is not None
        return rows.where(F.col(BAD_ROW).isNull()).drop(BAD_ROW)


@dataclass(frozen=True, kw_only=True)
class CompiledDeadLetters(Compiled, HasSteps):
    """Dead letters, compiled."""

    own_job: ClassVar[str | None] = "Boatlift finds the reason of each bad row in Python without Arrow"

    operator: DeadLetters

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        del clock, state
        (rows,) = inputs
        assert rows is not None
        return self.operator.source.dead_letters(rows.where(F.col(BAD_ROW).isNotNull()))

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> DeadLetterSteps:
        return DeadLetterSteps(unit, jobs)


class DeadLetterSteps(RowSteps):
    """Steps that stage dead letters, with their number so far as state."""

    def steps_per_job(self, takes: Sequence[StepInput]) -> int:  # noqa: ARG002
        return 1

    def run(self, take: StepInput, state: Any) -> StepResult:
        recorded = RunsPayload(()) if state is None else payload_of(state)
        assert isinstance(recorded, RunsPayload)
        (receipts,), seconds = self._jobs.explained(self._unit, take, partial(self._job, (take,), dict))
        bad = recorded.report.get(BAD, 0) + sum(receipt.rows for receipt in receipts)
        kept = to_json(RunsPayload((), report={BAD: bad}))
        return self._jobs.result(self._unit, take, receipts, kept, seconds)


def compile_valid_rows(operator: ValidRows, inputs: Sequence[Columns], kit: Kit) -> CompiledValidRows:
    """Compile valid rows."""
    del kit
    (takes,) = inputs
    fields = [field for field in takes.schema.fields if field.name != BAD_ROW]
    return CompiledValidRows(columns=replace(takes, origin=operator.name, schema=StructType(fields)))


def compile_dead_letters(operator: DeadLetters, inputs: Sequence[Columns], kit: Kit) -> CompiledDeadLetters:
    """Compile dead letters."""
    (takes,) = inputs
    dead_letters = operator.source.dead_letters(kit.empty(without_position(takes)))
    return CompiledDeadLetters(columns=Columns(operator.name, dead_letters.schema), operator=operator)


COMPILERS = {ValidRows: compile_valid_rows, DeadLetters: compile_dead_letters}
