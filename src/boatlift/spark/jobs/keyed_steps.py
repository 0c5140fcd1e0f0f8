"""Steps by key: each task of the last stage runs a kernel over its share of the keys and of the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

from pyspark.sql import DataFrame

from boatlift.kernels.kernel import Kernel
from boatlift.kernels.step_state import KernelTime
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.keyed import FIRST_STEP, CompiledKeyed
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.planner import KeyedJob, LastStage, StepPlan
from boatlift.spark.jobs.row_steps import JobSteps
from boatlift.spark.jobs.state_parts import StateParts, drop_expired, times_of
from boatlift.spark.plans.catalyst import bytes_of
from boatlift.state.opened import LocatedRun
from boatlift.storage.records.payloads import report_of
from boatlift.storage.records.records import RunRef
from boatlift.tasks.stage import TaskReceipt


class KeyedSteps(JobSteps):
    """Steps of a unit whose root operator has a kernel."""

    reads_runs: ClassVar[bool] = True

    def __init__(self, unit: CompiledUnit, jobs: Jobs, kernel: Kernel) -> None:
        super().__init__(unit, jobs)
        self._kernel = kernel
        top = unit.top
        self._begin = top.begin if isinstance(top, CompiledKeyed) else None
        self._state = StateParts(unit.name, jobs, kernel.parts, kernel.expiries, jobs.planner.memory_of(unit))

    def steps_per_job(self, takes: Sequence[StepInput]) -> int:
        source = self._jobs.inputs.source_of(self._unit)
        alone = self._unit.apart or self._begin is not None
        if alone or source is None or source.capabilities.reads_many_steps is None:
            return 1
        weights = accumulate(source.size_bytes(self._jobs.inputs.position_of(take)) for take in takes)
        return max(1, sum(map(self._jobs.planner.fits_one_task, weights)))

    def run(self, take: StepInput, state: Any) -> StepResult:
        return self._jobs.explained(self._unit, take, partial(self.run_as_one, (take,), state))[0]

    def run_as_one(self, takes: Sequence[StepInput], state: Any) -> tuple[StepResult, ...]:
        held: dict[str, list[RunRef]] = {}

        def located() -> dict[str, list[LocatedRun]]:
            held.update(self._state.held(state))
            return self._state.located(held)

        times = times_of(self._kernel.time, takes, state, self._jobs.watermarks[self._unit.name])
        clocks = [each.time for each in times]
        if state is None and self._begin is not None:
            receipts, seconds = self._job(takes, located, clocks, partial(self._first_plan, takes[0], self._begin))
        else:
            receipts, seconds = self._job(takes, located, clocks)
        if self._kernel.time is not KernelTime.NONE and not any(receipts):
            # Rows that Spark knows to be empty have no task, but the state's time passes.
            self._jobs.group.join(self._unit.name)
            receipts = self._jobs.planner.without_rows(self._keyed_job, takes).run(
                self._state.located(held), clocks=clocks, answers=self._answers(takes)
            )
        results = []
        report = Counter({} if state is None else report_of(state))
        now: dict[str, int] = {}
        for number, (take, made) in enumerate(zip(takes, receipts, strict=True)):
            for receipt in made:
                report.update(receipt.report)
                for part, run in receipt.runs.items():
                    held[part].append(run)
            after = None
            if self._unit.unit.keeps_state:
                passed = None if self._kernel.time is KernelTime.NONE else times[number]
                if passed is not None:
                    now = dict.fromkeys(self._kernel.expiries, passed.time.now)
                    drop_expired(held, now)
                after = self._state.payload(held, passed, report=report)
            determinant = answers_of(made) if self._kernel.records_answers else None
            took, sent = seconds / len(takes), times[number].sent
            results.append(self._jobs.result(self._unit, take, made, after, took, bounds=sent, determinant=determinant))
        self._state.grown(held, takes[-1].number, now)
        return tuple(results)

    def saved(self, runs: Iterable[RunRef]) -> None:
        self._state.saved(runs)

    def holds(self) -> AbstractSet[str]:
        return self._state.holds()

    def forget(self, live: Collection[str]) -> None:
        self._state.forget(live)

    def close(self) -> None:
        self._state.close()

    def _first_plan(self, take: StepInput, begin: DataFrame) -> StepPlan:
        jobs = self._jobs
        jobs.group.join(self._unit.name)
        rows, weight = jobs.inputs.rows(jobs.spark, self._unit, take)
        frame = self._unit.frame(rows, clock_of(take), FIRST_STEP)
        return jobs.planner.updating(self._keyed_job, frame, weight + bytes_of(begin), take.number)

    @property
    def _keyed_job(self) -> KeyedJob:
        return self._jobs.planner.keyed_job(self._unit, self._kernel)

    def _small(self, frame: DataFrame, last_stage: LastStage | None = None) -> DataFrame:
        return self._jobs.planner.keyed(self._keyed_job, frame, last_stage)

    def _planned(self, frame: DataFrame, weight: int, number: int) -> StepPlan:
        return self._jobs.planner.updating(self._keyed_job, frame, weight, number)

    def _planned_together(self, takes: Sequence[StepInput]) -> StepPlan:
        rows = self._jobs.inputs.rows_together(self._jobs.spark, self._unit, takes)
        times = range(takes[0].time, takes[-1].time + 1)
        return self._jobs.planner.updating_together(self._unit, self._keyed_job, rows, times)


def answers_of(receipts: Iterable[TaskReceipt]) -> dict[str, list[str]]:
    """Return the recorded answers of a step's tasks by key; each key belongs to one task."""
    return {key: texts for receipt in receipts for key, texts in (receipt.answers or {}).items()}
