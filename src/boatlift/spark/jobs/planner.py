"""The Spark plan of a step, or of several small steps: built, checked and optimised before its turn comes.

A plan depends only on the step's input, which is closed early. Tasks read the runs of the state from a file that is
written when the step begins. So the plan of the next step is made while this step runs, and the rows of a large next
step are divided among its tasks meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from boatlift.dataflow.columns import ORDINAL, ROW_HASH, quoted
from boatlift.dataflow.policies import holds_in_memory
from boatlift.decoders import packed_decoder
from boatlift.errors import InternalError, UnavailableError
from boatlift.kernels.kernel import Kernel
from boatlift.kernels.step_state import StepTime
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.barrier import BarrierTasks, barrier_size
from boatlift.spark.jobs.inputs import EDGE
from boatlift.spark.plans.catalyst import map_in_arrow, optimised, thread
from boatlift.state.key_groups import KEY_GROUPS
from boatlift.state.opened import LocatedRun
from boatlift.storage.records.payloads import StepClock
from boatlift.storage.remote_files import removed, writing
from boatlift.tasks.divide import DividedBatches, DivideTask, Division, hashes_of_column, pieces_of
from boatlift.tasks.inputs import columns_of
from boatlift.tasks.kernel_task import KernelTask, TaskInput
from boatlift.tasks.parameters import JobParameters
from boatlift.tasks.sealed_errors import unsealing
from boatlift.tasks.stage import Output, Report, StageTask, TaskReceipt
from boatlift.tasks.staging import ArrowStager
from boatlift.tasks.state_memory import StateMemory

ONE_TASK_BYTES = 4 << 20
"""A step with no more input than this runs as one task: a shuffle would cost more than it saves."""

TASK_BYTES = 128 << 20
"""A step with more input per core gets more tasks than cores, because a task holds its rows in memory."""

_REPORTS, _DIVISIONS = packed_decoder(Report), packed_decoder(Division)

RECEIPTS = StructType([StructField("receipt", BinaryType())])
"""The schema of the rows that a job's tasks return."""


ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A task of a last stage, as a function of its rows."""

Hashes = Callable[[pa.RecordBatch], npt.NDArray[np.uint64]]
"""Returns the key hashes of rows."""

LastStage = Callable[[DataFrame, Sequence[str], ArrowTask], DataFrame]
"""Makes the planned frame whose rows are the receipts of a task over some columns of a frame."""

InRound = Callable[[JobParameters, bytes], bytes | None]
"""Runs a step in a round, with the content of its input file; returns its report, or None if no round takes it."""

RecordedAnswers = dict[str, list[str]] | None
"""The recorded answers of the external system to a step, by key; None if the step asks now."""

_NO_CHANNELS: Mapping[str, Sequence[str]] = MappingProxyType({})
_NOTHING_PASSED: Mapping[str, int] = MappingProxyType({})
_NO_RUNS: Mapping[str, Sequence[LocatedRun]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The plan of one step, or of several, ready to run.

    Attributes:
        frame: The frame whose rows are the receipts of the tasks; None: the job has no rows, and no task.
        pieces: For each task the places of its rows, if they are divided already.
        barrier: The number of barrier tasks; else 0.
        channels: The files of each channel with rows of other units, if the plan does not hold them.
        long_running: Runs a step, with the content of its input file, in the long-running job and returns the report
            of its one task; None while that job is not available.
        begins: Called before a job of this step alone begins.
    """

    frame: DataFrame | None
    parameters: JobParameters
    pieces: list[list[DividedBatches]] | None = None
    barrier: int = 0
    channels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    long_running: InRound | None = None
    begins: Callable[[], None] = lambda: None

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
        """Run the job over a state, and return the receipts of each step, in order of partition.

        Rows that Spark knows to be empty, as after `where("false")`, have no task and no receipt.

        Args:
            held: The runs of the state, by part.
            channels: The files of each channel that an earlier job of the step has written.
            first: Whether this is the unit's first step.
            clocks: The time of each step, for tasks that need it.
            iterations: The folder of loop checkpoints.
            answers: For each step the recorded answers.
            passed: The time of each part of a view's state before the step, if its rows expire.

        Raises:
            UnavailableError: `[STORE_FAILED]` scratch cannot be written.
            InternalError: a task read the parameters of another step.
        """
        if self.frame is None:
            self.discard()
            return [[] for _ in self.parameters.times]
        context = self.frame.sparkSession.sparkContext
        with ExitStack() as running:
            barrier = running.enter_context(BarrierTasks(self.barrier, context).running()) if self.barrier else None
            given = self._packed(
                TaskInput(
                    {part: list(runs) for part, runs in held.items()},
                    self.pieces,
                    first,
                    {name: list(files) for each in (self.channels, channels) for name, files in each.items()},
                    list(clocks),
                    barrier,
                    iterations,
                    list(answers),
                    dict(passed),
                )
            )
            reports = [self._checked(each) for each in self._reports(self.frame, given)]
        receipts = sorted((report.receipts for report in reports), key=lambda made: made[0].partition)
        return [list(made) for made in zip(*receipts, strict=True)] if receipts else [[] for _ in self.parameters.times]

    def in_round(self, channels: Mapping[str, Sequence[str]]) -> list[TaskReceipt] | None:
        """Run the job in a round of the long-running job; return None if no round takes it.

        Args:
            channels: The files of each further channel that its task reads.
        """
        if self.long_running is None:
            return None
        every = {name: list(files) for each in (self.channels, channels) for name, files in each.items()}
        report = self.long_running(self.parameters, self._packed(TaskInput({}, None, channels=every)))
        return None if report is None else self._checked(report).receipts

    def _packed(self, given: TaskInput) -> bytes:
        return msgspec.msgpack.encode(given) if self.parameters.input_file else b""

    @contextmanager
    def _input_file(self, given: bytes) -> Iterator[None]:
        """Have the input in its file until the end of the block, with the divided rows that it names."""
        if input_file := self.parameters.input_file:
            try:
                with writing(input_file):
                    Path(input_file).write_bytes(given)
            except OSError as error:
                raise UnavailableError("STORE_FAILED", f"cannot write {input_file}: {error}") from error
        try:
            yield
        finally:
            self.discard()

    def _checked(self, packed: bytes) -> Report:
        report: Report = _REPORTS.decode(packed)
        if report.parameters != self.parameters:
            raise InternalError("INTERNAL", f"tasks of step {self.parameters.first} ran another one: please report it")
        return report

    def _reports(self, frame: DataFrame, given: bytes) -> list[bytes]:
        if self.long_running is not None and (report := self.long_running(self.parameters, given)) is not None:
            return [report]
        self.begins()
        context = frame.sparkSession.sparkContext
        with self._input_file(given), self.parameters.to_tasks(context), unsealing(context):
            return [bytes(row[0]) for row in frame.collect()]

    def discard(self) -> None:
        """Delete the files of the plan."""
        divided = {place for share in self.pieces or () for place, _ in share}
        removed([*divided, *([self.parameters.input_file] if self.parameters.input_file else [])])


@dataclass(frozen=True, slots=True)
class KeyedJob:
    """A job whose tasks process rows by key.

    Attributes:
        inputs: For each input of the tasks the columns of its rows.
        task: Makes the task of a job with a number of tasks.
        hashes: Returns the key hashes by which the rows of a large step are divided.
        exchanges: Whether the tasks of a large step exchange rows while they run.
    """

    name: str
    inputs: Mapping[str, Sequence[str]]
    task: Callable[[int], ArrowTask]
    hashes: Hashes = hashes_of_column
    exchanges: bool = False


@dataclass(frozen=True, slots=True)
class StepPlanner:
    """Makes the plans of one owner's steps: the last stage over the frame of a unit.

    Attributes:
        scratch: The folder of the tasks' files.
        slots: Returns the number of tasks that run at the same time now; executors come and go.
        memory: The folder of states in memory; None if there are none.
    """

    scratch: Path
    token: int
    slots: Callable[[], int]
    memory: StateMemory | None = None

    def fits_one_task(self, weight: int) -> bool:
        """Return whether one task is enough for a number of bytes."""
        return weight <= ONE_TASK_BYTES or tasks_for(weight, self.slots()) == 1  # the slots are a call into the JVM

    def parameters(self, number: int, source: bytes = b"", *, state: bool) -> JobParameters:
        """Return the parameters of a step's job.

        Args:
            source: The positions of the sources, if the plan does not hold them.
            state: Whether the tasks read runs of a state.
        """
        return JobParameters(number, number, self._given() if state else "", source)

    def staging(self, unit: CompiledUnit, frame: DataFrame, number: int, *, state: bool = False) -> StepPlan:
        """Return the plan of a step that stages its rows.

        Args:
            state: Whether the tasks read the job's input file.
        """
        return StepPlan(self.staged(unit, frame), self.parameters(number, state=state))

    def stage_task(self, unit: CompiledUnit) -> StageTask:
        """Return the task that stages the rows of a unit."""
        return StageTask(unit.name, self.token, self.outlets(unit), str(self.scratch))

    def staged(
        self,
        unit: CompiledUnit,
        frame: DataFrame,
        task: ArrowTask | None = None,
        last_stage: LastStage | None = None,
        output: pa.Schema | None = None,
    ) -> DataFrame:
        """Return the planned frame of a step that stages its rows.

        Args:
            task: Processes the rows and their hashes; by default it stages them.
            output: The columns of the frame; by default those of the unit's output.
            last_stage: Makes the last stage; by default that of a job for one step.
        """
        output = unit.output if output is None else output
        columns = output.names
        return (last_stage or one_job)(_hashed(frame, output), [*columns, ROW_HASH], task or self.stage_task(unit))

    def staging_together(self, unit: CompiledUnit, frame: DataFrame, times: range) -> StepPlan:
        """Return the plan of several steps that stage their rows.

        Args:
            frame: The rows of all steps, with `_ordinal`.
        """
        columns = [*unit.output.names, ORDINAL, ROW_HASH]
        staged = one_job(_hashed(frame, unit.output), columns, self.stage_task(unit))
        return StepPlan(staged, JobParameters(times[0], times[-1]))

    def memory_of(self, unit: CompiledUnit) -> StateMemory | None:
        """Return the memory of a unit's state; None if the state is in place."""
        return self.memory if holds_in_memory(unit.unit.policy) else None

    def keyed_job(
        self,
        unit: CompiledUnit,
        kernel: Kernel,
        channels: tuple[Output, ...] = (),
        hashes: Hashes = hashes_of_column,
        *,
        exchanges: bool = False,
    ) -> KeyedJob:
        """Return the job of a unit's steps. The last job of a step hands the output to the unit's sinks and readers.

        Args:
            kernel: The kernel of the job's tasks.
            channels: The channels to which the kernel leaves rows for later jobs of the step.
            hashes: As for `KeyedJob`.
            exchanges: As for `KeyedJob`.
        """
        outlets = self.outlets(unit) if kernel.output_schema.names else ()

        memory = self.memory_of(unit)
        held = "" if memory is None else str(memory.folder)

        def task(tasks: int) -> KernelTask:
            return KernelTask(kernel, unit.output, self.token, tasks, outlets, str(self.scratch), channels, held)

        return KeyedJob(unit.name, kernel.inputs, task, hashes, exchanges)

    def updating(self, job: KeyedJob, frame: DataFrame, weight: int, number: int) -> StepPlan:
        """Return the plan of a step that updates keyed state; an earlier job divides the rows of a large step.

        Args:
            weight: The approximate size of the input in bytes.
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
        """Return the planned frame of a small step that updates keyed state; arguments as for `staged`."""
        return (last_stage or one_job)(frame.coalesce(1), columns_of(job.inputs), job.task(1))

    def without_rows(self, job: KeyedJob, takes: Sequence[StepInput]) -> StepPlan:
        """Return the plan of steps without input rows, in one task."""
        slots = SparkSession.active().range(0, 1, 1, 1)
        plan = map_in_arrow(slots, ["id"], job.task(1), RECEIPTS)
        parameters = JobParameters(takes[0].number, takes[-1].number, self._given())
        return StepPlan(optimised(plan), parameters, [[]])

    def updating_together(self, unit: CompiledUnit, job: KeyedJob, rows: DataFrame, times: range) -> StepPlan:
        """Return the plan of several small steps that update keyed state.

        Args:
            unit: A unit whose plan has no values of a step.
            rows: The input of all steps, with `_ordinal`.

        Raises:
            InternalError: the unit's transforms do not pass the ordinal on.
        """
        (leaf,) = unit.leaves
        frame = unit.frame({leaf: rows.drop(ORDINAL)}, StepClock(0, 0))
        threaded = thread(frame, rows, ORDINAL).coalesce(1)
        plan = map_in_arrow(threaded, [*columns_of(job.inputs), ORDINAL], job.task(1), RECEIPTS)
        return StepPlan(optimised(plan), JobParameters(times[0], times[-1], self._given()))

    def _given(self) -> str:
        return str(self.scratch / f"given-{uuid.uuid4().hex}")

    def outlets(self, unit: CompiledUnit) -> tuple[Output, ...]:
        """Return the destinations of a unit's rows: its sinks, and the units that read it."""
        # A change is two rows of one key, before and after. A sink that keeps one row a key needs only the second.
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
        """Divide a large step's rows among its tasks. The job reads no state, so it may run ahead."""
        task = DivideTask(job.name, tasks, str(self.scratch), job.hashes)
        with unsealing(frame.sparkSession.sparkContext):
            rows = map_in_arrow(frame, columns_of(job.inputs), task, RECEIPTS).collect()
        divisions = [_DIVISIONS.decode(bytes(row[0])) for row in rows]
        return pieces_of(divisions, tasks)


def one_job(frame: DataFrame, columns: Sequence[str], task: ArrowTask) -> DataFrame:
    """Return the planned frame of a job for one step; see `LastStage`."""
    return optimised(map_in_arrow(frame, columns, task, RECEIPTS))


def tasks_for(weight: int, parallelism: int) -> int:
    """Return the number of tasks of a step over keyed state: a power of two, which divides the key groups."""
    if weight <= ONE_TASK_BYTES:
        return 1
    return max(power_of_two(parallelism), power_of_two(weight // TASK_BYTES))


def power_of_two(number: int) -> int:
    """Return the largest power of two up to a number and up to the number of key groups."""
    return 1 << (max(1, min(number, KEY_GROUPS)).bit_length() - 1)


def _hashed(frame: DataFrame, output: pa.Schema) -> DataFrame:
    """Add the hash of each row, as docs/formats/digest.md has it."""
    parts = ", ".join(f"isnull({quoted(each.name)}), {_hashable(each)}" for each in output)
    return frame.selectExpr("*", f"xxhash64({parts}) AS {ROW_HASH}")


def _hashable(column: pa.Field) -> str:
    name = quoted(column.name)
    return f"map_entries({name})" if pa.types.is_map(column.type) else name


Made = TypeVar("Made")


class Background:
    """The thread that makes the plans of all units ahead."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="plans")

    def submit(self, make: Callable[[], Made]) -> Future[Made]:
        return self._thread.submit(make)

    def close(self) -> None:
        """Wait for the plan under way, and make no other."""
        self._thread.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Ahead:
    takes: tuple[StepInput, ...]
    plan: Future[StepPlan]


class PlansAhead:
    """The plans of one unit that are made ahead."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._ahead: list[_Ahead] = []

    def make(self, takes: Sequence[StepInput], make: Callable[[], StepPlan]) -> None:
        self._ahead.append(_Ahead(tuple(takes), self._background.submit(make)))

    def take(self, takes: Sequence[StepInput]) -> StepPlan | None:
        """Return the plan that was made for exactly these steps, and drop plans of steps that never came."""
        found: StepPlan | None = None
        for ahead in [each for each in self._ahead if each.takes[0].number <= takes[-1].number]:
            self._ahead.remove(ahead)
            if ahead.takes == tuple(takes):  # the input at a time may have changed since
                found = ahead.plan.result()
            elif not ahead.plan.cancel():
                wait([ahead.plan])  # only the plan that was made last may name the folder of a step's readings
                if ahead.plan.exception() is None:
                    ahead.plan.result().discard()
        return found
