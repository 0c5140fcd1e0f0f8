"""The steps of a watermark: one job each, which judges rows by the watermark after the step before and moves it."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from pyspark.sql import DataFrame

from boatlift.kernels.step_state import NO_WATERMARK, StepTime
from boatlift.operators.watermark.operator import LateRows, Watermark
from boatlift.operators.watermark.task import LATE, WatermarkTask, watermark_after
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.planner import LastStage, StepPlan
from boatlift.spark.jobs.row_steps import JobSteps
from boatlift.storage.records.payloads import RunsPayload, payload_of, to_json


class WatermarkSteps(JobSteps):
    """Steps with the watermark, and the number of late rows, as state.

    Args:
        unit: The unit.
        jobs: The dataflow's jobs.
        operator: The operator.
    """

    reads_runs: ClassVar[bool] = True

    def __init__(self, unit: CompiledUnit, jobs: Jobs, operator: Watermark | LateRows) -> None:
        super().__init__(unit, jobs)
        self._operator = operator

    def run(self, take: StepInput, state: Any) -> StepResult:
        recorded = RunsPayload(()) if state is None else payload_of(state)
        assert isinstance(recorded, RunsPayload)
        before = NO_WATERMARK if recorded.bounds is None else recorded.bounds[1]
        clock, seed = clock_of(take)
        times = [StepTime(before, before, seed, clock)]
        (receipts,), seconds = self._jobs.explained(self._unit, take, partial(self._job, (take,), dict, times))
        after = watermark_after(before, receipts, self._operator.lateness_ms)
        late = recorded.report.get(LATE, 0) + sum(receipt.report[LATE] for receipt in receipts)
        kept = to_json(RunsPayload((), bounds=(before, after), report={LATE: late}))
        return self._jobs.result(self._unit, take, receipts, kept, seconds, bounds=(before, after))

    def _small(self, frame: DataFrame, last_stage: LastStage | None = None) -> DataFrame:
        planner = self._jobs.planner
        task = WatermarkTask(planner.stage_task(self._unit), self._operator.column, self._operator.emits_late)
        return planner.staged(self._unit, frame, task, last_stage)

    def _planned(self, frame: DataFrame, weight: int, number: int) -> StepPlan:
        del weight
        return StepPlan(self._small(frame), self._jobs.planner.parameters(number, state=True))
