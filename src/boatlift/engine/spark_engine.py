"""The engine on Spark: one job a step."""

from __future__ import annotations

import threading
import time as clocks
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow import Committed, Json, Outcome, Plan, SinkContext, Staged
from boatlift.engine.aggregate_task import AggregateTask, MergeTask
from boatlift.engine.edges import EDGE, ReadTask
from boatlift.engine.environment import environment
from boatlift.engine.errors_of_jobs import explain
from boatlift.engine.program import WEIGHT, CompiledUnit, compile_program, hashed, row_hash
from boatlift.engine.stage_task import RECEIPT, ROW_HASH, Outlet, Receipt, StageTask
from boatlift.engine.staging import ArrowStager
from boatlift.engine.state_table import StateTable
from boatlift.errors import InvalidError
from boatlift.runtime.events import StepResult
from boatlift.runtime.instructions import Commit, Run
from boatlift.storage.records import Checkpoint, RunRef
from boatlift.storage.store import Store

__all__ = ["SparkEngine"]

ONE_TASK_BYTES = 4 << 20
"""A step with less input than this runs as one task: a shuffle would cost more than it saves."""

MERGE_HERE_ROWS = 100_000
"""Runs with fewer rows than this in all are merged on the driver: a job would cost more than the merge."""


@dataclass(slots=True)
class _Leftovers:
    """What a step left in scratch: staged rows, and rows kept for other units."""

    staged: list[str]
    edge: tuple[str, ...]


class SparkEngine:
    """Executes a dataflow's steps as Spark jobs.

    Args:
        spark: The session.
        plan: The dataflow, in units.
    """

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self._spark = spark
        self.plan = plan
        self._compiled = compile_program(spark, plan)
        self._tables: dict[str, StateTable] = {}
        self._leftovers: dict[tuple[str, int], _Leftovers] = {}
        self._group = f"boatlift-{plan.dataflow}-{id(self)}"
        self._grouped = threading.local()
        self._tasks = _power_of_two(spark.sparkContext.defaultParallelism)
        for name, compiled in self._compiled.units.items():
            if compiled.layout is not None:
                self._tables[name] = StateTable(self._merger(name, compiled))

    # -- identity -----------------------------------------------------------------------------------------------------

    def program(self) -> dict[str, Any]:
        """Tells names, schemas, keys, and the canonical hashes of all plans."""
        return self._compiled.identity

    def environment(self) -> dict[str, Any]:
        """Tells versions and settings that results depend on."""
        return dict(environment(self._spark))

    # -- beginning and end --------------------------------------------------------------------------------------------

    def start(self, store: Store, scratch: Path, store_id: str, token: int) -> None:
        """Learns where state is, where files that need not survive go, and as whom it writes to sinks."""
        self._store, self._scratch, self._store_id, self._token = store, scratch, store_id, token

    def open_sink(self, sink: str) -> Committed | None:
        """Takes a sink over."""
        compiled = self._compiled.units[self.plan.unit_of_sink(sink).name]
        context = SinkContext(
            self.plan.dataflow, sink, self._store_id, self._token, compiled.output, compiled.unit.changes_out
        )
        return self.plan.sinks[sink].sink.open(context)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Makes a unit's state what a checkpoint names; the tasks check each file when they first open it."""
        runs = []
        for run in checkpoint.runs:
            path = self._store.local_path(run.name)
            if path is None:
                raise InvalidError(
                    "BAD_OPTION", "runs are mapped into memory: use a store whose objects are local files"
                )
            runs.append((run, path))
        self._tables[checkpoint.processor].restore(runs, checkpoint.time)

    def cancel(self) -> None:
        """Makes running jobs end soon."""
        self._spark.sparkContext.cancelJobGroup(self._group)

    def close(self) -> None:
        """Lets go of sinks and background work."""
        for table in self._tables.values():
            table.close()
        for sink in self.plan.sinks.values():
            sink.sink.close()

    # -- sources ------------------------------------------------------------------------------------------------------

    def first_cursor(self, source: str) -> Json:
        """Gives a source's cursor before it took anything."""
        return self.plan.sources[source].source.start()

    def poll(self, source: str, cursor: Json) -> Json | None:
        """Closes a step at a source."""
        return self.plan.sources[source].source.next(cursor)

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        """Gives the cursor after a position."""
        return self.plan.sources[source].source.advance(cursor, position)

    def acknowledge(self, source: str, position: Json) -> None:
        """Tells a source that a position will never be read again."""
        self.plan.sources[source].source.acknowledge(position)

    # -- steps --------------------------------------------------------------------------------------------------------

    def run(self, order: Run) -> StepResult:
        """Executes a step as one Spark job."""
        began = clocks.perf_counter()
        compiled = self._compiled.units[order.unit]
        unit = compiled.unit
        source = self.plan.sources[unit.root].source if unit.root in self.plan.sources else None
        if source is not None and order.replay:
            source.verify(order.position)
        self._join_group()
        try:
            if source is not None:
                rows, weight = source.load(self._spark, order.position), source.weigh(order.position)
            else:
                rows, weight = self._read_edge(unit.root, order.time)
            frame = compiled.build(rows, order.clock, order.seed)
            receipts = self._execute(compiled, frame, order.time, 1 if weight <= ONE_TASK_BYTES else self._tasks)
        except Exception as error:
            raise explain(error, order.unit, order.time, (source, order.position) if source else None) from error
        if source is not None:
            # The rows that Spark read are those of the position only if the files are the same after the job.
            source.verify(order.position)
        return self._result(compiled, order.time, receipts, clocks.perf_counter() - began)

    def _execute(self, compiled: CompiledUnit, frame: DataFrame, time: int, tasks: int) -> list[Receipt]:
        task: StageTask | AggregateTask
        if compiled.layout is None:
            frame = row_hash(frame, ROW_HASH)
            task = StageTask(self._outlets(compiled), str(self._scratch))
        else:
            aggregate = compiled.unit.aggregate
            assert aggregate is not None
            keys = aggregate.keys
            frame = frame.coalesce(1) if tasks == 1 else frame.repartition(tasks, *keys)
            frame = hashed(frame, keys)
            held = self._tables[compiled.unit.name].held()
            task = AggregateTask(
                compiled.layout,
                compiled.output,
                compiled.unit.name,
                time,
                self._token,
                tasks,
                tuple((run, str(path)) for run, path in held),
                self._outlets(compiled),
                str(self._scratch),
            )
        rows = frame.mapInArrow(task, RECEIPT).collect()
        receipts = [msgspec.msgpack.decode(bytes(row[0]), type=Receipt) for row in rows]
        return sorted(receipts, key=lambda receipt: receipt.partition)

    def _result(self, compiled: CompiledUnit, time: int, receipts: Sequence[Receipt], seconds: float) -> StepResult:
        name = compiled.unit.name
        if compiled.layout is not None:
            made = [r.run for r in receipts if r.run is not None]
            self._tables[name].add([(run, self._scratch / Path(run.name).name) for run in made])
        staged = {
            sink.name: tuple(Staged(*r.staged[sink.name]) for r in receipts if r.staged[sink.name][1])
            for sink in compiled.unit.sinks
        }
        edge = tuple(r.staged[EDGE][2] for r in receipts if EDGE in r.staged and r.staged[EDGE][1])
        places = [place for receipt in receipts for _, _, place in receipt.staged.values()]
        self._leftovers[name, time] = _Leftovers(places, edge)
        return StepResult(
            sum(r.rows for r in receipts),
            f"{sum(r.digest for r in receipts) % 2**64:016x}",
            sum(r.rows_in for r in receipts),
            staged,
            seconds,
        )

    def _outlets(self, compiled: CompiledUnit) -> tuple[Outlet, ...]:
        unit = compiled.unit
        held_now = unit.aggregate is not None
        outlets = [Outlet(s.name, s.sink.stager(), held_now and s.sink.key is not None) for s in unit.sinks]
        if unit.materialised:
            outlets.append(Outlet(EDGE, ArrowStager(compiled.output), False))
        return tuple(outlets)

    def _read_edge(self, unit: str, time: int) -> tuple[DataFrame, int]:
        """Reads what another unit kept of a time; gives its bytes too."""
        compiled = self._compiled.units[unit]
        files = self._leftovers[unit, time].edge
        slots = self._spark.range(0, max(1, len(files)), 1, max(1, len(files)))
        weight_field = [StructField(WEIGHT, LongType())] if compiled.unit.changes_out else []
        schema = StructType([*compiled.schema.fields, *weight_field])
        weight = sum(Path(file).stat().st_size for file in files)
        return slots.mapInArrow(ReadTask(files), schema), weight

    def commit(self, order: Commit) -> Outcome:
        """Hands a step to its sink."""
        return self.plan.sinks[order.sink].sink.commit(order.time, order.rows, order.digest, order.staged)

    def free(self, unit: str, time: int) -> None:
        """Drops a step's files in scratch."""
        for place in self._leftovers.pop((unit, time)).staged:
            if place:
                Path(place).unlink(missing_ok=True)

    # -- state --------------------------------------------------------------------------------------------------------

    def capture(self, unit: str) -> tuple[tuple[RunRef, Path | None], ...]:
        """Names the runs that make up a unit's state now."""
        return self._tables[unit].capture()

    def saved(self, unit: str, runs: tuple[RunRef, ...]) -> None:
        """Learns that these runs are durable."""
        self._tables[unit].saved(runs)

    def _merger(
        self, name: str, compiled: CompiledUnit
    ) -> Callable[[Sequence[RunRef], Sequence[Path]], list[tuple[RunRef, Path]]]:
        def merge(runs: Sequence[RunRef], paths: Sequence[Path]) -> list[tuple[RunRef, Path]]:
            tasks = 1 if sum(run.rows for run in runs) <= MERGE_HERE_ROWS else self._tasks
            assert compiled.layout is not None
            held = tuple((run, str(path)) for run, path in zip(runs, paths, strict=True))
            task = MergeTask(compiled.layout, name, self._token, tasks, held, str(self._scratch))
            if tasks == 1:
                made = [task.run(0)]
            else:
                self._join_group()
                rows = self._spark.range(0, tasks, 1, tasks).mapInArrow(task, RECEIPT).collect()
                made = [msgspec.msgpack.decode(bytes(row[0]), type=RunRef | None) for row in rows]
            return [(run, self._scratch / Path(run.name).name) for run in made if run is not None]

        return merge

    def _join_group(self) -> None:
        """Puts this thread's jobs into our group, so that they can be cancelled; once a thread, since it is slow."""
        if not getattr(self._grouped, "joined", False):
            self._spark.sparkContext.setJobGroup(self._group, f"dataflow {self.plan.dataflow}", interruptOnCancel=True)
            self._grouped.joined = True


def _power_of_two(number: int) -> int:
    """The largest power of two that is not larger: partition counts divide the 4096 key groups."""
    return 1 << (max(1, min(number, 4096)).bit_length() - 1)
