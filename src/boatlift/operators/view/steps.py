"""The steps of a view: the jobs of its query, over the arrangements that earlier steps left."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, LongType, StructField, StructType

from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.keyed import one_frame
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.incremental.nodes import Nodes
from boatlift.spark.incremental.query import Query
from boatlift.spark.incremental.realise import StepFrames
from boatlift.spark.incremental.view_jobs import ViewJob, channel_name
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.keyed_steps import merged_runs
from boatlift.spark.jobs.planner import KeyedJob
from boatlift.spark.jobs.steps import Steps
from boatlift.spark.keyed.network.hand_out import HandOut
from boatlift.spark.keyed.network.network import Network, Wire, part_name
from boatlift.spark.keyed.network.node import Node
from boatlift.spark.keyed.table import StateTable
from boatlift.spark.tasks.network_task import Channel, ChannelTask, InputHashes, NetworkTask, PartKernel
from boatlift.spark.tasks.stage import TaskReceipt
from boatlift.storage.records.payloads import RunsPayload, payload_of, to_json
from boatlift.storage.records.records import RunRef

__all__ = ["ViewSteps"]


class ViewSteps(Steps):
    """Steps of a view, each over the arrangements that the one before left.

    Args:
        unit: The unit.
        jobs: The dataflow's jobs.
        query: The stages.
        view_jobs: The jobs of a step that is one task's work.
        nodes: Makes the frames of stages.
        result: The schema of the view's rows.
    """

    def __init__(
        self,
        unit: CompiledUnit,
        jobs: Jobs,
        query: Query,
        view_jobs: Sequence[ViewJob],
        nodes: Nodes,
        result: pa.Schema,
    ) -> None:
        self._unit, self._jobs, self._query, self._nodes, self._result = unit, jobs, query, nodes, result
        self._together = list(view_jobs)
        self._apart = [each for job in view_jobs for each in job.apart()]
        placed = [each for job in view_jobs for each in job.nodes]
        self._schemas = {
            channel_name(each.stage, place): schema for each in placed for place, schema in enumerate(each.node.schemas)
        }
        self._general = frozenset(each.stage for each in placed if len(each.node.schemas) > 1)
        self._tables = {
            part_name(str(each.stage), part): StateTable(
                partial(merged_runs, jobs, unit.name, PartKernel(unit.name, codec))
            )
            for each in placed
            for part, codec in each.node.parts.items()
        }

    def run(self, take: StepInput, state: Any) -> StepResult:
        """Execute one step."""
        return self._jobs.explained(self._unit, take, partial(self._run, take, state))

    def _run(self, take: StepInput, state: Any) -> StepResult:
        began, jobs, unit = time.perf_counter(), self._jobs, self._unit
        jobs.begin(unit.name, take)
        jobs.inputs.verify_recorded((take,))
        frames, weight = jobs.inputs.rows(jobs.spark, unit, take)
        changes = {name: self._changes(name, frame) for name, frame in frames.items()}
        step = _Step(take.number, weight, changes, self._held(state), first=state is None)
        receipts: list[TaskReceipt] = []
        try:
            for job in self._together if jobs.planner.fits_one_task(weight) else self._apart:
                receipts = self._job(job, step)
            jobs.inputs.verify(unit.name, (take,))
        finally:
            for runs in step.channels.values():
                for run in runs:
                    jobs.inputs.path(run).unlink(missing_ok=True)
        after = RunsPayload(
            tuple(run for runs in step.held.values() for run in runs),
            tables={name: (tuple(run.name for run in runs),) for name, runs in step.held.items()},
        )
        made = jobs.result(unit, take, receipts, to_json(after), time.perf_counter() - began)
        jobs.files.made(run.name for run in after.runs)
        for name, table in self._tables.items():
            table.grown(step.held[name])
        return made

    def _held(self, state: Any) -> dict[str, list[RunRef]]:
        """Return the runs of each part of a state."""
        if state is None:
            return {name: [] for name in self._tables}
        payload = payload_of(state)
        assert isinstance(payload, RunsPayload)
        assert payload.tables is not None
        runs = {run.name: run for run in payload.runs}
        parts = {name: [runs[run] for run in payload.tables[name][0]] for name in self._tables}
        return {name: table.resolve(parts[name]) for name, table in self._tables.items()}

    def _job(self, job: ViewJob, step: _Step) -> list[TaskReceipt]:
        """Run a job of a step, and take what it leaves into the step; return its receipts."""
        there = frozenset(name for name, runs in step.channels.items() if runs)
        channel = partial(self._channel, step.channels)
        frames = StepFrames(self._query, self._general, self._nodes, step.streams, there, channel, step.first)
        inputs = [frames.of(given) for given in job.inputs]
        begins = step.first and any(each.node.whole for each in job.nodes)
        if all(frame is None for frame in inputs) and not begins:
            return []
        keyed_job = self._keyed_job(job)
        schemas = [_weighted(given.schema) for given in job.inputs]
        if all(frame is None for frame in inputs):
            inputs = [self._jobs.spark.createDataFrame([], schemas[0]), *inputs[1:]]
        frame = inputs[0] if len(inputs) == 1 else one_frame(inputs, schemas)
        assert frame is not None
        plan = self._jobs.planner.updating(keyed_job, frame, step.weight, step.number)
        own = {
            name: [(run, str(self._jobs.inputs.path(run))) for run in runs]
            for name, runs in step.held.items()
            if name.partition("/")[0] in {str(each.stage) for each in job.nodes}
        }
        (receipts,) = plan.run(own, first=step.first)
        step.left(receipts)
        return receipts

    def _keyed_job(self, job: ViewJob) -> KeyedJob:
        planner, name = self._jobs.planner, self._unit.name
        places = len(job.inputs)

        def wire(each: Wire) -> Wire:
            return each if each.source >= 0 else Wire(places - 1 - each.source, each.columns)

        network = Network(
            tuple(given.schema for given in job.inputs),
            tuple(str(each.stage) for each in job.nodes),
            tuple(each.node for each in job.nodes),
            tuple(tuple(map(wire, each.wires)) for each in job.nodes),
        )
        starts = self._starts(job)
        channels = tuple(
            Channel(channel_name(stage, place), starts[stage] + place, _with_weight(schema))
            for stage in job.leaves
            for place, schema in enumerate(_node_of(job, stage).schemas)
        )
        hand_out = None if job.result is None else HandOut((wire(job.result),), self._result)
        outputs = planner.outlets(self._unit) if hand_out else ()

        def task(tasks: int) -> NetworkTask:
            return NetworkTask(name, network, channels, hand_out, outputs, planner.token, tasks, str(planner.scratch))

        columns = {str(at): (*given.schema.names, WEIGHT) for at, given in enumerate(job.inputs)}
        return KeyedJob(name, columns, task, InputHashes(_keys(job)))

    @staticmethod
    def _starts(job: ViewJob) -> dict[int, int]:
        """Return the place of the first result of each stage's node."""
        starts, place = {}, len(job.inputs)
        for each in job.nodes:
            starts[each.stage] = place
            place += len(each.node.schemas)
        return starts

    def _channel(self, channels: Mapping[str, Sequence[RunRef]], name: str, types: Sequence[DataType]) -> DataFrame:
        """Return the rows of a channel."""
        files = tuple(str(self._jobs.inputs.path(run)) for run in channels[name])
        slots = self._jobs.spark.range(0, len(files), 1, len(files))
        fields = [StructField(f"c{place}", kind) for place, kind in enumerate(types)]
        return slots.mapInArrow(
            ChannelTask(self._unit.name, files), StructType([*fields, StructField(WEIGHT, LongType())])
        )

    def _changes(self, name: str, frame: DataFrame) -> DataFrame:
        """Return the rows of a stream with their weights."""
        columns = self._unit.leaves[name]
        named = [F.col(quoted(column)) for column in columns.names]
        return frame.select(*named, F.col(WEIGHT) if columns.changes else F.lit(1).cast("long").alias(WEIGHT))

    def saved(self, runs: Iterable[RunRef]) -> None:
        """Take note that runs are durable: they may be merged freely."""
        saved = [run for run in runs if run.modulus]
        for table in self._tables.values():
            table.saved(saved)

    def holds(self) -> AbstractSet[str]:
        """Return the names of the runs of merges."""
        return frozenset().union(*(table.holds() for table in self._tables.values()))

    def forget(self, live: Collection[str]) -> None:
        """Forget merges in the place of runs that no state has any more."""
        for table in self._tables.values():
            table.forget(live)

    def close(self) -> None:
        """End merges."""
        for table in self._tables.values():
            table.close()


@dataclass(slots=True)
class _Step:
    """A step on its way.

    Attributes:
        number: Its number.
        weight: Bytes of its input, more or less.
        streams: Stream to the change of it.
        held: Part to the runs of the state, to which the step's own are added.
        first: Whether it is the first step that the view executes.
        channels: Channel to the files that jobs have left.
    """

    number: int
    weight: int
    streams: Mapping[str, DataFrame]
    held: dict[str, list[RunRef]]
    first: bool
    channels: dict[str, list[RunRef]] = field(default_factory=dict)

    def left(self, receipts: Iterable[TaskReceipt]) -> None:
        """Take note of what a job has left."""
        for receipt in receipts:
            for part, run in receipt.runs.items():
                self.held[part].append(run)
            for name, staged in receipt.channels.items():
                self.channels.setdefault(name, []).extend([] if staged is None else [staged])


def _node_of(job: ViewJob, stage: int) -> Node:
    return next(each.node for each in job.nodes if each.stage == stage)


def _keys(job: ViewJob) -> tuple[tuple[int, ...] | None, ...]:
    """Return for each input the columns by which several tasks divide its rows."""
    if not job.nodes:
        return (None,)
    if len(job.nodes) > 1:
        return ((),) * len(job.inputs)  # one task
    return tuple(job.nodes[0].node.keys(number) for number in range(len(job.inputs)))


def _with_weight(schema: pa.Schema) -> pa.Schema:
    fields = [field.with_name(f"c{place}") for place, field in enumerate(schema)]
    return pa.schema([*fields, pa.field(WEIGHT, pa.int64(), nullable=False)])


def _weighted(schema: pa.Schema) -> StructType:
    """Return columns and `_weight`, as Spark sees them."""
    return StructType([*from_arrow_schema(schema).fields, StructField(WEIGHT, LongType())])
