"""The plans of a view's jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    LongType,
    StructField,
    StructType,
)

from boatlift.dataflow import FrameOfTask
from boatlift.dataflow.columns import POSITION, WEIGHT
from boatlift.kernels.loop.node import LoopNode
from boatlift.kernels.network.network import Feed, Network, OutputCollector, part_name
from boatlift.kernels.network.node import Node
from boatlift.operators.view.frames import NOTHING, TriedInputs, ViewFrames, with_weight
from boatlift.spark.compile.operator import OWN_POSITION, Columns
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.long_running import LONG_RUNNING_BYTES
from boatlift.spark.jobs.members import needs_own_jobs
from boatlift.spark.jobs.planner import KeyedJob, LastStage, StepPlan
from boatlift.spark.jobs.told_rows import Sent, ToldInputs, ToldRows
from boatlift.spark.plans.catalyst import has_one_stage, one_row, optimised
from boatlift.spark.tasks.network_task import Channel, ChannelTask, InputHashes, NetworkTask
from boatlift.spark.tasks.parameters import JobParameters
from boatlift.spark.tasks.stage import TaskReceipt
from boatlift.storage.records.payloads import StepClock
from boatlift.storage.records.records import RunRef
from boatlift.views.catalyst_plan import CatalystPlan
from boatlift.views.query import Query
from boatlift.views.template import Template
from boatlift.views.view_job import ViewJob, channel_name


@dataclass(slots=True)
class ViewStep:
    """A step under way.

    Attributes:
        number: Its number.
        sent: Its messages, by the source or unit of each; one without a message is left out.
        weight: The approximate bytes of its input.
        clock: The clock and the seed of the step.
        held: Part to the runs of the state, to which the step's own are added.
        first: Whether it is the view's first step.
        rows: Returns the frames of its rows, by their source or unit.
        told: Returns the input parameters that name these rows, the same for all jobs; None if plans hold the rows.
        channels: Channel to the files of earlier jobs of the step.
        history: The hash of all input up to this step, of a view with loops.
        iterations: The folder of loop checkpoints.
        passed: The time that had passed for each part of the state before the step, if its rows expire.
    """

    number: int
    sent: Sent
    weight: int
    clock: StepClock
    held: dict[str, list[RunRef]]
    first: bool
    rows: Callable[[], Mapping[str, DataFrame]]
    told: Callable[[], ToldInputs | None]
    channels: dict[str, list[RunRef]] = field(default_factory=dict)
    history: str | None = None
    iterations: str = ""
    passed: Mapping[str, int] = field(default_factory=dict)

    @property
    def there(self) -> frozenset[str]:
        """The names of the channels that have rows."""
        return frozenset(name for name, runs in self.channels.items() if runs)

    def left(self, receipts: Iterable[TaskReceipt]) -> None:
        """Record the runs and channel files of a job."""
        for receipt in receipts:
            for part, run in receipt.runs.items():
                self.held[part].append(run)
            for name, staged in receipt.channels.items():
                self.channels.setdefault(name, []).extend([] if staged is None else [staged])


@dataclass(frozen=True, slots=True)
class _Small:
    """The cached plan of a job, for steps with messages of the same streams and channels.

    Attributes:
        template: The plan with gaps for the rows of streams; None: it has no gaps.
        frame: The plan without gaps.
        reusable: Whether the planned `frame` may be run again as it is.
    """

    template: Template | None
    frame: DataFrame
    reusable: bool


class ViewPlans:
    """Makes the plan of each job of a step.

    The plan of a small step is cached for all steps with messages of the same streams and channels. The job's
    parameters name channels, and the rows of streams where they can (`ToldRows`): then the plan is reused as it is.
    Else the rows of streams are put into its gaps, and it is planned again. Planning costs more than running.

    The rows of a query that only appends are staged as they come out of Spark. All others are divided by key among the
    tasks of a network.

    Args:
        unit: The unit.
        jobs: The dataflow's jobs.
        query: The stages.
        view_jobs: The jobs of a step that is one task's work.
        nodes: Makes Catalyst nodes.
        result: The schema of the view's rows.
    """

    def __init__(
        self,
        unit: CompiledUnit,
        jobs: Jobs,
        query: Query,
        view_jobs: Sequence[ViewJob],
        nodes: CatalystPlan,
        result: pa.Schema,
    ) -> None:
        self._unit, self._jobs, self._query, self._nodes, self._result = unit, jobs, query, nodes, result
        self._frames = ViewFrames(unit, query, view_jobs, nodes)
        self._told, self._parameterized = ToldRows(unit, jobs.inputs), True
        self._cached: dict[tuple[int, frozenset[str], frozenset[str], bool], _Small | None] = {}
        self._in_round: dict[int, Callable[[JobParameters], bytes | None]] = {}
        if jobs.long_running is not None and needs_own_jobs(unit, jobs.plan) is None:
            for job in view_jobs:
                self._in_round[id(job)] = jobs.long_running.add(unit.name, partial(self._small_frame, job))

    def of(self, job: ViewJob, step: ViewStep, *, net: bool = False, tried: TriedInputs = NOTHING) -> StepPlan | None:
        """Return the plan of a job; None if nothing comes in.

        Args:
            job: The job.
            step: The step.
            net, tried: As for `ViewFrames.of`.
        """
        planner = self._jobs.planner
        one_task = planner.fits_one_task(step.weight) or is_one_task(job)
        if step.first or self._frames.of_step or not one_task:
            return self._made_anew(job, step, divided=not one_task, net=net, tried=tried)
        told = step.told()
        make = partial(self._made, net=True, tried=tried) if net else self._small
        kept = make(job, step, told=told is not None)
        if kept is None:
            return None
        frame = kept.frame
        if not kept.reusable:
            if job.reads_streams and not net:
                self._parameterized = False  # from the next step on: the jobs of a step read the same input
            filled = frame if kept.template is None else kept.template.filled(step.rows())
            frame = optimised(self._nodes.frame_of(self._nodes.analysed(filled)))
        sources, channels = (b"", {}) if told is None else (told.sources, told.channels)
        has_input = bool(channels) or not self._query.only_appends
        small = told is not None and not net and step.weight <= LONG_RUNNING_BYTES
        return StepPlan(
            frame,
            planner.parameters(step.number, sources, state=has_input),
            channels=channels,
            long_running=self._in_round.get(id(job)) if small else None,
        )

    def told(self, sent: Sent, weight: int) -> ToldInputs | None:
        """Return the input parameters that name the rows of a step; None if its plans hold the rows.

        Args:
            sent: Its messages, by the source or unit of each.
            weight: The approximate bytes of its input.
        """
        return self._told.of(sent) if self._parameterized and self._jobs.planner.fits_one_task(weight) else None

    def _small_frame(self, job: ViewJob, frame_of: FrameOfTask, last_stage: LastStage) -> DataFrame:
        """Hand the frame of a job of any small step to the last stage of a long-running job (`MakeFrame`)."""

        def channel(name: str, columns: StructType) -> DataFrame:
            return frame_of(ChannelTask(self._unit.name, name, None), with_weight(columns))

        rows = {name: self._told.over(name, frame_of) for name in self._unit.leaves}
        frame = self._frames.small(job, rows, channel)
        if self._query.only_appends:
            return self._jobs.planner.staged(self._unit, self._appended(job, frame), None, last_stage)
        return self._jobs.planner.keyed(self._keyed_job(job), frame, last_stage)

    def tried(self, job: ViewJob, step: ViewStep) -> TriedInputs:
        """Return the inputs of a job that failed, with columns that are NULL where they fail; as `of` takes them."""
        streams, read = self._frames.weighted(step.rows(), step.clock), partial(self._channel, step.channels)
        return self._frames.tried(job, streams, step.there, read, step.held, first=step.first)

    def _made_anew(
        self, job: ViewJob, step: ViewStep, *, divided: bool, net: bool, tried: TriedInputs
    ) -> StepPlan | None:
        """Return the plan of a job for one step alone."""
        planner = self._jobs.planner
        streams = self._frames.weighted(step.rows(), step.clock)
        # The one task of a small step has one partition: several, one after the other, hold memory until its end.
        read = partial(self._channel, step.channels) if divided else self._parameterized_channel
        frame = self._frames.of(job, streams, step.there, read, first=step.first, divided=divided, net=net, tried=tried)
        if frame is None:
            return None
        if self._query.only_appends:
            return planner.staging(self._unit, self._appended(job, frame), step.number)
        return planner.updating(self._keyed_job(job), frame, step.weight if divided else 0, step.number)

    def forget(self) -> None:
        """Drop the cached plans after a failure: Spark keeps a failure on the way to the tasks with the plan."""
        self._cached.clear()

    def _small(self, job: ViewJob, step: ViewStep, *, told: bool) -> _Small | None:
        key = (id(job), frozenset(step.sent), step.there, told)
        if key not in self._cached:
            self._cached[key] = self._made(job, step, told=told)
        return self._cached[key]

    def _made(
        self, job: ViewJob, step: ViewStep, *, told: bool, net: bool = False, tried: TriedInputs = NOTHING
    ) -> _Small | None:
        gaps = {} if told else {name: self._gap(self._unit.leaves[name]) for name in step.sent}
        rows = self._told.frames(step.sent) if told else gaps
        streams = self._frames.weighted(rows, step.clock)
        frame = self._frames.of(
            job, streams, step.there, self._parameterized_channel, first=False, divided=False, net=net, tried=tried
        )
        if frame is None:
            return None
        planner = self._jobs.planner
        if self._query.only_appends:
            planned = planner.staged(self._unit, self._appended(job, frame))
        else:
            planned = planner.keyed(self._keyed_job(job), frame)
        template = Template(planned, {self._nodes.rdd_of(gap): name for name, gap in gaps.items()}, self._nodes)
        if template.has_gaps:
            return _Small(template, planned, reusable=False)
        return _Small(None, planned, has_one_stage(planned))

    def _appended(self, job: ViewJob, frame: DataFrame) -> DataFrame:
        """Return the output rows of a view that only appends: no rows cancel out."""
        assert job.result is not None
        columns = zip(job.result.columns, self._result.names, strict=True)
        return frame.select(*(F.col(f"c{place}").alias(name) for place, name in columns), WEIGHT)

    def _keyed_job(self, job: ViewJob) -> KeyedJob:
        planner, name = self._jobs.planner, self._unit.name
        places = len(job.inputs)

        def feed(each: Feed) -> Feed:
            return each if each.source >= 0 else Feed(places - 1 - each.source, each.columns)

        network = Network(
            tuple(given.schema for given in job.inputs),
            tuple(str(each.stage) for each in job.nodes),
            tuple(each.node for each in job.nodes),
            tuple(tuple(map(feed, each.feeds)) for each in job.nodes),
            {
                part_name(str(each.stage), part): column
                for each in job.nodes
                for part, (column, _) in each.expiries.items()
            },
        )
        starts = _starts(job)
        channels = tuple(
            Channel(channel_name(stage, place), starts[stage] + place, _named(schema))
            for stage in job.leaves
            for place, schema in enumerate(_node_of(job, stage).schemas)
        )
        output_collector = None if job.result is None else OutputCollector((feed(job.result),), self._result)
        outputs = planner.outlets(self._unit) if output_collector else ()

        def task(tasks: int) -> NetworkTask:
            return NetworkTask(
                name, network, channels, output_collector, outputs, planner.token, tasks, str(planner.scratch)
            )

        columns = {str(at): (*given.schema.names, WEIGHT) for at, given in enumerate(job.inputs)}
        exchanges = any(isinstance(each.node, LoopNode) for each in job.nodes)
        return KeyedJob(name, columns, task, InputHashes(_keys(job)), exchanges)

    def _channel(self, channels: Mapping[str, Sequence[RunRef]], name: str, columns: StructType) -> DataFrame:
        """Return the rows of a channel."""
        files = self.files(channels[name])
        slots = self._jobs.spark.range(0, len(files), 1, len(files))
        return slots.mapInArrow(ChannelTask(self._unit.name, name, files), with_weight(columns))

    def _parameterized_channel(self, name: str, columns: StructType) -> DataFrame:
        """Return the rows of the channel whose files the job's parameters name."""
        task = ChannelTask(self._unit.name, name, None)
        return one_row(self._nodes.spark).mapInArrow(task, with_weight(columns)).coalesce(1)

    def files(self, runs: Iterable[RunRef]) -> tuple[str, ...]:
        """Return the files of a channel."""
        return tuple(str(self._jobs.inputs.path(run)) for run in runs)

    def _gap(self, columns: Columns) -> DataFrame:
        """Return an empty frame in the place of the rows of a source or unit."""
        position = [StructField(POSITION, LongType(), metadata=OWN_POSITION)] if columns.positioned else []
        return self._nodes.empty(StructType([*columns.weighted_schema.fields, *position]))


def is_one_task(job: ViewJob) -> bool:
    """Return whether one task takes all rows of a job, however many they are."""
    return bool(job.nodes) and all(places == () for places in _keys(job))


def _starts(job: ViewJob) -> dict[int, int]:
    """Return the place of the first result of each stage's node."""
    starts, place = {}, len(job.inputs)
    for each in job.nodes:
        starts[each.stage] = place
        place += len(each.node.schemas)
    return starts


def _node_of(job: ViewJob, stage: int) -> Node:
    return next(each.node for each in job.nodes if each.stage == stage)


def _keys(job: ViewJob) -> tuple[tuple[int, ...] | None, ...]:
    """Return for each input the columns by which several tasks divide its rows."""
    if not job.nodes:
        return (None,)
    if len(job.nodes) > 1:
        return ((),) * len(job.inputs)  # one task
    return tuple(job.nodes[0].node.keys(number) for number in range(len(job.inputs)))


def _named(schema: pa.Schema) -> pa.Schema:
    fields = [field.with_name(f"c{place}") for place, field in enumerate(schema)]
    return pa.schema([*fields, pa.field(WEIGHT, pa.int64(), nullable=False)])
