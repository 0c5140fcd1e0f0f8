"""Plans that are kept: made once for a unit, and run for each of its small steps.

To plan a step takes Spark as long as to run a small one. Two small steps differ only in the parameters that their tasks
read when they begin, if the source's position can be such a parameter, and the unit's functions use no value of a step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark.sql import DataFrame

from boatlift.dataflow import ParameterizedRead
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.inputs import Inputs
from boatlift.spark.jobs.planner import StepPlan, StepPlanner
from boatlift.spark.plans.catalyst import has_one_stage
from boatlift.storage.records.payloads import StepClock

__all__ = ["PlanCache"]

MOST_PARAMETERS = 1 << 16
"""Bytes of parameters at most; they go to the task through the driver's messages."""


class PlanCache:
    """The kept plan of one unit.

    Args:
        unit: The unit; its steps can be run together.
        inputs: The rows that steps take.
        planner: Makes plans.
    """

    def __init__(self, unit: CompiledUnit, inputs: Inputs, planner: StepPlanner) -> None:
        self._unit, self._inputs, self._planner = unit, inputs, planner
        self._frame: DataFrame | None = None
        self._made = False
        self._making = threading.Lock()

    def of(self, take: StepInput, make: Callable[[DataFrame], DataFrame], *, state: bool) -> StepPlan | None:
        """Return the plan of a step, if the kept plan serves it.

        Args:
            take: The step.
            make: Returns the planned frame of a small step.
            state: Whether the step's tasks read runs of the state.
        """
        source = self._inputs.source_of(self._unit)
        if source is None or (read := source.capabilities.parameterized_read) is None:
            return None
        if not self._planner.fits_one_task(source.size_bytes(self._inputs.position_of(take))):
            return None
        frame = self._kept(read, make)
        parameters = None if frame is None else self._inputs.parameters_for(self._unit, take)
        if frame is None or parameters is None or len(parameters) > MOST_PARAMETERS:
            return None
        return StepPlan(frame, self._planner.parameters(take.number, parameters, state=state))

    def forget(self) -> None:
        """Drop a plan whose run has failed: Spark keeps a failure on the way to the tasks with the plan."""
        with self._making:
            self._frame, self._made = None, False

    def _kept(self, read: ParameterizedRead, make: Callable[[DataFrame], DataFrame]) -> DataFrame | None:
        with self._making:
            if not self._made:
                (leaf,) = self._unit.leaves
                rows = {leaf: read.load_parameterized(self._inputs.spark)}
                made = make(self._unit.frame(rows, StepClock(0, 0)))
                self._frame, self._made = (made if has_one_stage(made) else None), True
            return self._frame
