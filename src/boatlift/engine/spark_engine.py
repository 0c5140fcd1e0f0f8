"""The engine on Spark: one job a step, or one for several small steps that wait."""

from __future__ import annotations

import logging
import threading
import time as clocks
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow import Committed, Json, LoadsTogether, Outcome, Plan, SinkContext, Source, Staged
from boatlift.dataflow.columns import WEIGHT
from boatlift.engine.aggregate_task import MergeTask
from boatlift.engine.edges import EDGE, ReadTask
from boatlift.engine.environment import RunningSettings, environment
from boatlift.engine.errors_of_jobs import explain
from boatlift.engine.program import CompiledUnit, compile_program
from boatlift.engine.stage_task import Receipt
from boatlift.engine.state_table import StateTable
from boatlift.engine.step_plans import RECEIPTS, StepPlan, StepPlanner, power_of_two
from boatlift.errors import BoatliftError, InvalidError, UnavailableError, UserCodeError
from boatlift.runtime.events import StepResult
from boatlift.runtime.instructions import Commit, Run, Step
from boatlift.storage.records import Checkpoint, RunRef
from boatlift.storage.store import Store

__all__ = ["SparkEngine"]

logger = logging.getLogger(__name__)

APART_RUNS = 8
"""So many runs of a unit take its steps one by one after some had failed together: the cause may pass."""

MERGE_HERE_ROWS = 100_000
"""Runs with fewer rows than this in all are merged on the driver: a job would cost more than the merge."""


@dataclass(frozen=True, slots=True)
class _Made:
    """What a job made: the receipts of its tasks, for each step, and how long it took."""

    receipts: Sequence[Sequence[Receipt]]
    seconds: float


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
        self._ahead: dict[tuple[str, int, int], Future[StepPlan]] = {}
        self._cancelled = False
        self._hastened = False
        self._apart: Counter[str] = Counter()
        self._background = ThreadPoolExecutor(1, thread_name_prefix="plans")
        for name, compiled in self._compiled.units.items():
            if compiled.layout is not None:
                self._tables[name] = StateTable(self._merger(name, compiled))

    # -- identity -----------------------------------------------------------------------------------------------------

    def program(self) -> dict[str, Any]:
        """Tells names, schemas, keys, and the canonical hashes of all plans."""
        return self._compiled.identity

    def environment(self) -> dict[str, Any]:
        """Tells versions and settings that results depend on."""
        used = {
            f"library {name}": version
            for compiled in self._compiled.units.values()
            for name, version in compiled.libraries.items()
        }
        return environment(self._spark) | used

    # -- beginning and end --------------------------------------------------------------------------------------------

    def start(self, store: Store, scratch: Path, store_id: str, token: int) -> None:
        """Learns where state is, where files that need not survive go, and as whom it writes to sinks."""
        self._store, self._scratch, self._store_id, self._token = store, scratch, store_id, token
        self._planner = StepPlanner(scratch, token, self._spark.sparkContext.defaultParallelism)
        self._settings = RunningSettings(self._spark)

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
        """Makes running jobs end soon, and lets none begin."""
        self._cancelled = True
        self._spark.sparkContext.cancelJobGroup(self._group)

    def hasten(self) -> None:
        """Lets a run end before its next step, where its steps are jobs of their own."""
        self._hastened = True

    def close(self) -> None:
        """Lets go of sinks, background work and static tables."""
        self._background.shutdown(wait=True, cancel_futures=True)
        for table in self._tables.values():
            table.close()
        for sink in self.plan.sinks.values():
            sink.sink.close()
        self._compiled.close()

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

    def together(self, unit: str, positions: Sequence[Json]) -> int:
        """Tells how many of these steps are better run as one job: as many as are small enough for one task in all."""
        compiled = self._compiled.units[unit]
        source = self._source_of(compiled)
        if compiled.layout is None or compiled.apart or self._apart[unit] or not isinstance(source, LoadsTogether):
            return 1
        weights = accumulate(source.weigh(position) for position in positions)
        return max(1, sum(map(self._planner.fits_one_task, weights)))

    def prepare(self, order: Run) -> None:
        """Begins to make a plan in the background."""
        self._ahead[order.unit, order.time, order.last] = self._background.submit(self._plan, order)

    def run(self, order: Run) -> tuple[StepResult, ...]:
        """Executes steps as one Spark job, or else, so that each fails for itself, as one each."""
        self._forget_prepared(order)
        if len(order.steps) == 1 or self._apart[order.unit]:
            return self._run_apart(order)
        try:
            made = self._job(order)
        except Exception as error:
            if self._cancelled:
                raise
            # Nothing was kept, and of which step it comes cannot be told: the steps will, each alone.
            logger.warning("steps %d to %d of %s go one by one: %s", order.time, order.last, order.unit, error)
            self._apart[order.unit] = APART_RUNS
            return self._run_apart(order)
        return self._results(order, made)

    def _forget_prepared(self, order: Run) -> None:
        """Drops what was got ready for runs that never came, since one before them broke off."""
        mine = (order.unit, order.time, order.last)
        for key in [key for key in self._ahead if key[0] == order.unit and key[1] <= order.last and key != mine]:
            prepared = self._ahead.pop(key)
            if not prepared.cancel():
                prepared.add_done_callback(_discard)

    def _run_apart(self, order: Run) -> tuple[StepResult, ...]:
        results: list[StepResult] = []
        for step in order.steps:
            single = Run(order.unit, (step,))
            if results and self._hastened:
                break
            try:
                made = self._job_alone(single, step)
            except BoatliftError:
                if not results:
                    raise
                break  # what came before it stands; it will be ordered again, as the first
            results += self._results(single, made)
        self._apart[order.unit] = max(0, self._apart[order.unit] - 1)
        return tuple(results)

    def _job_alone(self, single: Run, step: Step) -> _Made:
        unit = single.unit
        compiled = self._compiled.units[unit]
        source = self._source_of(compiled)
        try:
            return self._job(single)
        except UserCodeError as error:
            raise UserCodeError("USER_CODE", f"at step {step.time} of {unit}, {error.message}") from error.__cause__
        except BoatliftError:
            raise
        except Exception as error:
            inputs = (source, step.position) if source else None
            raise explain(error, unit, step.time, inputs, compiled.functions) from error

    def _job(self, order: Run) -> _Made:
        """Runs the job; nothing of it is kept yet, so that it may be run again."""
        if self._cancelled:
            raise UnavailableError(
                "STEP_FAILED", f"step {order.time} of {order.unit} was not begun: the run is cancelled"
            )
        began = clocks.perf_counter()
        compiled = self._compiled.units[order.unit]
        source = self._source_of(compiled)
        self._settings.check()
        if source is not None:
            for step in order.steps:
                if step.replay:
                    source.verify(step.position)
        self._join_group()
        ahead = self._ahead.pop((order.unit, order.time, order.last), None)
        plan = ahead.result() if ahead is not None else self._plan(order)
        table = self._tables.get(order.unit)
        receipts = plan.run([(run, str(path)) for run, path in table.held()] if table is not None else [])
        if source is not None:
            # The rows that Spark read are those of the positions only if the files are the same after the job.
            for step in order.steps:
                source.verify(step.position)
        return _Made(receipts, clocks.perf_counter() - began)

    def _plan(self, order: Run) -> StepPlan:
        self._join_group()
        compiled = self._compiled.units[order.unit]
        source = self._source_of(compiled)
        if len(order.steps) > 1:
            assert isinstance(source, LoadsTogether)
            rows = source.load_together(self._spark, [step.position for step in order.steps])
            return self._planner.together(compiled, rows, range(order.time, order.last + 1))
        (step,) = order.steps
        if source is not None:
            rows, weight = source.load(self._spark, step.position), source.weigh(step.position)
        else:
            rows, weight = self._read_edge(compiled.unit.root, step.time)
        return self._planner.plan(compiled, rows, weight, step.time, step.clock, step.seed)

    def _source_of(self, compiled: CompiledUnit) -> Source | None:
        """Gives the source whose rows a unit takes at first hand."""
        root = compiled.unit.root
        return self.plan.sources[root].source if root in self.plan.sources else None

    def _results(self, order: Run, made: _Made) -> tuple[StepResult, ...]:
        compiled = self._compiled.units[order.unit]
        seconds = made.seconds / len(order.steps)
        return tuple(
            self._result(compiled, step.time, receipts, seconds)
            for step, receipts in zip(order.steps, made.receipts, strict=True)
        )

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

    def _read_edge(self, unit: str, time: int) -> tuple[DataFrame, int]:
        """Reads what another unit kept of a time; gives its bytes too."""
        compiled = self._compiled.units[unit]
        files = self._leftovers[unit, time].edge
        slots = self._spark.range(0, max(1, len(files)), 1, max(1, len(files)))
        weight_field = [StructField(WEIGHT, LongType())] if compiled.unit.changes_out else []
        schema = StructType([*compiled.schema.fields, *weight_field])
        weight = sum(Path(file).stat().st_size for file in files)
        return slots.mapInArrow(ReadTask(unit, files), schema), weight

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
            here = sum(run.rows for run in runs) <= MERGE_HERE_ROWS
            tasks = 1 if here else power_of_two(self._spark.sparkContext.defaultParallelism)
            assert compiled.layout is not None
            held = tuple((run, str(path)) for run, path in zip(runs, paths, strict=True))
            task = MergeTask(compiled.layout, name, self._token, tasks, held, str(self._scratch))
            if tasks == 1:
                made = [task.run(0)]
            else:
                self._join_group()
                try:
                    rows = self._spark.range(0, tasks, 1, tasks).mapInArrow(task, RECEIPTS).collect()
                except Exception as error:
                    raise explain(error, name, max(run.last for run in runs)) from error
                made = [msgspec.msgpack.decode(bytes(row[0]), type=RunRef | None) for row in rows]
            return [(run, self._scratch / Path(run.name).name) for run in made if run is not None]

        return merge

    def _join_group(self) -> None:
        """Puts this thread's jobs into our group, so that they can be cancelled; once a thread, since it is slow."""
        if not getattr(self._grouped, "joined", False):
            self._spark.sparkContext.setJobGroup(self._group, f"dataflow {self.plan.dataflow}", interruptOnCancel=True)
            self._grouped.joined = True


def _discard(prepared: Future[StepPlan]) -> None:
    if not prepared.cancelled() and prepared.exception() is None:
        prepared.result().discard()
