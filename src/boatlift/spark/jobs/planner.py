"""The Spark plan of a step, or of several small ones: built, checked, optimised and planned before its turn comes.

All that a plan depends on is known when the step's input is closed, but for the runs that make up the state: these the
tasks read from a file that is written when the step begins. So the plan of the next step is made while this one runs,
and if its input is large, its rows are read and divided among its tasks meanwhile too.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from boatlift.dataflow.columns import HASH, ORDINAL, ROW_HASH, quoted
from boatlift.errors import InternalError, UnavailableError
from boatlift.operators.aggregate.kernel import AggregateKernel
from boatlift.spark.jobs.edges import EDGE
from boatlift.spark.keyed.key_groups import KEY_GROUPS, key_hash
from boatlift.spark.plans.catalyst import map_in_arrow, optimised, thread
from boatlift.spark.program import CompiledUnit
from boatlift.spark.tasks.divide import DivideTask, Division, Piece, pieces_of
from boatlift.spark.tasks.keyed_task import KeyedTask, LocatedRun, TaskInput
from boatlift.spark.tasks.parameters import JobParameters
from boatlift.spark.tasks.stage import Output, Report, StageTask, TaskReceipt
from boatlift.spark.tasks.staging import ArrowStager

__all__ = ["RECEIPTS", "StepPlan", "StepPlanner", "power_of_two", "tasks_for"]

ONE_TASK_BYTES = 4 << 20
"""A step with less input than this runs as one task: a shuffle would cost more than it saves."""

TASK_BYTES = 128 << 20
"""A step with more input than this for each core gets more tasks than cores: a task holds its rows in memory."""

RECEIPTS = StructType([StructField("receipt", BinaryType())])
"""What a job's tasks return."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step, or several, ready to be run.

    Attributes:
        frame: Its rows are the receipts of its tasks.
        told: What these learn when it begins.
        pieces: Where the rows of each task are, if they have been divided already.
    """

    frame: DataFrame
    told: JobParameters
    pieces: list[list[Piece]] | None = None

    def run(self, held: Sequence[LocatedRun]) -> list[list[TaskReceipt]]:
        """Runs the job over a state; gives for each step its receipts, in order of partition.

        What Spark knows to have no rows, as after `where("false")`, it gives no task, and there is no receipt.

        Raises:
            UnavailableError: `[STORE_FAILED]` scratch cannot be written.
            InternalError: a task was told of another step.
        """
        if given := self.told.given:
            task_input = TaskInput(list(held), None if self.pieces is None else [self.pieces])
            try:
                Path(given).write_bytes(msgspec.msgpack.encode(task_input))
            except OSError as error:
                raise UnavailableError("STORE_FAILED", f"cannot write {given}: {error}") from error
        try:
            with self.told.to_tasks(self.frame.sparkSession.sparkContext):
                rows = self.frame.collect()
        finally:
            self.discard()
        reports = [msgspec.msgpack.decode(bytes(row[0]), type=Report) for row in rows]
        if any(report.parameters != self.told for report in reports):
            raise InternalError("INTERNAL", f"tasks of step {self.told.first} ran another one: please report it")
        receipts = sorted((report.receipts for report in reports), key=lambda made: made[0].partition)
        return [list(made) for made in zip(*receipts, strict=True)] if receipts else [[] for _ in self.told.times]

    def discard(self) -> None:
        """Drops the files that were made for it."""
        divided = {Path(place) for share in self.pieces or () for place, _ in share}
        for path in (*divided, *([Path(self.told.given)] if self.told.given else [])):
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class StepPlanner:
    """Makes the plans of one owner's steps.

    Attributes:
        scratch: Where its tasks leave files.
        token: The owner's.
        parallelism: How many tasks run at once.
    """

    scratch: Path
    token: int
    parallelism: int

    def fits_one_task(self, weight: int) -> bool:
        """Tells whether so many bytes are so few that more tasks would not be faster."""
        return tasks_for(weight, self.parallelism) == 1

    def together(self, compiled: CompiledUnit, rows: DataFrame, times: range) -> StepPlan:
        """Makes the plan of several steps of a unit with state, whose plan depends on nothing that differs among them.

        Args:
            compiled: The unit.
            rows: The input of all of them, with `_ordinal`.
            times: Which steps.

        Raises:
            InternalError: the ordinal cannot be threaded through the unit's transforms.
        """
        frame, columns = _hashed(compiled, compiled.build(rows.drop(ORDINAL), 0, 0))
        threaded = thread(frame, rows, ORDINAL)
        plan = map_in_arrow(threaded.coalesce(1), [*columns, ORDINAL], self._task(compiled, 1), RECEIPTS)
        return StepPlan(optimised(plan), JobParameters(times[0], times[-1], self._given()))

    def plan(self, compiled: CompiledUnit, rows: DataFrame, weight: int, time: int, clock: int, seed: int) -> StepPlan:
        """Makes the plan of a unit's step.

        Args:
            compiled: The unit.
            rows: The step's input.
            weight: Its bytes, more or less.
            time, clock, seed: Which step, and its determinants.
        """
        tasks = 1 if compiled.layout is None else tasks_for(weight, self.parallelism)
        if tasks == 1:
            return StepPlan(self.frame(compiled, rows, clock, seed), self.told(compiled, time))
        frame, columns = _hashed(compiled, compiled.build(rows, clock, seed))
        pieces = self._divided(compiled.unit.name, frame, columns, tasks)
        slots = frame.sparkSession.range(0, tasks, 1, tasks)
        plan = map_in_arrow(slots, ["id"], self._task(compiled, tasks), RECEIPTS)
        return StepPlan(optimised(plan), self.told(compiled, time), pieces)

    def frame(self, compiled: CompiledUnit, rows: DataFrame, clock: int, seed: int) -> DataFrame:
        """Plans a step of a unit without state, or a small one of a unit with state."""
        frame = compiled.build(rows, clock, seed)
        if compiled.layout is None:
            columns = compiled.output.names
            parts = ", ".join(f"isnull({quoted(name)}), {quoted(name)}" for name in columns)
            frame = frame.selectExpr("*", f"xxhash64({parts}) AS {ROW_HASH}")
            task = StageTask(compiled.unit.name, self.token, _outlets(compiled), str(self.scratch))
            return optimised(map_in_arrow(frame, [*columns, ROW_HASH], task, RECEIPTS))
        frame, columns = _hashed(compiled, frame)
        return optimised(map_in_arrow(frame.coalesce(1), columns, self._task(compiled, 1), RECEIPTS))

    def told(self, compiled: CompiledUnit, time: int, source: bytes = b"") -> JobParameters:
        """Says what tasks are to be told of a step: with state, where they will find that."""
        return JobParameters(time, time, "" if compiled.layout is None else self._given(), source)

    def _given(self) -> str:
        return str(self.scratch / f"given-{uuid.uuid4().hex}")

    def _task(self, compiled: CompiledUnit, tasks: int) -> KeyedTask:
        assert compiled.layout is not None
        return KeyedTask(
            AggregateKernel(compiled.layout, compiled.unit.name),
            compiled.output,
            self.token,
            tasks,
            _outlets(compiled),
            str(self.scratch),
        )

    def _divided(self, unit: str, frame: DataFrame, columns: Sequence[str], tasks: int) -> list[list[Piece]]:
        """Runs the job that divides a large step's rows among its tasks; it touches no state, so it may run ahead."""
        rows = map_in_arrow(frame, columns, DivideTask(unit, tasks, str(self.scratch)), RECEIPTS).collect()
        divisions = [msgspec.msgpack.decode(bytes(row[0]), type=Division) for row in rows]
        return pieces_of(divisions, tasks)


def _hashed(compiled: CompiledUnit, frame: DataFrame) -> tuple[DataFrame, list[str]]:
    """Adds the hash of the keys to what a unit with state takes; names the columns that its tasks are handed."""
    assert compiled.layout is not None
    assert compiled.unit.aggregate is not None
    keys = compiled.unit.aggregate.keys
    frame = frame.selectExpr("*", f"{key_hash(keys)} AS {HASH}")
    return frame, [*keys, *(name for name, _ in compiled.layout.arguments), HASH]


def tasks_for(weight: int, parallelism: int) -> int:
    """Decides how many tasks a stateful step has: a power of two, so that it divides the key groups.

    Args:
        weight: Bytes of its input.
        parallelism: How many tasks run at once.
    """
    if weight <= ONE_TASK_BYTES:
        return 1
    return max(power_of_two(parallelism), power_of_two(weight // TASK_BYTES))


def power_of_two(number: int) -> int:
    """The largest power of two that is neither larger than a number nor than the number of key groups."""
    return 1 << (max(1, min(number, KEY_GROUPS)).bit_length() - 1)


def _outlets(compiled: CompiledUnit) -> tuple[Output, ...]:
    unit = compiled.unit
    # A change is two rows of one group, before and after: whoever keeps one row a group needs only what holds now.
    groups = set(unit.aggregate.keys) if unit.aggregate is not None else None
    outlets = [
        Output(s.name, s.sink.stager(), s.sink.key is not None and set(s.sink.key) == groups) for s in unit.sinks
    ]
    if unit.materialised:
        outlets.append(Output(EDGE, ArrowStager(compiled.output), upserts=False))
    return tuple(outlets)
