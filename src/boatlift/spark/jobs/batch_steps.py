"""Steps of batches: each computes a table anew, concurrently with everything else.

Spark never takes a slot away from a running task. So a batch uses one slot fewer than there are, and short jobs always
find a free one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from boatlift.errors import UnavailableError
from boatlift.processes.worker_pools import BATCHES, session_beside, workers_of
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.steps import Steps
from boatlift.tasks.stage import TaskReceipt


class BatchSteps(Steps):
    """Steps over the rows of an epoch, or over all rows of a source, in a session of their own."""

    def __init__(self, unit: CompiledUnit, jobs: Jobs) -> None:
        self._unit, self._jobs = unit, jobs
        self._cancelled = 0
        self._made: SparkSession | None = None

    def run(self, take: StepInput, state: Any) -> StepResult:
        before = self._cancelled
        with self._jobs.batches:  # two batches would take all slots
            if self._cancelled != before:
                raise UnavailableError(
                    "STEP_FAILED", f"step {take.number} of {self._unit.name} was cancelled before its turn"
                )
            return self._jobs.step(self._unit, take, partial(self._job, take), state)

    @property
    def _slots(self) -> int:
        return max(1, self._jobs.spark.sparkContext.defaultParallelism - 1)

    def cancel_steps(self) -> None:
        self._cancelled += 1

    def _job(self, take: StepInput) -> Sequence[TaskReceipt]:
        unit, inputs, cursor = self._unit, self._jobs.inputs, take.cursor
        if cursor is None:
            inputs.verify_recorded((take,))
            rows, _ = inputs.rows(self._session, unit, take)
        else:
            rows = inputs.everything(self._session, unit, cursor)
        rows = {name: frame.coalesce(self._slots) for name, frame in rows.items()}
        with workers_of(BATCHES, self._jobs.spark.sparkContext):
            frame = unit.frame(rows, clock_of(take))
            plan = self._jobs.planner.staging(unit, frame, take.number)
        (receipts,) = plan.run()
        if cursor is None:
            inputs.verify(unit.name, (take,))
        else:
            inputs.verify_everything(unit, cursor)
        return receipts

    @property
    def _session(self) -> SparkSession:
        """The dataflow's session with fewer shuffle partitions."""
        partitions = {"spark.sql.shuffle.partitions": str(self._slots)}
        if self._made is None:
            self._made = session_beside(self._jobs.spark, partitions)
        for name, value in partitions.items():
            self._made.conf.set(name, value)
        return self._made
