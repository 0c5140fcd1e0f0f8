"""The steps of a view: one job for each stage, and one that hands out the changes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.keyed import one_frame
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.incremental.nodes import Nodes
from boatlift.spark.incremental.query import Query
from boatlift.spark.incremental.realise import StepFrames, after_name, before_name
from boatlift.spark.incremental.stage_nodes import StageNode
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.keyed_steps import merged_runs
from boatlift.spark.jobs.planner import KeyedJob
from boatlift.spark.jobs.steps import Steps
from boatlift.spark.keyed.network.hand_out import HandOut
from boatlift.spark.keyed.network.network import Network, Wire, part_name
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
        stages: The node of each stage.
        nodes: Makes the frames of stages.
        result: The schema of the view's rows.
    """

    def __init__(
        self,
        unit: CompiledUnit,
        jobs: Jobs,
        query: Query,
        stages: Sequence[StageNode],
        nodes: Nodes,
        result: pa.Schema,
    ) -> None:
        self._unit, self._jobs, self._query, self._stages, self._nodes = unit, jobs, query, stages, nodes
        self._result = result
        self._tables = {
            f"{number}/{part}": StateTable(partial(merged_runs, jobs, unit.name, PartKernel(unit.name, codec)))
            for number, stage in enumerate(stages)
            for part, codec in stage.node.parts.items()
        }

    def run(self, take: StepInput, state: Any) -> StepResult:
        """Execute one step."""
        return self._jobs.explained(self._unit, take, partial(self._run, take, state))

    def _run(self, take: StepInput, state: Any) -> StepResult:
        began, jobs, unit = time.perf_counter(), self._jobs, self._unit
        jobs.begin(unit.name, take)
        jobs.inputs.verify_recorded((take,))
        frames, weight = jobs.inputs.rows(jobs.spark, unit, take)
        streams = {name: self._changes(name, frame) for name, frame in frames.items()}
        held = {name: table.resolve(runs) for (name, table), runs in zip(self._tables.items(), self._held(state), strict=True)}
        channels: dict[str, list[RunRef]] = {}
        rows_in = 0
        try:
            for stage in self._query.stages:
                step = self._frames(streams, channels, first=state is None)
                inputs = [step.input(stage, number) for number in range(len(stage.inputs))]
                if all(frame is None for frame in inputs):
                    continue
                receipts = self._job(stage.number, inputs, held, channels, weight, take.number)
                rows_in += sum(receipt.rows_in for receipt in receipts)
                for receipt in receipts:
                    for name, run in receipt.staged.items():
                        channels.setdefault(name, []).extend([] if run is None else [run])
                    for part, run in receipt.runs.items():
                        held[f"{stage.number}/{part.partition('.')[2]}"].append(run)
            frame = self._frames(streams, channels, first=state is None).result()
            receipts = [] if frame is None else self._hand_out(frame, channels, weight, take.number)
            jobs.inputs.verify(unit.name, (take,))
        finally:
            for runs in channels.values():
                for run in runs:
                    jobs.inputs.path(run).unlink(missing_ok=True)
        after = RunsPayload(
            tuple(run for runs in held.values() for run in runs),
            tables={name: (tuple(run.name for run in runs),) for name, runs in held.items()},
        )
        made = jobs.result(unit, take, receipts, to_json(after), time.perf_counter() - began)
        jobs.files.made(run.name for run in after.runs)
        for name, table in self._tables.items():
            table.grown(held[name])
        return made

    def _held(self, state: Any) -> list[list[RunRef]]:
        """Return the runs of each part of a state."""
        if state is None:
            return [[] for _ in self._tables]
        payload = payload_of(state)
        assert isinstance(payload, RunsPayload)
        assert payload.tables is not None
        runs = {run.name: run for run in payload.runs}
        return [[runs[name] for name in payload.tables[table][0]] for table in self._tables]

    def _frames(
        self, streams: Mapping[str, DataFrame], channels: Mapping[str, Sequence[RunRef]], *, first: bool
    ) -> StepFrames:
        there = frozenset(name for name, runs in channels.items() if runs)
        read = partial(self._channel, {name: len(runs) for name, runs in channels.items()})
        return StepFrames(self._query, self._stages, self._nodes, streams, there, read, first)

    def _channel(self, counts: Mapping[str, int], name: str) -> DataFrame:
        """Return the rows of a channel."""
        slots = counts[name]
        frame = self._jobs.spark.range(0, slots, 1, slots)
        return frame.mapInArrow(ChannelTask(self._unit.name, name), _weighted(self._schema_of(name)))

    def _schema_of(self, channel: str) -> pa.Schema:
        number, _, side = channel.partition(".")
        place = 0 if not side else 2 * int(side.partition(".")[0])
        return self._stages[int(number)].node.schemas[place]

    def _job(
        self,
        number: int,
        inputs: Sequence[DataFrame | None],
        held: Mapping[str, list[RunRef]],
        channels: Mapping[str, Sequence[RunRef]],
        weight: int,
        step: int,
    ) -> list[TaskReceipt]:
        """Run the job of a stage."""
        stage, planner = self._stages[number], self._jobs.planner
        schemas = self._stages[number].schemas
        whole = tuple(tuple(range(len(schema))) for schema in schemas)
        network = Network(schemas, (stage.node,), (tuple(Wire(at, columns) for at, columns in enumerate(whole)),))
        left = tuple(
            Channel(name, len(schemas) + place, _with_weight(stage.node.schemas[place]))
            for place, name in enumerate(self._names(number))
        )

        def task(tasks: int) -> NetworkTask:
            return NetworkTask(self._unit.name, network, left, None, (), planner.token, tasks, str(planner.scratch))

        columns = {str(at): (*schema.names, WEIGHT) for at, schema in enumerate(schemas)}
        hashes = InputHashes(tuple(stage.node.keys(at) for at in range(len(schemas))))
        job = KeyedJob(self._unit.name, columns, task, hashes)
        if len(inputs) == 1:
            (frame,) = inputs
            assert frame is not None
        else:
            frame = one_frame(inputs, [_weighted(schema) for schema in schemas])
        plan = planner.updating(job, frame, weight, step)
        own = {
            part_name(0, part): [(run, str(self._jobs.inputs.path(run))) for run in held[f"{number}/{part}"]]
            for part in stage.node.parts
        }
        (receipts,) = plan.run(own, self._files(channels))
        return receipts

    def _hand_out(
        self, frame: DataFrame, channels: Mapping[str, Sequence[RunRef]], weight: int, step: int
    ) -> list[TaskReceipt]:
        """Run the job that hands out the changes of the result."""
        planner = self._jobs.planner
        names = tuple(f"c{place}" for place in range(len(self._result)))
        rows = pa.schema([field.with_name(name) for field, name in zip(self._result, names, strict=True)])
        hand_out = HandOut((Wire(0, tuple(range(len(names)))),), self._result)
        outputs = planner.outlets(self._unit)

        def task(tasks: int) -> NetworkTask:
            network = Network((rows,), (), ())
            return NetworkTask(
                self._unit.name, network, (), hand_out, outputs, planner.token, tasks, str(planner.scratch)
            )

        job = KeyedJob(self._unit.name, {"0": (*names, WEIGHT)}, task, InputHashes((None,)))
        (receipts,) = planner.updating(job, frame, weight, step).run({}, self._files(channels))
        return receipts

    def _files(self, channels: Mapping[str, Sequence[RunRef]]) -> dict[str, list[str]]:
        return {name: [str(self._jobs.inputs.path(run)) for run in runs] for name, runs in channels.items()}

    def _names(self, number: int) -> list[str]:
        """Return the names of the channels of a stage, in the order of its node's results."""
        if not self._stages[number].general:
            return [str(number)]
        inputs = range(len(self._query.stages[number].inputs))
        return [name(number, at) for at in inputs for name in (before_name, after_name)]

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


def frame_schema(schema: pa.Schema) -> list[pa.Field]:
    """Return the columns of an input of a node, named by their place."""
    return [field.with_name(f"c{place}") for place, field in enumerate(schema)]


def _with_weight(schema: pa.Schema) -> pa.Schema:
    return pa.schema(frame_schema(schema)).append(pa.field(WEIGHT, pa.int64(), nullable=False))


def _weighted(schema: pa.Schema) -> StructType:
    """Return columns and `_weight`, as Spark sees them."""
    fields = from_arrow_schema(pa.schema(frame_schema(schema))).fields
    return StructType([*fields, StructField(WEIGHT, LongType())])
