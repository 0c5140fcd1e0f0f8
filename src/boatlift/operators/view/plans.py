"""The plans of a view's jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from boatlift.dataflow.columns import ORDINAL, WEIGHT
from boatlift.kernels.loop.node import LoopNode
from boatlift.kernels.network.network import Channel, Feed, Network, OutputCollector, part_name
from boatlift.kernels.network.node import Node
from boatlift.operators.view.frames import NOTHING, TriedInputs, ViewFrames, with_weight
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.plan_cache import PlanCache, SmallStep
from boatlift.spark.jobs.planner import KeyedJob, LastStage, StepPlan
from boatlift.spark.jobs.told_rows import Sent, ToldInputs
from boatlift.spark.plans.catalyst import one_row
from boatlift.storage.records.payloads import StepClock
from boatlift.storage.records.records import RunRef
from boatlift.tasks.channels import ChannelTask, InputHashes
from boatlift.tasks.parameters import JobParameters
from boatlift.tasks.stage import Output, TaskReceipt
from boatlift.tasks.staging import ArrowStager
from boatlift.views.catalyst_plan import CatalystPlan
from boatlift.views.query import Query
from boatlift.views.view_job import ViewJob, channel_name


@dataclass(slots=True)
class ViewStep:
    """A step under way.

    Attributes:
        number: Its number.
        weight: The approximate bytes of its input.
        divided: Whether it is the work of several tasks.
        clock: The clock and the seed of the step.
        held: Part to the runs of the state, to which the step's own are added.
        first: Whether it is the view's first step.
        rows: Returns the frames of its rows, by their source or unit, as a named reader reads them; None: the unit.
        named: The input parameters that name these rows, the same for all jobs; None if plans hold the rows.
        channels: Channel to the files of earlier jobs of the step.
        history: The hash of all input up to this step, of a view with loops.
        iterations: The folder of loop checkpoints.
        passed: The time that had passed for each part of the state before the step, if its rows expire.
    """

    number: int
    weight: int
    divided: bool
    clock: StepClock
    held: dict[str, list[RunRef]]
    first: bool
    rows: Callable[[str | None], Mapping[str, DataFrame]]
    named: ToldInputs | None
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


class ViewPlans:
    """Makes the plan of each job of a step.

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
        self._view_jobs = view_jobs
        self._numbers = {id(job): number for number, job in enumerate(view_jobs)}
        small = [partial(self._small, job) for job in view_jobs]
        self._cache = None if self._frames.of_step else PlanCache(unit, jobs, small)

    def named(self, sent: Sent, weight: int, *, first: bool) -> ToldInputs | None:
        """Return the parameters that name a step's rows, as `PlanCache.named`.

        The first step has plans of its own; while it runs, those of later steps are made.
        """
        if self._cache is None or not self._cache.fits(weight):
            return None
        if first:
            left = [frozenset(channel_name(stage, place) for stage, place in _results(job)) for job in self._view_jobs]
            earlier = [frozenset[str]().union(*left[:number]) for number in range(len(left))]
            self._cache.make_ahead(sent, weight, earlier)
            return None
        return self._cache.named(sent, weight)

    def of(self, job: ViewJob, step: ViewStep, *, net: bool = False, tried: TriedInputs = NOTHING) -> StepPlan:
        """Return the plan of a job.

        Args:
            job: The job.
            step: The step.
            net, tried: As for `ViewFrames.of`.
        """
        cached = None
        if step.named is not None and self._cache is not None and not net:
            cached = self._cache.of(
                step.number,
                step.named,
                job=self._numbers[id(job)],
                channels=step.there,
                state=not self._query.only_appends,
            )
        return cached or self._made_anew(job, step, net=net, tried=tried)

    @property
    def of_step(self) -> bool:
        """Whether plans have values of a step's own."""
        return self._frames.of_step

    def together(self, takes: Sequence[StepInput]) -> StepPlan:
        """Return the plan of the one job of steps after the first, of a view that only appends.

        Nothing in such a view reads the weight of a row, so that weights carry the ordinals of steps.
        """
        (job,) = self._view_jobs
        self._jobs.make_room()
        self._jobs.group.join(self._unit.name)
        parts: dict[str, list[DataFrame]] = {}
        for ordinal, take in enumerate(takes):
            rows, _ = self._jobs.inputs.rows(self._jobs.spark, self._unit, take)
            for name, rows_of in self._frames.weighted(job, rows, clock_of(take), weight=ordinal).items():
                parts.setdefault(name, []).append(rows_of)
        streams = {name: reduce(DataFrame.unionAll, frames) for name, frames in parts.items()}
        read = self._channel_of_parameters
        frame = self._frames.of(job, streams, frozenset(), read, first=False, divided=True, net=False)
        times = range(takes[0].time, takes[-1].time + 1)
        if frame is None:
            return StepPlan(None, JobParameters(times[0], times[-1]))
        return self._jobs.planner.staging_together(self._unit, self._appended(job, frame, ordinals=True), times)

    def tried(self, job: ViewJob, step: ViewStep) -> TriedInputs:
        """Return the inputs of a job that failed, with columns that are NULL where they fail; as `of` takes them."""
        self._jobs.group.join(self._unit.name)
        rows = step.rows(f"{self._unit.name}:tried")  # this reads some rows of sources, apart from the step's job
        streams, read = self._frames.weighted(job, rows, step.clock), partial(self._channel, step.channels)
        return self._frames.tried(job, streams, step.there, read, step.held, first=step.first)

    def forget(self) -> None:
        """Drop the cached plans after a failure: Spark keeps a failure on the way to the tasks with the plan."""
        if self._cache is not None:
            self._cache.forget()

    def _small(self, job: ViewJob, step: SmallStep, last_stage: LastStage | None) -> DataFrame | None:
        frame = self._frames.small(job, step)
        if frame is None:
            return None
        if self._query.only_appends:
            return self._jobs.planner.staged(self._unit, self._appended(job, frame), None, last_stage)
        return self._jobs.planner.keyed(self._keyed_job(job), frame, last_stage)

    def _made_anew(self, job: ViewJob, step: ViewStep, *, net: bool, tried: TriedInputs) -> StepPlan:
        """Return the plan of a job for one step alone."""
        planner = self._jobs.planner
        self._jobs.group.join(self._unit.name)
        divided = step.divided and not is_one_task(job)
        told = None if step.named is None or self._cache is None else self._cache.frames(step.named)
        streams = self._frames.weighted(job, step.rows(None) if told is None else told, step.clock)
        # The one task of a small step has one partition: several, one after the other, hold memory until its end.
        read = partial(self._channel, step.channels) if divided else self._channel_of_parameters
        frame = self._frames.of(job, streams, step.there, read, first=step.first, divided=divided, net=net, tried=tried)
        if frame is None:
            return StepPlan(None, planner.parameters(step.number, state=False))
        if self._query.only_appends:
            made = planner.staging(self._unit, self._appended(job, frame), step.number)
        else:
            made = planner.updating(self._keyed_job(job), frame, step.weight if divided else 0, step.number)
        if step.named is None:
            return made
        has_input = bool(step.named.channels) or not self._query.only_appends
        parameters = planner.parameters(step.number, step.named.sources, state=has_input)
        return replace(made, parameters=parameters, channels=step.named.channels)

    def _appended(self, job: ViewJob, frame: DataFrame, *, ordinals: bool = False) -> DataFrame:
        """Return the output rows of a view that only appends: no rows cancel out.

        Args:
            ordinals: Whether the weights are ordinals, which become `_ordinal`.
        """
        assert job.result is not None
        columns = zip(job.result.columns, self._result.names, strict=True)
        named = [F.col(f"c{place}").alias(name) for place, name in columns]
        if not ordinals:
            return frame.select(*named, WEIGHT)
        return frame.select(*named, F.lit(1).cast("long").alias(WEIGHT), F.col(WEIGHT).cast("int").alias(ORDINAL))

    def _keyed_job(self, job: ViewJob) -> KeyedJob:
        planner, name = self._jobs.planner, self._unit.name
        places = len(job.inputs)

        def feed(each: Feed) -> Feed:
            return each if each.source >= 0 else Feed(places - 1 - each.source, each.columns)

        starts = _starts(job)
        channels = tuple(
            Channel(channel_name(stage, place), starts[stage] + place, _named(_node_of(job, stage).schemas[place]))
            for stage, place in _results(job)
        )
        network = Network(
            name,
            tuple(given.schema for given in job.inputs),
            tuple(str(each.stage) for each in job.nodes),
            tuple(each.node for each in job.nodes),
            tuple(tuple(map(feed, each.feeds)) for each in job.nodes),
            {
                part_name(str(each.stage), part): column
                for each in job.nodes
                for part, (column, _) in each.expiries.items()
            },
            channels,
            None if job.result is None else OutputCollector((feed(job.result),), self._result),
        )
        exchanges = any(isinstance(each.node, LoopNode) for each in job.nodes)
        left = tuple(Output(each.name, ArrowStager(each.schema), upserts=False) for each in channels)
        return planner.keyed_job(self._unit, network, left, InputHashes(_keys(job)), exchanges=exchanges)

    def _channel(self, channels: Mapping[str, Sequence[RunRef]], name: str, columns: StructType) -> DataFrame:
        """Return the rows of a channel."""
        files = self.files(channels[name])
        slots = self._jobs.spark.range(0, len(files), 1, len(files))
        return slots.mapInArrow(ChannelTask(self._unit.name, name, files), with_weight(columns))

    def _channel_of_parameters(self, name: str, columns: StructType) -> DataFrame:
        """Return the rows of the channel whose files the job's parameters name."""
        task = ChannelTask(self._unit.name, name, None)
        return one_row(self._nodes.spark).mapInArrow(task, with_weight(columns)).coalesce(1)

    def files(self, runs: Iterable[RunRef]) -> tuple[str, ...]:
        """Return the files of a channel."""
        return tuple(str(self._jobs.inputs.path(run)) for run in runs)


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


def _results(job: ViewJob) -> Iterator[tuple[int, int]]:
    """Return the stage and the place of each result that a job writes for later ones."""
    return ((stage, place) for stage in job.leaves for place in range(len(_node_of(job, stage).schemas)))


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
