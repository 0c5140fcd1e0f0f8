"""Cached plans: made once for a unit, and run for each of its small steps.

Spark takes as long to plan a step as to run a small one. Small steps differ only in the job parameters if these can
name the input rows (`ToldRows`), and if the unit's functions use no value of a step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from boatlift.dataflow import FrameOfTask
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.long_running import LONG_RUNNING_BYTES
from boatlift.spark.jobs.members import needs_own_jobs
from boatlift.spark.jobs.planner import LastStage, StepPlan
from boatlift.spark.jobs.told_rows import ToldRows
from boatlift.spark.plans.catalyst import has_one_stage
from boatlift.storage.records.payloads import StepClock

MOST_PLANS = 16
"""The number of cached plans of a unit; a unit that reads many others may take rows of other ones at each step."""

_UNKNOWN = object()

Small = Callable[[DataFrame, LastStage | None], DataFrame]
"""Makes the planned frame of a small step from the frame of its rows and its last stage; None: the usual one."""


class PlanCache:
    """The cached plans of one unit, one for each set of senders.

    Args:
        unit: A unit whose plan has no values of a step.
    """

    def __init__(self, unit: CompiledUnit, jobs: Jobs, small: Small) -> None:
        self._unit, self._inputs, self._planner, self._small = unit, jobs.inputs, jobs.planner, small
        self._told = ToldRows(unit, jobs.inputs)
        self._frames: dict[frozenset[str], DataFrame | None] = {}
        self._making = threading.Lock()
        self._job = None if needs_own_jobs(unit, jobs.plan) else jobs.long_running
        self._in_round = None if self._job is None else self._job.add(unit.name, self._long_running_frame)

    def of(self, take: StepInput, *, state: bool) -> StepPlan | None:
        """Return the cached plan of a step; None if none serves it.

        Args:
            state: Whether the step's tasks read runs of the state.
        """
        sent = self._inputs.sent(take)
        weight = self._inputs.weight(sent)
        if not self._planner.fits_one_task(weight):
            if self._job is not None:
                self._job.make_room()
            return None
        names = frozenset(sent)
        if self._frames.get(names, _UNKNOWN) is None:
            return None
        named = self._told.of(sent)
        frame = None if named is None else self._kept(names)
        if named is None or frame is None:
            return None
        long_running = self._in_round if weight <= LONG_RUNNING_BYTES else None
        parameters = self._planner.parameters(take.number, named.sources, state=state or bool(named.channels))
        return StepPlan(frame, parameters, channels=named.channels, long_running=long_running)

    def forget(self) -> None:
        """Drop all plans after a failed run, because Spark keeps some failures with a plan."""
        with self._making:
            self._frames.clear()

    def _kept(self, names: frozenset[str]) -> DataFrame | None:
        """Return the plan for a set of senders; None if Spark cannot run it a second time."""
        with self._making:
            if names not in self._frames:
                if len(self._frames) == MOST_PLANS:
                    self._frames.clear()
                made = self._frame_over(self._told.frames(names), None)
                self._frames[names] = made if has_one_stage(made) else None
            return self._frames[names]

    def _long_running_frame(self, frame_of: FrameOfTask, last_stage: LastStage) -> DataFrame:
        return self._frame_over({leaf: self._told.over(leaf, frame_of) for leaf in self._unit.leaves}, last_stage)

    def _frame_over(self, rows: Mapping[str, DataFrame], last_stage: LastStage | None) -> DataFrame:
        return self._small(self._unit.frame(rows, StepClock(0, 0)), last_stage)
