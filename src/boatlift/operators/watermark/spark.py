"""Watermarks on Spark: rows as they are, judged by the tasks of the last stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.errors import InvalidError
from boatlift.kernels.step_state import StepTime
from boatlift.operators.watermark.operator import LateRows, Watermark
from boatlift.operators.watermark.task import (
    AHEAD,
    LATE,
    LATEST,
    MOVED,
    UNTIMED,
    Idle,
    WatermarkTask,
    watermark_after,
)
from boatlift.runtime.engine import StepResult
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.operator import Columns, Compiled, Kit
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.planner import LastStage, StepPlan
from boatlift.spark.jobs.row_steps import JobSteps
from boatlift.spark.jobs.steps import HasSteps
from boatlift.spark.plans.column_rules import refuse_types
from boatlift.storage.records.payloads import NO_WATERMARK, RunsPayload, StepClock, payload_of, to_json
from boatlift.tasks.stage import TaskReceipt


class WatermarkSteps(JobSteps):
    """Steps with the watermark, and the number of late rows, as state."""

    reads_runs: ClassVar[bool] = True

    def __init__(self, unit: CompiledUnit, jobs: Jobs, operator: Watermark | LateRows) -> None:
        super().__init__(unit, jobs)
        self._operator = operator
        self._ticks = edge_name(operator.reads[1], unit.name) if operator.idle_ms is not None else ""
        self._plans_ahead = self._plans_ahead and not self._ticks

    def run(self, take: StepInput, state: Any) -> StepResult:
        recorded = RunsPayload(()) if state is None else payload_of(state)
        assert isinstance(recorded, RunsPayload)
        before = NO_WATERMARK if recorded.bounds is None else recorded.bounds[1]
        clock, seed = clock_of(take)
        times = [StepTime(before, before, seed, clock)]
        receipts, seconds = list[TaskReceipt](), 0.0
        rows = replace(take, inputs=tuple(each for each in take.inputs if each.edge != self._ticks))
        if rows.inputs:  # at a tick alone only time passes
            (receipts,), seconds = self._jobs.explained(self._unit, rows, partial(self._job, (rows,), dict, times))
        after = watermark_after(before, receipts, self._operator.lateness_ms)
        report: dict[str, Any] = {
            number: recorded.report.get(number, 0) + sum(receipt.report[number] for receipt in receipts)
            for number in (LATE, AHEAD, UNTIMED)
        }
        if self._operator.idle_ms is not None:
            counts = any(receipt.report[LATEST] is not None for receipt in receipts)
            idle = Idle(after, 0, clock)
            if not counts:
                before_it = Idle(*recorded.report.get(MOVED, (NO_WATERMARK, 0, clock)))
                idle = before_it.after(clock, self._operator.lateness_ms, self._operator.idle_ms)
            after, report[MOVED] = max(after, idle.watermark_now(self._operator.idle_ms)), list(idle)
        report = {name: each for name, each in report.items() if each or name == LATE}
        kept = to_json(RunsPayload((), bounds=(before, after), report=report))
        return self._jobs.result(self._unit, take, receipts, kept, seconds, bounds=(before, after))

    def _small(self, frame: DataFrame, last_stage: LastStage | None = None) -> DataFrame:
        planner = self._jobs.planner
        own = self._operator
        task = WatermarkTask(planner.stage_task(self._unit), own.column, own.emits_late, own.max_ahead_ms)
        return planner.staged(self._unit, frame, task, last_stage)

    def _planned(self, frame: DataFrame, weight: int, number: int) -> StepPlan:
        del weight
        return StepPlan(self._small(frame), self._jobs.planner.parameters(number, state=True))


@dataclass(frozen=True, kw_only=True)
class CompiledWatermark(Compiled, HasSteps):
    """A watermark or late rows, compiled."""

    selects: ClassVar[bool] = True
    operator: Watermark | LateRows

    @property
    def goes_by_event_time(self) -> bool:
        return True

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        del clock, state
        rows = inputs[0]
        assert rows is not None
        weight = [WEIGHT] if self.columns.changes else []
        return rows.select(*(quoted(name) for name in (*self.columns.names, *weight)))

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> WatermarkSteps:
        return WatermarkSteps(unit, jobs, self.operator)


def compile_late_rows(operator: LateRows | Watermark, inputs: Sequence[Columns], kit: Kit) -> CompiledWatermark:
    """Compile late rows.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` there is no such column; `[TYPE_REFUSED]` it is no TIMESTAMP, or a column's
            values cannot be compared.
    """
    del kit
    takes = inputs[0]
    name, column = operator.name, operator.column
    if column not in takes.names:
        raise InvalidError(
            "SCHEMA_MISMATCH",
            f"{name} goes by {column}, which {takes.origin} does not have: it has {', '.join(takes.names)}",
        )
    kind = takes.schema[column].dataType
    if not isinstance(kind, TimestampType):
        raise InvalidError(
            "TYPE_REFUSED",
            f"{name} goes by {column}, a {kind.simpleString()}: cast it to TIMESTAMP in a transform before it",
        )
    refuse_types(takes.schema, name)
    columns = Columns(name, takes.schema, takes.changes)
    return CompiledWatermark(columns=columns, operator=operator, keys=() if takes.changes else None)


def compile_watermark(operator: Watermark, inputs: Sequence[Columns], kit: Kit) -> CompiledWatermark:
    """Compile a watermark, as late rows."""
    takes = inputs[0]
    made = compile_late_rows(operator, inputs, kit)
    keys = () if takes.changes else takes.keys  # a late change leaves the row that it replaces
    return replace(made, columns=replace(made.columns, keys=keys, has_watermark=True, watermark_column=operator.column))


COMPILERS = {Watermark: compile_watermark, LateRows: compile_late_rows}
