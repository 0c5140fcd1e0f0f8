"""Plans that are kept: made once for a unit, and run for each of its small steps.

To plan a step takes Spark as long as to run a small one. Two small steps differ only in the parameters that their tasks
read when they begin, if the source's position can be such a parameter, and the unit's functions use no value of a step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark.sql import DataFrame

from boatlift.dataflow import FrameOfTask
from boatlift.dataflow.columns import MARK
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.planner import LastStage, StepPlan
from boatlift.spark.jobs.resident import RESIDENT_BYTES, resident_job
from boatlift.spark.plans.catalyst import has_one_stage
from boatlift.storage.records.payloads import StepClock

__all__ = ["PlanCache"]

MOST_PARAMETERS = 1 << 16
"""Bytes of parameters at most; they go to the task through the driver's messages."""


Small = Callable[[DataFrame, LastStage | None], DataFrame]
"""Returns the planned frame of a small step, of the frame of its rows, with its usual last stage or another."""


class PlanCache:
    """The kept plan of one unit, and the job of that plan that lives for many steps.

    Args:
        unit: The unit; its steps can be run together.
        jobs: The dataflow's jobs.
        small: Plans a small step.
    """

    def __init__(self, unit: CompiledUnit, jobs: Jobs, small: Small) -> None:
        self._unit, self._inputs, self._planner, self._small = unit, jobs.inputs, jobs.planner, small
        self._frame: DataFrame | None = None
        self._made = False
        self._making = threading.Lock()
        self._resident = resident_job(unit, jobs, self._frame_with)

    def of(self, take: StepInput, *, state: bool) -> StepPlan | None:
        """Return the plan of a step, if the kept plan serves it.

        Args:
            take: The step.
            state: Whether the step's tasks read runs of the state.
        """
        source = self._inputs.source_of(self._unit)
        if source is None or source.capabilities.parameterized_read is None:
            return None
        weight = source.size_bytes(self._inputs.position_of(take))
        if not self._planner.fits_one_task(weight):
            if self._resident is not None:
                self._resident.make_room()
            return None
        frame = self._kept()
        parameters = None if frame is None else self._inputs.parameters_for(self._unit, take)
        if frame is None or parameters is None or len(parameters) > MOST_PARAMETERS:
            return None
        resident = self._resident.step if self._resident is not None and weight <= RESIDENT_BYTES else None
        return StepPlan(frame, self._planner.parameters(take.number, parameters, state=state), resident=resident)

    def forget(self) -> None:
        """Drop a plan whose run has failed: Spark keeps a failure on the way to the tasks with the plan."""
        with self._making:
            self._frame, self._made = None, False

    def call_off(self) -> None:
        """Let the resident job drop the step under way."""
        if self._resident is not None:
            self._resident.call_off()

    def close(self) -> None:
        """End the resident job."""
        if self._resident is not None:
            self._resident.close()

    def _kept(self) -> DataFrame | None:
        with self._making:
            if not self._made:
                made = self._frame_with(None, None)
                self._frame, self._made = (made if has_one_stage(made) else None), True
            return self._frame

    def _frame_with(self, frame_of: FrameOfTask | None, last_stage: LastStage | None) -> DataFrame:
        source = self._inputs.source_of(self._unit)
        assert source is not None
        read = source.capabilities.parameterized_read
        assert read is not None
        (leaf,) = self._unit.leaves
        rows = read.load_parameterized(self._inputs.spark, frame_of).drop(MARK)
        return self._small(self._unit.frame({leaf: rows}, StepClock(0, 0)), last_stage)
