"""Steps of one job each: the last stage stages the output, or updates keyed state."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from pyspark.sql import DataFrame

from boatlift.dataflow import Timing
from boatlift.dataflow.columns import ORDINAL
from boatlift.errors import InternalError
from boatlift.kernels.step_state import StepTime
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.plan_cache import PlanCache, SmallStep
from boatlift.spark.jobs.planner import LastStage, PlansAhead, RecordedAnswers, StepPlan
from boatlift.spark.jobs.steps import Steps
from boatlift.spark.jobs.waiting import input_in_turn, waiting_together
from boatlift.spark.plans.catalyst import thread
from boatlift.state.opened import LocatedRun
from boatlift.storage.records.payloads import StepClock
from boatlift.tasks.stage import TaskReceipt


class JobSteps(Steps):
    """Steps of one job each, whose plan is made ahead or comes from a cache where possible.

    Attributes:
        reads_runs: Whether the tasks of a step read the names of runs from a file, as tasks with a kernel do.
    """

    reads_runs: ClassVar[bool] = False

    def __init__(self, unit: CompiledUnit, jobs: Jobs) -> None:
        self._unit, self._jobs = unit, jobs
        self._ahead = PlansAhead(jobs.background)
        again = unit.unit.timing is not Timing.BATCH  # the plan of a step depends on its rows alone
        cacheable = again and unit.unit.deterministic and not unit.of_step
        self._cache = PlanCache(unit, jobs, [self._small_step]) if cacheable else None
        self._plans_ahead = again and all(read in jobs.plan.sources for read in unit.unit.reads)

    def prepare(self, takes: Sequence[StepInput]) -> None:
        if self._plans_ahead:
            self._ahead.make(takes, partial(self._plan, takes))

    def _job(
        self,
        takes: Sequence[StepInput],
        held: Callable[[], Mapping[str, Sequence[LocatedRun]]],
        clocks: Sequence[StepTime] = (),
        planned: Callable[[], StepPlan] | None = None,
    ) -> tuple[list[list[TaskReceipt]], float]:
        """Run the job of steps; it may be run again, because nothing is kept yet.

        Args:
            held: Returns the runs of the state by part; called when the plan exists.
            clocks: The time of each step, for tasks that need it.
            planned: Makes a plan instead of the usual one.

        Returns:
            The receipts of each step, and the duration in seconds.
        """
        began, jobs = time.perf_counter(), self._jobs
        jobs.check(self._unit.name, takes[0])
        jobs.inputs.verify_recorded(takes)
        plan = planned() if planned is not None else self._ahead.take(takes) or self._plan(takes)
        jobs.join(self._unit.name, takes, goes_round=plan.long_running is not None)
        runs = held()
        try:
            receipts = plan.run(runs, clocks=clocks, answers=self._answers(takes))
        except BaseException:
            if self._cache is not None:
                self._cache.forget()
            raise
        jobs.inputs.verify(self._unit.name, takes)
        return receipts, time.perf_counter() - began

    def _answers(self, takes: Sequence[StepInput]) -> list[RecordedAnswers]:
        return [take.determinant for take in takes] if self._unit.unit.records_answers else []

    def _plan(self, takes: Sequence[StepInput]) -> StepPlan:
        if len(takes) == 1 and self._cache is not None and (cached := self._cached(self._cache, takes[0])):
            return cached
        self._jobs.group.join(self._unit.name)
        if len(takes) > 1:
            return self._planned_together(takes)
        (take,) = takes
        rows, weight = self._jobs.inputs.rows(self._jobs.spark, self._unit, take)
        return self._planned(self._unit.frame(rows, clock_of(take)), weight, take.number)

    def _cached(self, cache: PlanCache, take: StepInput) -> StepPlan | None:
        sent = self._jobs.inputs.sent(take)
        named = cache.named(sent, self._jobs.inputs.weight(sent))
        return None if named is None else cache.of(take.number, named, state=self.reads_runs)

    def _small_step(self, step: SmallStep, last_stage: LastStage | None) -> DataFrame:
        return self._small(self._unit.frame(step.rows, StepClock(0, 0)), last_stage)

    @abstractmethod
    def _small(self, frame: DataFrame, last_stage: LastStage | None = None) -> DataFrame:
        """Return the planned frame of a small step, with another last stage than the usual one if one is given."""

    @abstractmethod
    def _planned(self, frame: DataFrame, weight: int, number: int) -> StepPlan:
        """Return the plan of a step with `weight` bytes of input."""

    def _planned_together(self, takes: Sequence[StepInput]) -> StepPlan:
        raise InternalError("INTERNAL", f"{len(takes)} steps of {self._unit.name} cannot share a job: please report it")


class RowSteps(JobSteps):
    """Steps without state: the output is staged."""

    def steps_per_job(self, takes: Sequence[StepInput]) -> int:
        unit = self._unit
        alone = unit.apart or not unit.unit.deterministic or unit.unit.records_answers or len(unit.leaves) > 1
        return 1 if alone else waiting_together(self._jobs.inputs, unit, takes)

    def run(self, take: StepInput, state: Any) -> StepResult:
        (made,) = self._jobs.explained(self._unit, take, partial(self.run_as_one, (take,), state))
        return made

    def run_as_one(self, takes: Sequence[StepInput], state: Any) -> tuple[StepResult, ...]:
        receipts, seconds = self._job(takes, dict)
        each = seconds / len(takes)
        steps = zip(takes, receipts, strict=True)
        return tuple(self._jobs.result(self._unit, take, made, state, each) for take, made in steps)

    def _small(self, frame: DataFrame, last_stage: LastStage | None = None) -> DataFrame:
        return self._jobs.planner.staged(self._unit, frame, None, last_stage)

    def _planned(self, frame: DataFrame, weight: int, number: int) -> StepPlan:
        del weight
        return self._jobs.planner.staging(self._unit, frame, number)

    def _planned_together(self, takes: Sequence[StepInput]) -> StepPlan:
        self._jobs.make_room()
        rows = input_in_turn(self._jobs.inputs, self._unit, takes)
        (leaf,) = self._unit.leaves
        frame = thread(self._unit.frame({leaf: rows.drop(ORDINAL)}, StepClock(0, 0)), rows, ORDINAL)
        return self._jobs.planner.staging_together(self._unit, frame, range(takes[0].time, takes[-1].time + 1))
