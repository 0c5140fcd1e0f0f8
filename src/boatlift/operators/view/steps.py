"""The steps of a view: one job for each stage, and one that hands out the changes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow.columns import HASH, WEIGHT
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.keyed import one_frame
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.incremental.nodes import Nodes
from boatlift.spark.incremental.query import Query, Stage
from boatlift.spark.incremental.realise import StepFrames
from boatlift.spark.jobs.edges import ReadTask
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.keyed_steps import merged_runs
from boatlift.spark.jobs.planner import KeyedJob
from boatlift.spark.jobs.steps import Steps
from boatlift.spark.keyed.arrangement.codec import IDENTITY
from boatlift.spark.keyed.arrangement.consolidate import Consolidate
from boatlift.spark.keyed.arrangement.touched import TouchedRows
from boatlift.spark.keyed.table import StateTable
from boatlift.spark.tasks.stage import Output, TaskReceipt
from boatlift.spark.tasks.staging import ArrowStager
from boatlift.storage.records.payloads import RunsPayload, payload_of, to_json
from boatlift.storage.records.records import RunRef

__all__ = ["ViewSteps"]

TOUCHED = "touched"
"""The outlet of a stage."""


class ViewSteps(Steps):
    """Steps of a view, each over the arrangements that the one before left.

    Args:
        unit: The unit.
        jobs: The dataflow's jobs.
        query: The stages.
        nodes: Makes the frames of stages.
        rows: For each stage and each of its inputs the schema of the rows.
        result: The schema of the view's rows.
    """

    def __init__(
        self,
        unit: CompiledUnit,
        jobs: Jobs,
        query: Query,
        nodes: Nodes,
        rows: Sequence[Sequence[pa.Schema]],
        result: pa.Schema,
    ) -> None:
        self._unit, self._jobs, self._query, self._nodes = unit, jobs, query, nodes
        self._consolidate = Consolidate(unit.name, result)
        self._schemas = [[_input_schema(schema) for schema in stage] for stage in rows]
        self._stages = [self._job_of(stage, rows[stage.number]) for stage in query.stages]
        self._tables = [StateTable(partial(merged_runs, jobs, unit.name, job.kernel)) for job in self._stages]

    def _job_of(self, stage: Stage, rows: Sequence[pa.Schema]) -> KeyedJob:
        kernel = TouchedRows(self._unit.name, stage.place, {f"i{number}": schema for number, schema in enumerate(rows)})
        outlet = Output(TOUCHED, ArrowStager(kernel.output_schema), upserts=False)
        return KeyedJob(self._unit.name, kernel, kernel.output_schema, (outlet,))

    def run(self, take: StepInput, state: Any) -> StepResult:
        """Execute one step."""
        return self._jobs.explained(self._unit, take, partial(self._run, take, state))

    def _run(self, take: StepInput, state: Any) -> StepResult:
        began, jobs, unit = time.perf_counter(), self._jobs, self._unit
        jobs.begin(unit.name, take)
        jobs.inputs.verify_recorded((take,))
        frames, weight = jobs.inputs.rows(jobs.spark, unit, take)
        streams = {name: self._changes(name, frame) for name, frame in frames.items()}
        held = _parts(state, len(self._stages))
        passing: list[RunRef] = []
        touched: dict[int, DataFrame] = {}
        rows_in = 0
        try:
            for stage in self._query.stages:
                step = StepFrames(self._query, self._nodes, streams, touched, state is None)
                inputs = [step.input(stage, number) for number in range(len(stage.inputs))]
                if all(frame is None for frame in inputs):
                    continue
                receipts = self._stage(stage.number, inputs, held, weight, take.number)
                rows_in += sum(receipt.rows_in for receipt in receipts)
                given = [run for receipt in receipts if (run := receipt.staged[TOUCHED]) is not None]
                if given:
                    passing += given
                    touched[stage.number] = self._read(stage.number, given)
            step = StepFrames(self._query, self._nodes, streams, touched, state is None)
            frame = step.result(self._unit.columns.names)
            receipts = [] if frame is None else self._hand_out(frame, weight, take.number)
            jobs.inputs.verify(unit.name, (take,))
        finally:
            for run in passing:
                jobs.inputs.path(run).unlink(missing_ok=True)
        after = RunsPayload(
            tuple(run for part in held for run in part),
            tables={str(number): (tuple(run.name for run in part),) for number, part in enumerate(held)},
        )
        made = jobs.result(unit, take, receipts, to_json(after), time.perf_counter() - began)
        jobs.files.made(run.name for run in after.runs)
        for table, part in zip(self._tables, held, strict=True):
            table.grown(part)
        return made

    def _stage(
        self, number: int, inputs: Sequence[DataFrame | None], held: list[list[RunRef]], weight: int, step: int
    ) -> list[TaskReceipt]:
        """Run the job of a stage, and add its new runs to those that are held."""
        job = self._stages[number]
        if len(inputs) == 1:
            (frame,) = inputs
            assert frame is not None
        else:
            frame = one_frame(inputs, self._schemas[number])
        plan = self._jobs.planner.updating(job, frame, weight, step)
        held[number] = self._tables[number].resolve(held[number])
        (receipts,) = plan.run([(run, str(self._jobs.inputs.path(run))) for run in held[number]])
        held[number] = [*held[number], *(receipt.run for receipt in receipts if receipt.run is not None)]
        return receipts

    def _hand_out(self, frame: DataFrame, weight: int, step: int) -> list[TaskReceipt]:
        """Run the job that hands out the changes of the result."""
        planner = self._jobs.planner
        (receipts,) = planner.updating(planner.keyed_job(self._unit, self._consolidate), frame, weight, step).run(())
        return receipts

    def _changes(self, name: str, frame: DataFrame) -> DataFrame:
        """Return the rows of a stream with their weights."""
        columns = self._unit.leaves[name]
        named = [F.col(f"`{column}`") for column in columns.names]
        return frame.select(*named, F.col(WEIGHT) if columns.changes else F.lit(1).cast("long").alias(WEIGHT))

    def _read(self, number: int, runs: Sequence[RunRef]) -> DataFrame:
        """Return the rows that the tasks of a stage left."""
        files = tuple(str(self._jobs.inputs.path(run)) for run in runs)
        slots = self._jobs.spark.range(0, len(files), 1, len(files))
        schema = from_arrow_schema(self._stages[number].output)
        return slots.mapInArrow(ReadTask(self._unit.name, files), schema)

    def saved(self, runs: Iterable[RunRef]) -> None:
        """Take note that runs are durable: they may be merged freely."""
        saved = [run for run in runs if run.modulus]
        for table in self._tables:
            table.saved(saved)

    def holds(self) -> AbstractSet[str]:
        """Return the names of the runs of merges."""
        return frozenset().union(*(table.holds() for table in self._tables))

    def forget(self, live: Collection[str]) -> None:
        """Forget merges in the place of runs that no state has any more."""
        for table in self._tables:
            table.forget(live)

    def close(self) -> None:
        """End merges."""
        for table in self._tables:
            table.close()


def _input_schema(rows: pa.Schema) -> StructType:
    """Return the columns that a stage takes of an input, as Spark sees them."""
    more = (WEIGHT, *IDENTITY, HASH)
    return StructType([*from_arrow_schema(rows).fields, *(StructField(name, LongType()) for name in more)])


def _parts(state: Any, count: int) -> list[list[RunRef]]:
    """Return the runs of each stage."""
    if state is None:
        return [[] for _ in range(count)]
    payload = payload_of(state)
    assert isinstance(payload, RunsPayload)
    assert payload.tables is not None
    runs = {run.name: run for run in payload.runs}
    return [[runs[name] for name in payload.tables[str(number)][0]] for number in range(count)]
