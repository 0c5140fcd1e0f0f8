"""The Spark plan of a step, or of several small steps: built, checked and optimised before its turn comes.

All that a plan depends on is known when the step's input is closed, but for the runs of the state: tasks read their
names from a file that is written when the step begins. So the plan of the next step is made while this step runs. The
rows of a large next step are read and divided among its tasks meanwhile, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from boatlift.dataflow.columns import ORDINAL, ROW_HASH, quoted
from boatlift.decoders import packed_decoder
from boatlift.errors import InternalError, UnavailableError
from boatlift.kernels.kernel import KeyedKernel
from boatlift.kernels.step_state import StepTime
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.barrier_relay import BarrierTasks, barrier_size
from boatlift.spark.jobs.edges import EDGE
from boatlift.spark.plans.catalyst import map_in_arrow, optimised, thread
from boatlift.spark.tasks.divide import DividedBatches, DivideTask, Division, hashes_of_column, pieces_of
from boatlift.spark.tasks.inputs import columns_of
from boatlift.spark.tasks.keyed_task import KeyedTask, LocatedRun, TaskInput
from boatlift.spark.tasks.parameters import JobParameters
from boatlift.spark.tasks.sealed_errors import unsealing
from boatlift.spark.tasks.stage import Output, Report, StageTask, TaskReceipt
from boatlift.spark.tasks.staging import ArrowStager
from boatlift.state.key_groups import KEY_GROUPS
from boatlift.storage.records.payloads import StepClock

ONE_TASK_BYTES = 4 << 20
"""A step with less input than this runs as one task: a shuffle would cost more than it saves."""

TASK_BYTES = 128 << 20
"""A step with more input than this for each core gets more tasks than cores: a task holds its rows in memory."""

_REPORTS, _DIVISIONS = packed_decoder(Report), packed_decoder(Division)

RECEIPTS = StructType([StructField("receipt", BinaryType())])
"""The schema of the rows that a job's tasks return."""


ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What the tasks of a last stage do with their rows."""

LastStage = Callable[[DataFrame, Sequence[str], ArrowTask], DataFrame]
"""Returns the planned frame of the receipts of a task, which takes some columns of a frame."""

RecordedAnswers = dict[str, list[str]] | None
"""The answers of the outside that a step had, by key; None of a step that asks."""

_NO_CHANNELS: Mapping[str, Sequence[str]] = MappingProxyType({})
_NOTHING_PASSED: Mapping[str, int] = MappingProxyType({})
_NO_RUNS: Mapping[str, Sequence[LocatedRun]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step, or several, ready to be run.

    Attributes:
        frame: The frame whose rows are the receipts of the tasks.
        parameters: The parameters of the job.
        pieces: For each task the places of its rows, if they have been divided already.
        barrier: The number of tasks, if these exchange rows while they run; else 0.
        channels: The files of each channel whose rows other units have sent, if the plan does not hold them.
        long_running: Runs a step in the unit's long-running job and returns the report of its one task; None while
            that job is not available.
    """

    frame: DataFrame
    parameters: JobParameters
    pieces: list[list[DividedBatches]] | None = None
    barrier: int = 0
    channels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    long_running: Callable[[JobParameters], bytes | None] | None = None

    def run(
        self,
        held: Mapping[str, Sequence[LocatedRun]] = _NO_RUNS,
        channels: Mapping[str, Sequence[str]] = _NO_CHANNELS,
        *,
        first: bool = False,
        clocks: Sequence[StepTime] = (),
        iterations: str = "",
        answers: Sequence[RecordedAnswers] = (),
        passed: Mapping[str, int] = _NOTHING_PASSED,
    ) -> list[list[TaskReceipt]]:
        """Run the job over a state, and return for each step its receipts, in order of partition.

        Args:
            held: The runs of the state, by part.
            channels: The files of each channel of rows that an earlier job of the step has left.
            first: Whether this is the first step that the processor takes.
            clocks: The time of each step, for tasks that ask for it.
            iterations: The folder in which the rounds of loops are kept.
            answers: Of each step the recorded answers of the outside; None of a step that asks.
            passed: The time that had passed for each part of a view's state before the step, if its rows expire.

        Rows that Spark knows to be none, as after `where("false")`, have no task and no receipt.

        Raises:
            UnavailableError: `[STORE_FAILED]` scratch cannot be written.
            InternalError: a task read the parameters of another step.
        """
        context = self.frame.sparkSession.sparkContext
        with ExitStack() as running:
            barrier = running.enter_context(BarrierTasks(self.barrier, context).running()) if self.barrier else None
            if input_file := self.parameters.input_file:
                runs = {part: list(runs) for part, runs in held.items()}
                left = {name: list(files) for each in (self.channels, channels) for name, files in each.items()}
                task_input = TaskInput(
                    runs, self.pieces, first, left, list(clocks), barrier, iterations, list(answers), dict(passed)
                )
                try:
                    Path(input_file).write_bytes(msgspec.msgpack.encode(task_input))
                except OSError as error:
                    raise UnavailableError("STORE_FAILED", f"cannot write {input_file}: {error}") from error
            running.callback(self.discard)
            reports = [_REPORTS.decode(each) for each in self._reports(context)]
        if any(report.parameters != self.parameters for report in reports):
            raise InternalError("INTERNAL", f"tasks of step {self.parameters.first} ran another one: please report it")
        receipts = sorted((report.receipts for report in reports), key=lambda made: made[0].partition)
        return [list(made) for made in zip(*receipts, strict=True)] if receipts else [[] for _ in self.parameters.times]

    def _reports(self, context: SparkContext) -> list[bytes]:
        """Run the job, or have the resident job execute the step; return the reports of the tasks."""
        if self.long_running is not None and (report := self.long_running(self.parameters)) is not None:
            return [report]
        with self.parameters.to_tasks(context), unsealing(context):
            return [bytes(row[0]) for row in self.frame.collect()]

    def discard(self) -> None:
        """Drop the files that were made for the plan."""
        divided = {Path(place) for share in self.pieces or () for place, _ in share}
        for path in (*divided, *([Path(self.parameters.input_file)] if self.parameters.input_file else [])):
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class KeyedJob:
    """A job whose tasks take rows by key.

    Attributes:
        inputs: For each input of the tasks the columns of its rows.
        task: Returns the task of a job with so many tasks.
        hashes: Returns the hashes of the keys of rows, by which a large step's rows are divided.
        exchanges: Whether the tasks of a large step exchange rows while they run.
    """

    name: str
    inputs: Mapping[str, Sequence[str]]
    task: Callable[[int], ArrowTask]
    hashes: Callable[[pa.RecordBatch], npt.NDArray[np.uint64]] = hashes_of_column
    exchanges: bool = False


@dataclass(frozen=True, slots=True)
class StepPlanner:
    """Makes the plans of one owner's steps: the last stage over the frame of a unit.

    Attributes:
        scratch: The folder in which tasks leave files.
        slots: Tells how many tasks run at once now: executors come and go, and each step asks anew.
    """

    scratch: Path
    token: int
    slots: Callable[[], int]

    def fits_one_task(self, weight: int) -> bool:
        """Return whether so many bytes are so few that more tasks would not be faster."""
        return tasks_for(weight, self.slots()) == 1

    def parameters(self, number: int, source: bytes = b"", *, state: bool) -> JobParameters:
        """Return the parameters of a step's job.

        Args:
            source: The positions of the sources, if the plan does not hold them.
            state: Whether the tasks read runs of a state.
        """
        return JobParameters(number, number, self._given() if state else "", source)

    def staging(self, unit: CompiledUnit, frame: DataFrame, number: int) -> StepPlan:
        """Return the plan of a step that stages its rows."""
        return StepPlan(self.staged(unit, frame), self.parameters(number, state=False))

    def stage_task(self, unit: CompiledUnit) -> StageTask:
        """Return the task that stages the rows of a unit."""
        return StageTask(unit.name, self.token, self.outlets(unit), str(self.scratch))

    def staged(
        self,
        unit: CompiledUnit,
        frame: DataFrame,
        task: ArrowTask | None = None,
        last_stage: LastStage | None = None,
    ) -> DataFrame:
        """Return the planned frame of a step that stages its rows.

        Args:
            task: What the tasks do with the rows and their hashes, if it is more than to stage them.
            last_stage: Makes the last stage, if it is not that of a job for one step.
        """
        columns = unit.output.names
        parts = ", ".join(f"isnull({quoted(each.name)}), {_hashable(each)}" for each in unit.output)
        frame = frame.selectExpr("*", f"xxhash64({parts}) AS {ROW_HASH}")
        return (last_stage or one_job)(frame, [*columns, ROW_HASH], task or self.stage_task(unit))

    def keyed_job(self, unit: CompiledUnit, kernel: KeyedKernel) -> KeyedJob:
        """Return the job of a unit's steps, whose rows go to the unit's sinks and readers."""
        outlets = self.outlets(unit)

        def task(tasks: int) -> KeyedTask:
            return KeyedTask(kernel, unit.output, self.token, tasks, outlets, str(self.scratch))

        return KeyedJob(unit.name, kernel.inputs, task)

    def updating(self, job: KeyedJob, frame: DataFrame, weight: int, number: int) -> StepPlan:
        """Return the plan of a step that updates keyed state; the rows of a large step are divided by a job before.

        Args:
            weight: Bytes of the step's input, more or less.
        """
        parameters, tasks = self.parameters(number, state=True), tasks_for(weight, self.slots())
        if job.exchanges and tasks > 1:
            tasks = min(power_of_two(self.slots()), barrier_size(frame.sparkSession.sparkContext))
        if tasks == 1:
            return StepPlan(self.keyed(job, frame), parameters)
        pieces = self._divided(job, frame, tasks)
        slots = frame.sparkSession.range(0, tasks, 1, tasks)
        plan = map_in_arrow(slots, ["id"], job.task(tasks), RECEIPTS, at_once=job.exchanges)
        return StepPlan(optimised(plan), parameters, pieces, tasks if job.exchanges else 0)

    def keyed(self, job: KeyedJob, frame: DataFrame, last_stage: LastStage | None = None) -> DataFrame:
        """Return the planned frame of a small step that updates keyed state.

        Arguments as for `updating` and `staged`.
        """
        return (last_stage or one_job)(frame.coalesce(1), columns_of(job.inputs), job.task(1))

    def without_rows(self, job: KeyedJob, takes: Sequence[StepInput]) -> StepPlan:
        """Return the plan of steps that take no rows, in one task."""
        slots = SparkSession.active().range(0, 1, 1, 1)
        plan = map_in_arrow(slots, ["id"], job.task(1), RECEIPTS)
        parameters = JobParameters(takes[0].number, takes[-1].number, self._given())
        return StepPlan(optimised(plan), parameters, [[]])

    def updating_together(self, unit: CompiledUnit, job: KeyedJob, rows: DataFrame, times: range) -> StepPlan:
        """Return the plan of several small steps that update keyed state.

        Args:
            unit: The unit, whose plan depends on nothing that differs among the steps.
            rows: The input of all steps, with `_ordinal`.

        Raises:
            InternalError: the ordinal cannot be carried through the unit's transforms.
        """
        (leaf,) = unit.leaves
        frame = unit.frame({leaf: rows.drop(ORDINAL)}, StepClock(0, 0))
        threaded = thread(frame, rows, ORDINAL).coalesce(1)
        plan = map_in_arrow(threaded, [*columns_of(job.inputs), ORDINAL], job.task(1), RECEIPTS)
        return StepPlan(optimised(plan), JobParameters(times[0], times[-1], self._given()))

    def _given(self) -> str:
        return str(self.scratch / f"given-{uuid.uuid4().hex}")

    def outlets(self, unit: CompiledUnit) -> tuple[Output, ...]:
        """Return where the rows of a unit go: its sinks, and the units that read it."""
        # A change is two rows of one key, before and after: a sink that keeps one row a key needs the second alone.
        keys = None if unit.unique is None else set(unit.unique)
        outlets = [
            Output(
                each.name,
                each.sink.stager(),
                each.sink.key is not None
                and set(each.sink.key) == keys
                and not each.sink.capabilities.refuses_duplicates,
            )
            for each in unit.unit.sinks
        ]
        if unit.unit.materialised:
            outlets.append(Output(EDGE, ArrowStager(unit.output), upserts=False))
        return tuple(outlets)

    def _divided(self, job: KeyedJob, frame: DataFrame, tasks: int) -> list[list[DividedBatches]]:
        """Run the job that divides a large step's rows among its tasks; it reads no state, so it may run ahead."""
        task = DivideTask(job.name, tasks, str(self.scratch), job.hashes)
        with unsealing(frame.sparkSession.sparkContext):
            rows = map_in_arrow(frame, columns_of(job.inputs), task, RECEIPTS).collect()
        divisions = [_DIVISIONS.decode(bytes(row[0])) for row in rows]
        return pieces_of(divisions, tasks)


def one_job(frame: DataFrame, columns: Sequence[str], task: ArrowTask) -> DataFrame:
    """Return the planned frame of a job for one step; see `LastStage`."""
    return optimised(map_in_arrow(frame, columns, task, RECEIPTS))


def tasks_for(weight: int, parallelism: int) -> int:
    """Return how many tasks a step over keyed state has: a power of two, so that it divides the key groups.

    Args:
        parallelism: How many tasks run at once.
    """
    if weight <= ONE_TASK_BYTES:
        return 1
    return max(power_of_two(parallelism), power_of_two(weight // TASK_BYTES))


def power_of_two(number: int) -> int:
    """Return the largest power of two that is neither larger than a number nor than the number of key groups."""
    return 1 << (max(1, min(number, KEY_GROUPS)).bit_length() - 1)


def _hashable(column: pa.Field) -> str:
    name = quoted(column.name)
    return f"map_entries({name})" if pa.types.is_map(column.type) else name
