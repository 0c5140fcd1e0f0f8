"""The engine on Spark: one job a step, or one for several small steps that wait."""

from __future__ import annotations

import logging
import time as clocks
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pyspark.sql import SparkSession

from boatlift.dataflow import (
    Committed,
    Outcome,
    Plan,
    SinkContext,
    Staged,
    Unit,
)
from boatlift.errors import BoatliftError, UnavailableError, UserCodeError
from boatlift.operators.aggregate.kernel import AggregateKernel
from boatlift.operators.lookup.spark import Lookups
from boatlift.operators.recompute.node import Recompute
from boatlift.runtime.engine import Beginning, StepResult
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import Execute, Message, Prepare, StepInput
from boatlift.spark.jobs.batches import Batches
from boatlift.spark.jobs.diagnosis import explain, first_line, remedy, tries_of_a_task
from boatlift.spark.jobs.edges import EDGE
from boatlift.spark.jobs.input_logs import InputLogs
from boatlift.spark.jobs.inputs import Inputs, content_of
from boatlift.spark.jobs.job_groups import JobGroup
from boatlift.spark.jobs.plan_cache import PlanCache
from boatlift.spark.jobs.planner import RECEIPTS, StepPlan, StepPlanner, power_of_two
from boatlift.spark.jobs.readings import Readings
from boatlift.spark.jobs.row_probes import Markers
from boatlift.spark.jobs.scratch_files import ScratchFiles
from boatlift.spark.jobs.source_calls import SourceCalls
from boatlift.spark.keyed.table import StateTable
from boatlift.spark.program import CompiledUnit, compile_program
from boatlift.spark.session.environment import RunningSettings, environment
from boatlift.spark.session.jvm import death_of_jvm
from boatlift.spark.tasks.keyed_task import MergeTask
from boatlift.spark.tasks.stage import TaskReceipt
from boatlift.storage.records.payloads import contents_with, runs_of
from boatlift.storage.records.records import RunRef

__all__ = ["SparkEngine"]

logger = logging.getLogger(__name__)

Made = TypeVar("Made")

NOTHING = f"{0:016x}"
"""The digest of no rows."""

APART_RUNS = 8
"""So many runs of a unit take its steps one by one after some had failed together: the cause may pass."""

MERGE_HERE_ROWS = 100_000
"""Runs with fewer rows than this in all are merged on the driver: a job would cost more than the merge."""


@dataclass(frozen=True, slots=True)
class _Made:
    """What a job made: the receipts of its tasks, for each step; the state it began with, and how long it took."""

    receipts: Sequence[Sequence[TaskReceipt]]
    state: Sequence[RunRef]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A plan that is being made before its turn comes: whose, and for what."""

    unit: str
    takes: tuple[StepInput, ...]
    plan: Future[StepPlan]


class SparkEngine(SourceCalls):
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
        self._jobs = JobGroup(spark, plan.dataflow)
        self._ahead: list[_Ahead] = []
        self.cancelled = False
        self._hastened = False
        self._apart: Counter[str] = Counter()
        self._called_off: Counter[str] = Counter()
        self._known: dict[str, tuple[StepInput, BoatliftError]] = {}  # steps of which it is known that they fail
        self._skipped: AbstractSet[tuple[str, int]] = frozenset()
        self._passed_over: AbstractSet[tuple[str, str, Any]] = frozenset()
        self._input_logs = InputLogs(plan)
        context = spark.sparkContext
        self._tries = tries_of_a_task(str(context.master), context.getConf().get("spark.task.maxFailures"))
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

    def start(self, beginning: Beginning) -> None:
        """Learns where everything is; from now on sources take what is pushed to them."""
        store, scratch, token = beginning.store, beginning.scratch, beginning.token
        self._scratch, self._store_id, self._token = scratch, beginning.store_id, token
        self._files = ScratchFiles(scratch)
        self._planner = StepPlanner(scratch, token, self._spark.sparkContext.defaultParallelism)
        self._settings = RunningSettings(self._spark)
        units = self._compiled.units
        self._readings = Readings(scratch, beginning.read)
        self._inputs = Inputs(
            self.plan, units, store, scratch, self._planner.parallelism, beginning.recorded, self._readings
        )
        self._standing = PlanCache(self._spark, units, self._inputs, self._planner)
        self._lookups = Lookups(self._spark, self.plan, units, self._inputs, self._planner)
        self._markers = Markers(self._spark, units, self._inputs)
        self._batches = Batches(self._spark, units, self._inputs, self._planner)
        self._input_logs.open(beginning)

    def skip(self, steps: AbstractSet[tuple[str, int]], messages: AbstractSet[tuple[str, str, Any]]) -> None:
        """Learns of steps that give nothing, and messages that are taken as if nothing had been sent."""
        self._skipped, self._passed_over = steps, messages

    def open_sink(self, sink: str) -> Committed | None:
        """Takes a sink over."""
        compiled = self._compiled.units[self.plan.unit_of_sink(sink).name]
        context = SinkContext(
            self.plan.dataflow, sink, self._store_id, self._token, compiled.output, compiled.unit.changes_out
        )
        return self.plan.sinks[sink].sink.open(context)

    def call_off(self, unit: str) -> None:
        """Makes a unit's job end soon; what it was to answer nobody hears."""
        self._called_off[unit] += 1
        self._jobs.end(unit)

    def cancel(self) -> None:
        """Makes running jobs end soon, and lets none begin."""
        self.cancelled = True
        self._jobs.end_all()

    def hasten(self) -> None:
        """Lets a run end before its next step, where its steps are jobs of their own."""
        self._hastened = True

    def close(self) -> None:
        """Lets go of sources, sinks, background work and static tables."""
        self._input_logs.close()
        self._background.shutdown(wait=True, cancel_futures=True)
        for table in self._tables.values():
            table.close()
        for sink in self.plan.sinks.values():
            sink.sink.close()
        self._compiled.close()

    # -- steps --------------------------------------------------------------------------------------------------------

    def together(self, unit: str, takes: Sequence[StepInput]) -> int:
        """Tells how many of these steps are better run as one job: as many as are small enough for one task in all."""
        compiled = self._compiled.units[unit]
        if compiled.lookup is not None:  # what comes for tables costs nothing
            for_tables = takewhile(lambda take: self._lookups.table_of(unit, take) is not None, takes)
            return max(1, sum(1 for _ in for_tables))
        source = self._inputs.source_of(unit)
        if compiled.layout is None or compiled.apart or self._apart[unit] or source is None:
            return 1
        if source.capabilities.reads_many_steps is None:
            return 1
        weights = accumulate(source.size_bytes(content_of(take)["position"]) for take in takes)
        return max(1, sum(map(self._planner.fits_one_task, weights)))

    def prepare(self, order: Prepare) -> None:
        """Begins to make a plan in the background, if the rows come from a source."""
        unit = self.plan.units[order.processor]
        if (
            all(read in self.plan.sources for read in unit.reads)
            and self._compiled.units[unit.name].unit.end is self._compiled.units[unit.name].unit.aggregate
        ):
            made = self._background.submit(self._plan, order.processor, order.takes)
            self._ahead.append(_Ahead(order.processor, order.takes, made))

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        """Executes steps as one Spark job, or else, so that each fails for itself, as one each."""
        unit = order.processor
        known = self._known.pop(unit, None)
        if known is not None and known[0] == order.takes[0]:
            raise known[1]
        if self._passed_over:
            order = replace(order, takes=tuple(self._without_skipped(unit, take) for take in order.takes))
        if len(order.takes) == 1 or self._apart[unit] or not self._as_one_job(order):
            return self._run_apart(order)
        try:
            made = self._job(unit, order.takes, list(runs_of(order.state)))
        except Exception as error:
            if self.cancelled or death_of_jvm(error) is not None:
                raise
            # Nothing was kept, and of which step it comes cannot be told: the steps will, each alone.
            logger.warning(
                "steps %s to %s of %s go one by one: %s", order.time, order.takes[-1].time, unit, first_line(error)
            )
            self._apart[unit] = APART_RUNS
            return self._run_apart(order)
        return self._results(unit, order.takes, made)

    def _without_skipped(self, unit: str, take: StepInput) -> StepInput:
        """Empties the messages that are skipped; of many messages it leaves them out."""
        left = tuple(m for m in take.inputs if (unit, m.edge, m.time) not in self._passed_over)
        if len(left) == len(take.inputs):
            return take
        return replace(take, inputs=left or tuple(replace(message, payload=None) for message in take.inputs))

    def _as_one_job(self, order: Execute) -> bool:
        steps = {(order.processor, take.number) for take in order.takes}
        return self._compiled.units[order.processor].lookup is None and not steps & self._skipped

    def _run_apart(self, order: Execute) -> tuple[StepResult, ...]:
        results = self._one_by_one(order, partial(self._execute, order.processor))
        self._apart[order.processor] = max(0, self._apart[order.processor] - 1)
        return results

    def _execute(self, unit: str, take: StepInput, state: Any) -> StepResult:
        """Executes one step by itself."""
        if all(message.payload is None for message in take.inputs):  # of a sequence, one that sent nothing
            return StepResult(0, NOTHING, {}, state)
        if (unit, take.number) in self._skipped:
            return self._result(unit, take, (), list(runs_of(state)), 0.0, state)
        if self._compiled.units[unit].lookup is not None:
            return self._take_one(unit, take, state)
        if isinstance(self.plan.units[unit].keeper, Recompute):
            before = self._called_off[unit]
            with self._batches.one_at_a_time:
                if self._called_off[unit] != before:
                    raise UnavailableError(
                        "STEP_FAILED", f"step {take.number} of {unit} was called off before its turn"
                    )
                return self._stateless(unit, take, partial(self._batches.recompute, unit, take))
        return self._alone(unit, take, state)

    def _one_by_one(self, order: Execute, execute: Callable[[StepInput, Any], StepResult]) -> tuple[StepResult, ...]:
        """Executes steps, each from the state that the one before it left."""
        results: list[StepResult] = []
        state = order.state
        for take in order.takes:
            if results and self._hastened:
                break
            try:
                results.append(execute(take, state))
            except BoatliftError as error:
                if not results:
                    raise
                if (
                    isinstance(error, UserCodeError) and error.lasting
                ):  # a bad row is read again, which costs no call of the user's
                    self._known[order.processor] = take, error
                break  # what came before it stands; it will be ordered again, as the first
            state = results[-1].state
        return tuple(results)

    def _take_one(self, unit: str, take: StepInput, state: Any) -> StepResult:
        """Takes what came for a table into the state, or looks up for rows."""
        table = self._lookups.table_of(unit, take)
        if table is None:
            return self._stateless(unit, take, partial(self._lookups.look_up, unit, take, state), state)
        message = content_of(take)
        made = self._lookups.with_message(unit, table, message, state)
        self._files.made({run.name for run in runs_of(made)} - {run.name for run in runs_of(state)})
        return StepResult(0, message["digest"], {}, made, message["rows"], 0.0)

    def mark(self, batch: str, message: Message) -> Mapping[str, Any]:
        """Asks the rows of a step about the end of an epoch."""
        take = StepInput(message.time, (message,))

        def marked() -> Mapping[str, Any]:
            self._begin_job(f"{batch}:marks", take)  # not called off with the batch
            return self._markers.mark(batch, take)

        return self._explained(batch, take, marked)

    def _readers(self, name: str) -> list[Unit]:
        return [unit for unit in self.plan.units.values() if name in unit.reads]

    def _stateless(
        self, unit: str, take: StepInput, job: Callable[[], Sequence[TaskReceipt]], state: Any = None
    ) -> StepResult:
        """Executes a step that leaves the state as it is."""
        began = clocks.perf_counter()

        def begun() -> Sequence[TaskReceipt]:
            self._begin_job(unit, take)
            return job()

        receipts = self._explained(unit, take, begun)
        return self._result(unit, take, receipts, (), clocks.perf_counter() - began, state)

    def _alone(self, unit: str, take: StepInput, state: Any) -> StepResult:
        """Executes a step as a job of its own."""
        made = self._explained(unit, take, partial(self._job, unit, (take,), list(runs_of(state))))
        return self._results(unit, (take,), made)[0]

    def _explained(self, unit: str, take: StepInput, job: Callable[[], Made]) -> Made:
        """Runs a job; what fails is told as what it means."""
        try:
            return job()
        except UserCodeError as error:
            raise UserCodeError("USER_CODE", f"at step {take.number} of {unit}, {error.message}") from error.__cause__
        except BoatliftError:
            raise
        except Exception as error:
            inputs, functions = self._inputs.positions(take), self._compiled.units[unit].functions
            # Spark has tried the task several times already: code that repeats itself raises it the next time too.
            lasting = self._tries > 1 and self.plan.units[unit].deterministic
            do = remedy(self.plan, unit, take.number)
            raise explain(error, unit, take.number, inputs, functions, do, lasting=lasting) from error

    def _begin_job(self, unit: str, take: StepInput) -> None:
        if self.cancelled:
            raise UnavailableError("STEP_FAILED", f"step {take.number} of {unit} was not begun: the run is cancelled")
        self._settings.check()
        self._jobs.join(unit)

    def _job(self, unit: str, takes: Sequence[StepInput], state: Sequence[RunRef]) -> _Made:
        """Runs the job; nothing of it is kept yet, so that it may be run again."""
        began = clocks.perf_counter()
        self._begin_job(unit, takes[0])
        self._inputs.verify_recorded(takes)
        plan = self._prepared(unit, takes) or self._plan(unit, takes)
        table = self._tables.get(unit)
        held = table.resolve(state) if table is not None else []
        try:
            receipts = plan.run([(run, str(self.path(run))) for run in held])
        except BaseException:
            self._standing.forget(unit)
            raise
        self._inputs.verify(unit, takes)
        return _Made(receipts, held, clocks.perf_counter() - began)

    def _prepared(self, unit: str, takes: Sequence[StepInput]) -> StepPlan | None:
        """Return the plan that was prepared for exactly these steps, and drop plans of runs that never came."""
        found: StepPlan | None = None
        for ahead in [
            ahead for ahead in self._ahead if ahead.unit == unit and ahead.takes[0].number <= takes[-1].number
        ]:
            self._ahead.remove(ahead)
            if ahead.takes == tuple(takes):  # what comes at a time may have become something else
                found = ahead.plan.result()
            elif not ahead.plan.cancel():
                wait([ahead.plan])  # what is read of a step is noted where the plan says that was made last
                _discard(ahead.plan)
        return found

    def _plan(self, unit: str, takes: Sequence[StepInput]) -> StepPlan:
        self._jobs.join(unit)
        compiled = self._compiled.units[unit]
        if len(takes) > 1:
            rows = self._inputs.rows_together(self._spark, unit, takes)
            return self._planner.together(compiled, rows, range(takes[0].time, takes[-1].time + 1))
        (take,) = takes
        if (standing := self._standing.of(unit, take)) is not None:
            return standing
        given = take.inputs[-1].payload
        rows, weight = self._inputs.rows(self._spark, unit, take)
        return self._planner.plan(compiled, rows, weight, take.number, given["clock"], given["seed"])

    def _results(self, unit: str, takes: Sequence[StepInput], made: _Made) -> tuple[StepResult, ...]:
        seconds = made.seconds / len(takes)
        state = made.state
        results = []
        for take, receipts in zip(takes, made.receipts, strict=True):
            state = [*state, *(receipt.run for receipt in receipts if receipt.run is not None)]
            results.append(self._result(unit, take, receipts, state, seconds))
        if unit in self._tables:
            self._tables[unit].grown(state)
        return tuple(results)

    def _result(
        self,
        name: str,
        take: StepInput,
        receipts: Sequence[TaskReceipt],
        runs: Sequence[RunRef],
        seconds: float,
        state: Any = None,
    ) -> StepResult:
        digest = f"{sum(r.digest for r in receipts) % 2**64:016x}"
        given = take.inputs[-1].payload

        def content(outlet: str) -> dict[str, Any]:
            runs = [run for receipt in receipts if (run := receipt.staged[outlet]) is not None]
            rows = sum(run.rows for run in runs)
            return contents_with(runs, rows=rows, digest=digest, clock=given["clock"], seed=given["seed"])

        unit = self.plan.units[name]
        sent = {edge_name(name, sink.name): content(sink.name) for sink in unit.sinks}
        if unit.materialised:
            kept = content(EDGE)
            sent |= {edge_name(name, reader.name): kept for reader in self._readers(name)}
        self._files.made({run.name for run in runs} | {run.name for each in sent.values() for run in runs_of(each)})
        return StepResult(
            sum(r.rows for r in receipts),
            digest,
            sent,
            contents_with(runs) if name in self._tables else state,
            sum(r.rows_in for r in receipts),
            seconds,
        )

    def commit(self, sink: str, time: int, content: Any) -> Outcome:
        """Hands a step to its sink."""
        staged = [Staged(run.residue, run.rows, str(self.path(run))) for run in runs_of(content)]
        return self.plan.sinks[sink].sink.commit(time, content["rows"], content["digest"], staged)

    # -- runs ---------------------------------------------------------------------------------------------------------

    def path(self, run: RunRef) -> Path:
        """Tells where a run can be read."""
        return self._inputs.path(run)

    def kept(self, unit: str, runs: Iterable[RunRef]) -> None:
        """Learns that these runs of a unit are durable."""
        if unit in self._tables:
            self._tables[unit].saved([run for run in runs if run.modulus])

    def holds(self) -> AbstractSet[str]:
        """Names the runs of merges, and of results that were not taken yet."""
        return self._merging() | self._files.fresh

    def _merging(self) -> AbstractSet[str]:
        return {name for table in self._tables.values() for name in table.holds()}

    def delivered(self, results: Iterable[StepResult]) -> None:
        """Learns that results were taken."""
        self._files.delivered(run.name for result in results for run in result.runs())

    def discard(self, live: Collection[str]) -> None:
        """Drops the files of all runs that are not among these."""
        for table in self._tables.values():
            table.forget(live)
        self._files.discard({*live, *self._merging()})

    def _merger(self, name: str, compiled: CompiledUnit) -> Callable[[Sequence[RunRef]], list[RunRef]]:
        def merge(runs: Sequence[RunRef]) -> list[RunRef]:
            here = sum(run.rows for run in runs) <= MERGE_HERE_ROWS
            tasks = 1 if here else power_of_two(self._spark.sparkContext.defaultParallelism)
            assert compiled.layout is not None
            held = tuple((run, str(self.path(run))) for run in runs)
            task = MergeTask(AggregateKernel(compiled.layout, name), self._token, tasks, held, str(self._scratch))
            if tasks == 1:
                made = [task.run(0)]
            else:
                self._jobs.join(name)
                try:
                    rows = self._spark.range(0, tasks, 1, tasks).mapInArrow(task, RECEIPTS).collect()
                except Exception as error:
                    raise explain(error, name, max(run.last for run in runs)) from error
                made = [msgspec.msgpack.decode(bytes(row[0]), type=RunRef | None) for row in rows]
            return [run for run in made if run is not None]  # a state that takes one up makes it one of our files

        return merge


def _discard(prepared: Future[StepPlan]) -> None:
    if prepared.exception() is None:
        prepared.result().discard()
