"""The frames of a view's jobs: the input rows of tasks, from the rows of streams and channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    DateType,
    LongType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.kernels.loop.node import LoopNode
from boatlift.kernels.network.network import part_name
from boatlift.spark.compile.keyed import one_frame
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.plan_cache import SmallStep
from boatlift.spark.plans.catalyst import map_in_arrow
from boatlift.spark.plans.common_plan import NotRowByRowError
from boatlift.storage.records.payloads import StepClock
from boatlift.storage.records.records import RunRef
from boatlift.tasks.channels import ChannelTask, NetTask
from boatlift.views.catalyst_plan import CatalystPlan
from boatlift.views.failing_keys import failing_inputs
from boatlift.views.query import Query
from boatlift.views.realise import StepFrames, Tried
from boatlift.views.view_job import FrameInput, ViewJob, channel_name

_DIVIDES = BooleanType | DateType | NumericType | StringType | TimestampType
"""Types of columns by which Spark can divide rows."""

ReadChannel = Callable[[str, StructType], DataFrame]
"""Returns the rows of a channel, given its name and columns."""


TriedInputs = Mapping[int, tuple[FrameInput, Tried]]
"""Input of a job to what `StepFrames.of` takes instead."""

NOTHING: TriedInputs = {}


class ViewFrames:
    """Makes the frame of the input rows of each job of a view.

    Args:
        unit: The unit.
        query: The stages.
        jobs: The jobs of a step that is one task's work.
        nodes: Makes Catalyst nodes.
    """

    def __init__(self, unit: CompiledUnit, query: Query, jobs: Sequence[ViewJob], nodes: CatalystPlan) -> None:
        self._unit, self._query, self._nodes = unit, query, nodes
        placed = [each for job in jobs for each in job.nodes]
        self._general = frozenset(each.stage for each in placed if len(each.node.schemas) > 1)
        self._channels = frozenset(
            channel_name(each.stage, place) for each in placed for place in range(len(each.node.schemas))
        )
        self._streams = unit.inputs

    @property
    def of_step(self) -> bool:
        """Whether a stream has values of a step's own."""
        return any(columns.of_step for columns in self._streams.values())

    def of(
        self,
        job: ViewJob,
        streams: Mapping[str, DataFrame],
        there: frozenset[str],
        channel: ReadChannel,
        *,
        first: bool,
        divided: bool,
        net: bool,
        tried: TriedInputs = NOTHING,
    ) -> DataFrame | None:
        """Return the input rows of a job's tasks; None if there are none.

        Args:
            net: Whether rows that cancel out are removed first.
            tried: Input to what it is instead, with columns that are NULL where they fail.
        """

        def net_channel(name: str, columns: StructType) -> DataFrame:
            return self._net(channel(name, columns), divided=divided)

        read = net_channel if net else channel
        if net:
            streams = {name: self._net(frame, divided=divided) for name, frame in streams.items()}
        frames = StepFrames(self._query, self._general, self._nodes, streams, there, read, first, divided)
        inputs = [frames.of(*tried.get(number, (given, None))) for number, given in enumerate(job.inputs)]
        schemas = [with_weight(from_arrow_schema(given.schema)) for given in job.inputs]
        begins = first and any(each.node.whole for each in job.nodes)
        if all(frame is None for frame in inputs):
            if not begins:
                return None
            inputs = [self._nodes.empty(schemas[0]), *inputs[1:]]
        frame = inputs[0] if len(inputs) == 1 else one_frame(inputs, schemas)
        # A frame that Spark knows to be empty, as under a false condition, has no task for the first result.
        return frame.unionAll(self._nodes.empty(frame.schema)) if begins and frame is not None else frame

    def tried(
        self,
        job: ViewJob,
        streams: Mapping[str, DataFrame],
        there: frozenset[str],
        channel: ReadChannel,
        held: Mapping[str, Sequence[RunRef]],
        *,
        first: bool,
    ) -> TriedInputs:
        """Return a job's inputs of joins in which columns may fail, as `of` takes them.

        The key of a row that comes may be NULL only if the other side of the join has no rows, and gets none.

        Args:
            held: Part to the runs of the state.
        """
        found = failing_inputs(job, self._query, self._nodes)
        frames = StepFrames(self._query, self._general, self._nodes, streams, there, channel, first)
        made = {}
        for each in found:
            has_rows = any(held[part_name(str(each.node.stage), part)] for part in each.parts)
            partners = [] if has_rows or each.partners is None else [frames.of(one) for one in each.partners]
            empty = not has_rows and each.partners is not None and all(one is None or one.isEmpty() for one in partners)
            made[each.number] = each.given, partial(each.tried, nodes=self._nodes, also_coming=empty)
        return made

    def small(self, job: ViewJob, step: SmallStep) -> DataFrame | None:
        """Return the input rows of a job of a small step after the first; None if there are none.

        Raises:
            NotRowByRowError: the job cannot share a plan with other units.
        """
        if step.channels is None and any(isinstance(each.node, LoopNode) for each in job.nodes):
            raise NotRowByRowError("it has a loop")

        def read(name: str, columns: StructType) -> DataFrame:
            return step.frame_of(ChannelTask(self._unit.name, name, None), with_weight(columns))

        there = self._channels if step.channels is None else step.channels
        streams = self.weighted(job, step.rows, StepClock(0, 0))
        frame = self.of(job, streams, there, read, first=False, divided=False, net=False)
        if frame is None and step.channels is None:
            raise NotRowByRowError("its rows come in its first step alone")
        return frame

    def _net(self, frame: DataFrame, *, divided: bool) -> DataFrame:
        """Return rows without those that cancel out; the last column is `_weight`."""
        *columns, _ = frame.schema.fields
        if divided:
            by = [F.col(quoted(each.name)) for each in columns if isinstance(each.dataType, _DIVIDES)]
            frame = frame.repartition(*by) if by else frame.repartition(1)
        else:
            frame = frame.coalesce(1)
        return map_in_arrow(frame, frame.columns, NetTask(self._unit.name), frame.schema)

    def weighted(
        self, job: ViewJob, rows: Mapping[str, DataFrame], clock: StepClock, weight: int = 1
    ) -> dict[str, DataFrame]:
        """Return the rows of each stream with their weights, if a job reads streams.

        Args:
            rows: The rows of the sources and units below.
            weight: The weight of new rows; changes have their own.
        """
        streams = {}
        for name, frame in self._unit.taken(rows, clock).items() if job.reads_streams else ():
            columns = self._streams[name]
            weighed = WEIGHT if columns.changes else f"CAST({weight} AS BIGINT) AS {WEIGHT}"
            streams[name] = frame.selectExpr(*map(quoted, columns.names), weighed)
        return streams


def with_weight(schema: StructType) -> StructType:
    """Return columns with `_weight`."""
    return StructType([*schema.fields, StructField(WEIGHT, LongType())])
