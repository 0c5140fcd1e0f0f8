"""The members of a long-running job: units, and jobs of views, whose rows go through one plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow import FrameOfTask, Plan, Timing
from boatlift.dataflow.columns import POSITION
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.planner import RECEIPTS, ArrowTask, LastStage
from boatlift.spark.jobs.steps import HasSteps
from boatlift.spark.plans.branches import Branch, Branches, is_a_stream, register
from boatlift.spark.plans.catalyst import empty_frame, map_in_arrow, optimised, plan_of
from boatlift.spark.plans.common_plan import NotRowByRowError
from boatlift.storage.records.payloads import StepClock
from boatlift.tasks.barrier import RelayAddress
from boatlift.tasks.long_running import (
    BranchCalls,
    LeafRows,
    ParameterizedTask,
    SinkMember,
    SinkTask,
    SourceTask,
)

WIDTH = 64
"""The number of rows in a batch between the two tasks."""

IDLE_TIMEOUT = 30.0
"""A long-running job ends after this number of seconds without a step."""

MakeFrame: TypeAlias = Callable[[FrameOfTask, LastStage], DataFrame]
"""Makes the frame of a small step from the frames of its rows, and hands it to the last stage."""


def needs_own_jobs(unit: CompiledUnit, plan: Plan) -> str | None:
    """Return why each step of a unit needs a job of its own; None if only the unit's expressions can require it."""
    if unit.unit.timing is Timing.BATCH:
        return "it is a batch"
    if unit.of_step or not unit.unit.deterministic:
        return "its steps cannot share a Spark plan, as with bl.now(), bl.rand() or deterministic=False"
    if unit.unit.records_answers:
        return "it asks an external system, and a step that is executed twice would ask twice"
    for leaf in unit.leaves:
        if leaf in plan.sources and plan.sources[leaf].source.capabilities.parameterized_read is None:
            return f"its Spark plan names the input of {leaf}, which is another in each step"
    return None


def long_running(units: Mapping[str, CompiledUnit], plan: Plan, spark: SparkSession) -> dict[str, str | None]:
    """Return for each unit why steps of it have jobs of their own, whatever the number of slots; None if none have."""
    return {name: needs_own_jobs(unit, plan) or needed_by_expressions(unit, spark) for name, unit in units.items()}


def needed_by_expressions(unit: CompiledUnit, spark: SparkSession) -> str | None:
    """Return why a unit's expressions cannot be computed in the long-running job; None if they can."""
    leaves: set[int] = set()

    def empty(schema: StructType) -> DataFrame:
        frame = empty_frame(spark, schema)
        leaves.add(int(plan_of(frame).rdd().id()))
        return frame

    rows = {}
    for leaf, columns in unit.leaves.items():
        position = [StructField(POSITION, LongType())] if columns.positioned else []
        rows[leaf] = empty(StructType([*columns.weighted_schema.fields, *position]))
    decisive: object = unit.decisive
    own = decisive if isinstance(decisive, HasSteps) else None
    if own is not None and own.own_job is not None:
        return own.own_job
    branches = Branches(spark)
    try:
        frames = iter([unit.frame(rows, StepClock(0, 0))]) if own is None else own.small_frames(unit, rows, empty)
        for frame in frames:
            branches.add(frame, frame.columns, leaves)
    except NotRowByRowError as error:
        return str(error)
    return None


class Members:
    """Collects the members of a long-running job: their branches, and the tasks around them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._zone = spark.conf.get("spark.sql.session.timeZone")
        self.branches = Branches(spark)
        self._readings: list[tuple[ParameterizedTask, StructType]] = []  # each once
        self.sources: list[tuple[LeafRows, ...]] = []
        self.sinks: list[SinkMember] = []

    def add(self, make: MakeFrame) -> None:
        """Add a member.

        Raises:
            NotRowByRowError: an expression of the member needs several rows.
        """
        leaves: dict[int, tuple[ParameterizedTask, StructType]] = {}
        branches: list[Branch] = []

        def frame_of(task: ParameterizedTask, schema: StructType) -> DataFrame:
            frame = empty_frame(self._spark, schema)
            leaves[int(plan_of(frame).rdd().id())] = task, schema
            return frame

        def last_stage(frame: DataFrame, columns: Sequence[str], task: ArrowTask) -> DataFrame:
            branches.extend(self.branches.add(frame, columns, leaves))
            rows = tuple(each.rows for each in branches if each.calls is None)
            self.sinks.append(SinkMember(rows, task, _calls(branches)))
            return frame

        make(frame_of, last_stage)
        read = {each.leaf for each in branches}
        rows = (self._rows(*leaves[leaf], leaf, branches) for leaf in leaves if leaf in read)
        self.sources.append(tuple(rows))

    def _rows(self, task: ParameterizedTask, schema: StructType, leaf: int, branches: Sequence[Branch]) -> LeafRows:
        readers = tuple((each.rows.number, each.registers) for each in branches if each.leaf == leaf)
        if (task, schema) not in self._readings:
            self._readings.append((task, schema))
        reading = self._readings.index((task, schema))
        return LeafRows(task, to_arrow_schema(schema, timezone=self._zone), readers, reading)

    def frame(self, relay: RelayAddress, spark: SparkSession) -> DataFrame:
        """Return the planned frame of the job.

        Args:
            spark: A session with small buffers.

        Raises:
            NotRowByRowError: Spark's plan holds rows back.
        """
        given = self.branches.registers
        _, _, *registers = to_arrow_schema(given, timezone=self._zone)
        tasks = tuple(each.task for each in self.sinks)
        source = SourceTask(tuple(self.sources), tasks, pa.schema(registers), relay, WIDTH, IDLE_TIMEOUT)
        rows = spark.range(0, 1, 1, 1).mapInArrow(source, given)
        sink = SinkTask(tuple(self.sinks), relay)
        frame = optimised(map_in_arrow(self.branches.plan(rows, spark), self.branches.results, sink, RECEIPTS))
        if not is_a_stream(frame):
            raise NotRowByRowError("Spark's plan holds rows back")
        return frame


def _calls(branches: Sequence[Branch]) -> tuple[BranchCalls, ...]:
    """Return the Python functions between branches, each with the branch that gets their results."""
    below = {each.rows.number: each for each in branches}
    return tuple(
        BranchCalls(arguments.rows, arguments.calls, each.rows.number, tuple(map(register, each.registers)))
        for each in branches
        if each.below is not None and (arguments := below[each.below]).calls is not None
    )
