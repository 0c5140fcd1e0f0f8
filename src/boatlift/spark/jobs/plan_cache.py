"""Plans that stand: made once, and run for each small step of a unit.

To plan a step takes Spark as long as to run a small one. What differs between two small steps is only what their tasks
are told when they begin, if the source can be told so too, and the unit's functions take nothing of a step's own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from boatlift.dataflow import ParameterizedRead
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.jobs.inputs import Inputs, content_of
from boatlift.spark.jobs.planner import StepPlan, StepPlanner
from boatlift.spark.plans.catalyst import has_one_stage
from boatlift.spark.program import CompiledUnit

__all__ = ["PlanCache"]

MOST_TOLD = 1 << 16
"""Bytes; they go to the task through the driver's messages."""


class PlanCache:
    """Makes them when they are first wanted, and keeps them.

    Args:
        spark: The session.
        units: What may have one.
        inputs: Where their rows come from.
        planner: Makes them.
    """

    def __init__(
        self, spark: SparkSession, units: Mapping[str, CompiledUnit], inputs: Inputs, planner: StepPlanner
    ) -> None:
        self._spark, self._units, self._inputs, self._planner = spark, units, inputs, planner
        self._frames: dict[str, DataFrame | None] = {}
        self._making = threading.Lock()

    def of(self, unit: str, take: StepInput) -> StepPlan | None:
        """Gives the plan of a step, if the one that stands serves it."""
        compiled, source = self._units[unit], self._inputs.source_of(unit)
        if compiled.apart or not compiled.unit.repeats or compiled.unit.end is not compiled.unit.aggregate:
            return None
        if source is None or (read := source.capabilities.parameterized_read) is None:
            return None
        if not self._planner.fits_one_task(source.size_bytes(content_of(take)["position"])):
            return None
        frame = self._frame(compiled, read)
        words = None if frame is None else self._inputs.parameters_for(unit, take)
        if frame is None or words is None or len(words) > MOST_TOLD:
            return None
        return StepPlan(frame, self._planner.told(compiled, take.number, words))

    def forget(self, unit: str) -> None:
        """Drops a plan whose run has failed: of what failed on the way to its tasks Spark keeps the failure with it."""
        with self._making:
            self._frames.pop(unit, None)

    def _frame(self, compiled: CompiledUnit, read: ParameterizedRead) -> DataFrame | None:
        name = compiled.unit.name
        with self._making:
            if name not in self._frames:
                made = self._planner.frame(compiled, read.load_parameterized(self._spark), 0, 0)
                self._frames[name] = made if has_one_stage(made) else None
            return self._frames[name]
