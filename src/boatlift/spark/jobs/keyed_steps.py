"""Steps by key: the tasks of the last stage run a kernel over their share of the keys, and of the state if any."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

from pyspark.sql import DataFrame

from boatlift.decoders import packed_decoder
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.diagnosis import explain
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.planner import RECEIPTS, KeyedJob, StepPlan, power_of_two
from boatlift.spark.jobs.row_steps import JobSteps
from boatlift.spark.keyed.kernel import KeyedKernel
from boatlift.spark.keyed.table import StateTable
from boatlift.spark.tasks.keyed_task import STATE, LocatedRun, Mergeable, MergeTask
from boatlift.storage.records.payloads import RunsPayload, runs_of, to_json
from boatlift.storage.records.records import RunRef

__all__ = ["KeyedSteps", "merged_runs"]

MERGE_HERE_ROWS = 100_000
"""Runs with fewer rows than this in all are merged on the driver: a job would cost more than the merge."""


_MERGED = packed_decoder(RunRef | None)


class KeyedSteps(JobSteps):
    """Steps of a unit whose keeper has a kernel.

    Args:
        unit: The unit.
        jobs: The dataflow's jobs.
        kernel: The computation of a task.
    """

    reads_runs: ClassVar[bool] = True

    def __init__(self, unit: CompiledUnit, jobs: Jobs, kernel: KeyedKernel) -> None:
        super().__init__(unit, jobs)
        self._kernel = kernel
        self._table = StateTable(partial(merged_runs, jobs, unit.name, kernel))

    def together(self, takes: Sequence[StepInput]) -> int:
        """Return how many steps are small enough for one task in all."""
        source = self._jobs.inputs.source_of(self._unit)
        if self._unit.apart or source is None or source.capabilities.reads_many_steps is None:
            return 1
        weights = accumulate(source.size_bytes(self._jobs.inputs.position_of(take)) for take in takes)
        return max(1, sum(map(self._jobs.planner.fits_one_task, weights)))

    def run(self, take: StepInput, state: Any) -> StepResult:
        """Execute one step."""
        return self._jobs.explained(self._unit, take, partial(self.run_as_one, (take,), state))[0]

    def run_as_one(self, takes: Sequence[StepInput], state: Any) -> tuple[StepResult, ...]:
        """Execute steps as one job."""
        held: list[RunRef] = []

        def located() -> dict[str, list[LocatedRun]]:
            held[:] = self._table.resolve(list(runs_of(state)))
            return {STATE: [(run, str(self._jobs.inputs.path(run))) for run in held]}

        receipts, seconds = self._job(takes, located)
        results = []
        for take, made in zip(takes, receipts, strict=True):
            held = [*held, *(run for receipt in made for run in receipt.runs.values())]
            after = to_json(RunsPayload(tuple(held))) if self._unit.unit.keeps_state else None
            results.append(self._jobs.result(self._unit, take, made, after, seconds / len(takes)))
        self._jobs.files.made(run.name for run in held)  # a merged run becomes the state's when a step takes it up
        self._table.grown(held)
        return tuple(results)

    def saved(self, runs: Iterable[RunRef]) -> None:
        """Take note that runs are durable: they may be merged freely."""
        self._table.saved([run for run in runs if run.modulus])

    def holds(self) -> AbstractSet[str]:
        """Return the names of the runs of merges."""
        return self._table.holds()

    def forget(self, live: Collection[str]) -> None:
        """Forget merges in the place of runs that no state has any more."""
        self._table.forget(live)

    def close(self) -> None:
        """End merges."""
        self._table.close()

    @property
    def _keyed_job(self) -> KeyedJob:
        return self._jobs.planner.keyed_job(self._unit, self._kernel)

    def _small(self, frame: DataFrame) -> DataFrame:
        return self._jobs.planner.keyed(self._keyed_job, frame)

    def _planned(self, frame: DataFrame, weight: int, number: int) -> StepPlan:
        return self._jobs.planner.updating(self._keyed_job, frame, weight, number)

    def _planned_together(self, takes: Sequence[StepInput]) -> StepPlan:
        rows = self._jobs.inputs.rows_together(self._jobs.spark, self._unit, takes)
        times = range(takes[0].time, takes[-1].time + 1)
        return self._jobs.planner.updating_together(self._unit, self._keyed_job, rows, times)


def merged_runs(jobs: Jobs, name: str, kernel: Mergeable, runs: Sequence[RunRef]) -> list[RunRef]:
    """Merge runs of a unit's state: few rows here, many in tasks.

    Raises:
        BoatliftError: a run cannot be read or written.
    """
    here = sum(run.rows for run in runs) <= MERGE_HERE_ROWS
    tasks = 1 if here else power_of_two(jobs.spark.sparkContext.defaultParallelism)
    held = tuple((run, str(jobs.inputs.path(run))) for run in runs)
    task = MergeTask(kernel, jobs.planner.token, tasks, held, str(jobs.planner.scratch))
    if tasks == 1:
        made = [task.run(0)]
    else:
        jobs.group.join(name)
        try:
            rows = jobs.spark.range(0, tasks, 1, tasks).mapInArrow(task, RECEIPTS).collect()
        except Exception as error:
            raise explain(error, name, max(run.last for run in runs)) from error
        made = [_MERGED.decode(bytes(row[0])) for row in rows]
    return [run for run in made if run is not None]
