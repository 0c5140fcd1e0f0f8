"""The steps of a view that only appends: as it keeps nothing, large steps are planned ahead, and share a job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from boatlift.operators.view.steps import ViewSteps
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.jobs.planner import PlansAhead, StepPlan
from boatlift.spark.jobs.waiting import waiting_together


class AppendingSteps(ViewSteps):
    """Steps of a view that only appends. Arguments as for `ViewSteps`.

    The first step has a plan of its own, with the static tables. A small step has a cached plan.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._ahead = PlansAhead(self._jobs.background)
        self._begun = False

    def steps_per_job(self, takes: Sequence[StepInput]) -> int:
        return 1 if self._plans.of_step else waiting_together(self._jobs.inputs, self._unit, takes)

    def prepare(self, takes: Sequence[StepInput]) -> None:
        inputs = self._jobs.inputs
        large = len(takes) > 1 or not self._jobs.planner.fits_one_task(inputs.weight(inputs.sent(takes[0])))
        if self._begun and large and not self._plans.of_step:
            self._ahead.make(takes, partial(self._plans.together, takes))

    def run(self, take: StepInput, state: Any) -> StepResult:
        self._begun = True
        plan = None if state is None else self._ahead.take((take,))
        if plan is None:
            return super().run(take, state)
        (made,) = self._jobs.explained(self._unit, take, partial(self._appended, (take,), state, plan))
        return made

    def run_as_one(self, takes: Sequence[StepInput], state: Any) -> tuple[StepResult, ...]:
        if state is None:
            begun = self.run(takes[0], None)
            return begun, *self.run_as_one(takes[1:], begun.state)
        return self._appended(takes, state, self._ahead.take(takes) or self._plans.together(takes))

    def _appended(self, takes: Sequence[StepInput], state: Any, plan: StepPlan) -> tuple[StepResult, ...]:
        began, jobs, unit = time.perf_counter(), self._jobs, self._unit
        jobs.check(unit.name, takes[0])
        jobs.inputs.verify_recorded(takes)
        jobs.join(unit.name, takes)
        receipts = plan.run()
        jobs.inputs.verify(unit.name, takes)
        kept, seconds = self._state.payload(self._state.held(state)), (time.perf_counter() - began) / len(takes)
        return tuple(jobs.result(unit, take, made, kept, seconds) for take, made in zip(takes, receipts, strict=True))
