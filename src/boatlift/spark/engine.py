"""The engine on Spark: one job for each step, or for several small steps that wait."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from boatlift.dataflow import Committed, Json, Outcome, Plan, Reading, SinkContext, Staged
from boatlift.dataflow.contracts import commit_together
from boatlift.dataflow.policies import holds_in_memory
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError, UserCodeError
from boatlift.processes.environment import environment
from boatlift.processes.jvm import check_jvm, death_of_jvm
from boatlift.processes.memory import SparkMemory
from boatlift.processes.worker_pools import pass_credentials
from boatlift.runtime.engine import Activity, Beginning, FromPast, Past, Skips, StepResult
from boatlift.runtime.machine.events import RowProbe
from boatlift.runtime.machine.instructions import Execute, Message, Prepare, StepInput
from boatlift.spark.compile.keyed import CompiledKeyed
from boatlift.spark.compile.operator import Compiled
from boatlift.spark.compile.program import CompiledProgram, Registry, compile_program
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.batch_steps import BatchSteps
from boatlift.spark.jobs.diagnosis import first_line
from boatlift.spark.jobs.input_logs import InputLogs
from boatlift.spark.jobs.inputs import Inputs, Readings
from boatlift.spark.jobs.job_group import JobGroup
from boatlift.spark.jobs.jobs import Jobs, ScratchFiles
from boatlift.spark.jobs.keyed_steps import KeyedSteps
from boatlift.spark.jobs.long_running import LongRunningJob, has_workers, slots_left
from boatlift.spark.jobs.planner import Background, StepPlanner
from boatlift.spark.jobs.row_questions import row_probe
from boatlift.spark.jobs.row_steps import RowSteps
from boatlift.spark.jobs.set_aside import SetAside
from boatlift.spark.jobs.states import kernel_with_rows
from boatlift.spark.jobs.steps import HasSteps, Steps
from boatlift.spark.jobs.watermarks import input_watermarks
from boatlift.storage.records.payloads import RunsPayload, payload_of
from boatlift.storage.records.records import RunRef
from boatlift.tasks.state_memory import StateMemory, give_back_memory

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

NOTHING = f"{0:016x}"
"""The digest of no rows."""

APART_RUNS = 8
"""After a joint job failed, this many runs of the unit execute their steps one by one."""


class SparkEngine:
    """Executes a dataflow's steps as Spark jobs; implements `boatlift.runtime.engine.Engine`.

    Args:
        long_running: Whether small steps in quick succession may share a long-running job, which holds a slot.
        program: The dataflow if it is compiled already.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        registry: Registry,
        *,
        long_running: bool = True,
        program: CompiledProgram | None = None,
    ) -> None:
        self._spark = spark
        self._registry = registry
        self._program = program or compile_program(spark, plan, registry)
        self.plan = plan = self._program.plan
        self._group = JobGroup(spark, plan.dataflow)
        self._background = Background()
        self._input_logs = InputLogs(plan)
        self._steps: dict[str, Steps] = {}
        self._long_running = long_running
        self._job: LongRunningJob | None = None
        self._memory: StateMemory | None = None
        self._spark_memory, self._page = SparkMemory(), spark.sparkContext.uiWebUrl or ""
        self._hastened = False
        self._announcements: list[Callable[[], None]] = []
        self._apart: Counter[str] = Counter()
        self._cancels: Counter[str] = Counter()
        self._known: dict[str, tuple[StepInput, BoatliftError]] = {}  # steps that are known to fail
        self._skips = Skips()

    @property
    def cancelled(self) -> bool:
        return self._group.ended

    # -- identity -----------------------------------------------------------------------------------------------------

    def program(self) -> dict[str, Any]:
        return self._program.identity

    def not_at_once(self, unit: str) -> str:
        operators = self._program.units[unit].unit.operators
        of_steps = (f"{each.name} {each.of_steps}" for each in operators if each.of_steps)
        return self.not_again(unit) or next(of_steps, "")

    def not_again(self, unit: str) -> str:
        return self._program.units[unit].not_again

    def by_place(self, unit: str) -> str:
        return self._program.units[unit].by_place

    def gives_rows(self, unit: str, program: Mapping[str, Any]) -> bool:
        compiled, entry = self._program.units[unit], f"processor {unit}"
        if kernel_with_rows(compiled) is None or entry not in program:
            return False
        before, now = (dict(each[entry]) for each in (program, self._program.identity))
        assert compiled.top is not None
        same = all(before.get(key) == now[key] for key in ("kind", "schema", "options", "layout"))
        return same and compiled.top.results != "" and str(before["plan"]).endswith(compiled.top.results)

    def from_past(self, past: Past) -> FromPast:
        from boatlift.spark.jobs.past import PastRows, past_plan, without_comparison

        alone = without_comparison(past, self.plan, self._program.units, self._spark)
        plan = past_plan(self.plan, past, self._spark, alone)
        program = self._program.with_ends(plan)  # to compile a program of many views takes seconds
        engine = SparkEngine(self._spark, plan, self._registry, long_running=False, program=program)
        try:
            rows = PastRows(engine.plan, past, {name: unit.output for name, unit in engine._program.units.items()})
            beginning = Beginning(
                past.store, past.scratch, past.store_id, past.token, recorded=dict.fromkeys(self.plan.sources, -1)
            )
            engine.start(beginning)
            for unit in past.time:
                if unit in past.kept:
                    rows.take_kept(engine._program.units[unit], engine.jobs)
                else:
                    rows.execute(unit, partial(engine._execute, unit))
            return rows.results(self._spark, engine.jobs, self.plan, self._program.units, alone)
        finally:
            engine.close()

    def environment(self) -> dict[str, Any]:
        used = {
            f"library {name}": version
            for unit in self._program.units.values()
            for name, version in unit.libraries.items()
        }
        return environment(self._spark) | used

    # -- beginning and end --------------------------------------------------------------------------------------------

    def reserve(self) -> None:
        self._input_logs.reserve()

    def redirect(self, owner: Mapping[str, str] | None) -> None:
        self._input_logs.redirect(owner)

    def advertised(self) -> Mapping[str, str]:
        return self._input_logs.advertised()

    def start(self, beginning: Beginning) -> None:
        pass_credentials(self._spark.sparkContext)
        scratch, units = beginning.scratch, self._program.units
        self._memory = self._memory_for_states() if beginning.in_memory else None
        planner = StepPlanner(
            scratch, beginning.token, lambda: self._spark.sparkContext.defaultParallelism, self._memory
        )
        self._readings = Readings(scratch, beginning.read)
        self._set_aside = SetAside(self._spark, self.plan, beginning.store)
        self._inputs = Inputs(
            self._spark, self.plan, units, beginning.store, scratch, planner.slots, beginning.recorded,
            self._readings, self._set_aside, self._memory,
        )  # fmt: skip
        self._files = ScratchFiles(scratch, beginning.files, None if self._memory is None else self._memory.folder)
        if self._long_running and has_workers(self._spark):
            self._job = LongRunningJob(self._spark, self._group, slots_left(self.plan))
        self.jobs = Jobs(
            self._spark,
            self.plan,
            self._inputs,
            planner,
            self._group,
            self._files,
            self._background,
            self._job,
            dict(beginning.executed),
            input_watermarks(units),
        )
        self._steps = {name: self._steps_of(unit) for name, unit in units.items()}
        for name, each in self.plan.sources.items():
            if (records := each.source.capabilities.records_input) is not None:
                records.attach(beginning.store, scratch, name)
        self._input_logs.open(beginning)

    def _memory_for_states(self) -> StateMemory | None:
        """Return the memory for states that are in memory; None if none is. That of dead owners is given back.

        Raises:
            InvalidError: `[BAD_POLICY]` tasks run on other computers; `[BAD_OPTION]` there is no memory file system.
        """
        give_back_memory()
        names = [name for name, unit in self.plan.units.items() if holds_in_memory(unit.policy)]
        if not names:
            return None
        master = str(self._spark.sparkContext.master)
        if not master.startswith("local"):
            raise InvalidError(
                "BAD_POLICY",
                f'{names[0]} has its state in memory, which tasks on {master} do not share: leave state="in memory" '
                "out, or use a session with a local master",
            )
        return StateMemory()

    def _steps_of(self, unit: CompiledUnit) -> Steps:
        decisive: object = unit.decisive
        match decisive:
            case HasSteps() as own:
                return own.steps(unit, self.jobs)
            case CompiledKeyed(kernel=kernel):
                return KeyedSteps(unit, self.jobs, kernel)
            case Compiled(beside=True):
                return BatchSteps(unit, self.jobs)
            case _:
                return RowSteps(unit, self.jobs)

    def skip(self, skips: Skips) -> None:
        """Execute some steps, and read some messages, as if they had no rows; set bad rows aside."""
        self._skips = skips
        self._set_aside.decide(skips.rows)

    def open_sink(self, sink: str, name: str, store: str, token: int) -> Committed | None:
        unit = self._program.units[self.plan.unit_of_sink(sink).name]
        context = SinkContext(self.plan.dataflow, name, store, token, unit.output, unit.columns.changes)
        return self.plan.sinks[sink].sink.open(context)

    def activity(self, processor: str) -> Activity:
        own = self._group.activity(processor)
        together = None if self._job is None or own.tasks else self._job.activity(processor)
        return own if together is None else together

    def cancel_steps(self, processor: str) -> None:
        self._cancels[processor] += 1
        if processor in self._steps:
            self._steps[processor].cancel_steps()
        if self._job is not None:
            self._job.cancel_steps(processor)
        self._group.end(processor)

    def cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
        self._group.end_all()

    def hasten(self) -> None:
        """End a run before its next step, if its steps have jobs of their own."""
        self._hastened = True

    def close(self) -> None:
        ends = [*self._announcements, self._input_logs.close, self._background.close]
        ends += [] if self._job is None else [self._job.close]
        ends += [steps.close for steps in self._steps.values()]
        ends += [sink.sink.close for sink in self.plan.sinks.values()]
        ends += [self._program.close]
        ends += [] if self._memory is None else [self._memory.close]
        with ExitStack() as stack:  # each has its turn, in this order, whatever another raises
            for end in reversed(ends):
                stack.callback(end)

    # -- sources ------------------------------------------------------------------------------------------------------

    def listening(self) -> Mapping[str, str]:
        return self._input_logs.listening()

    def awaited(self) -> bool:
        return self._input_logs.awaited()

    def first_cursor(self, source: str) -> Json:
        return self.plan.sources[source].source.start()

    def prove(self, source: str, messages: Sequence[tuple[tuple[str, str, int], Json]]) -> None:
        """Verify the positions of messages that are not skipped, each once."""
        proved: set[int] = set()
        for (unit, edge, time), position in messages:
            skipped = (unit, time) in self._skips.steps or (unit, edge, time) in self._skips.messages
            if not skipped and time not in proved:
                self.plan.sources[source].source.verify(position)
                proved.add(time)

    def poll(self, source: str, cursor: Json) -> Json | None:
        return self.plan.sources[source].source.next(cursor)

    def announce(self, told: Callable[[str], None]) -> list[str]:
        announcing = {
            name: announces
            for name, each in self.plan.sources.items()
            if (announces := each.source.capabilities.announces_input) is not None
        }
        self._announcements += [each.announce_input(partial(told, name)) for name, each in announcing.items()]
        return list(announcing)

    def gathers(self, source: str, position: Json) -> bool:
        backlog = self.plan.sources[source].source.capabilities.coalesces_backlog
        return backlog is not None and not backlog.is_full(position)

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        return self.plan.sources[source].source.advance(cursor, position)

    def read(self) -> list[tuple[str, int, Reading]]:
        return self._readings.take_new()

    def acknowledge(self, source: str, time: int, position: Json) -> None:
        """Acknowledge a position, unless a unit reads the whole source and the source keeps its rows itself."""
        read = self.plan.sources[source].source
        if not self.plan.read_whole(source) or read.capabilities.store_backed is not None:
            self._readings.forget(source, time)
            read.acknowledge(position)

    def check(self) -> None:
        check_jvm()

    def bytes_in_memory(self) -> int:
        return 0 if (memory := self._memory) is None else memory.size()

    def resident_bytes(self) -> Mapping[str, int]:
        return self._spark_memory.resident_bytes()

    def page(self) -> str:
        return self._page

    # -- steps --------------------------------------------------------------------------------------------------------

    def steps_per_job(self, unit: str, takes: Sequence[StepInput]) -> int:
        return 1 if self._apart[unit] else self._steps[unit].steps_per_job(takes)

    def prepare(self, order: Prepare) -> None:
        self._steps[order.processor].prepare(order.takes)

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        """Execute steps as one job; or one by one, so that each fails on its own."""
        unit, cancels = order.processor, self._cancels[order.processor]
        known = self._known.pop(unit, None)
        if known is not None and known[0] == order.takes[0]:
            raise known[1]
        if self._skips.messages:
            order = replace(order, takes=tuple(self._without_skipped(unit, take) for take in order.takes))
        skipped = any((unit, take.number) in self._skips.steps for take in order.takes)
        if len(order.takes) > 1 and not self._apart[unit] and not skipped:
            try:
                results = self._steps[unit].run_as_one(order.takes, order.state)
            except Exception as error:
                if self.cancelled or death_of_jvm(error) is not None:
                    raise
                if self._cancels[unit] != cancels:
                    raise UnavailableError("STEP_FAILED", f"steps of {unit} were cancelled") from error
                # Nothing was kept, and the error does not name its step. So each step is executed on its own.
                logger.warning(
                    "steps %s to %s of %s go one by one: %s", order.time, order.takes[-1].time, unit, first_line(error)
                )
                self._apart[unit] = APART_RUNS
            else:
                if results is not None:
                    return results
        results = self._one_by_one(order, cancels)
        self._apart[unit] = max(0, self._apart[unit] - 1)
        return results

    def _without_skipped(self, unit: str, take: StepInput) -> StepInput:
        """Return a step without its skipped messages; if all are skipped, with messages without rows."""
        left = tuple(m for m in take.inputs if (unit, m.edge, m.time) not in self._skips.messages)
        if len(left) == len(take.inputs):
            return take
        return replace(take, inputs=left or tuple(replace(message, payload=None) for message in take.inputs))

    def _one_by_one(self, order: Execute, cancels: int) -> tuple[StepResult, ...]:
        results: list[StepResult] = []
        state = order.state
        for take in order.takes:
            if results and (self._hastened or self._cancels[order.processor] != cancels):
                break
            try:
                results.append(self._execute(order.processor, take, state))
            except BoatliftError as error:
                if not results:
                    raise
                # Reading a bad row again calls no code of the user. So only a lasting error is remembered.
                if isinstance(error, UserCodeError) and error.lasting:
                    self._known[order.processor] = take, error
                break  # the results so far count; the step will be ordered again, as the first
            state = results[-1].state
        return tuple(results)

    def _execute(self, unit: str, take: StepInput, state: Any) -> StepResult:
        if all(message.payload is None for message in take.inputs):  # an upstream of a sequence sent nothing
            return StepResult(0, NOTHING, {}, state)
        if (unit, take.number) in self._skips.steps:
            return self.jobs.skipped(self._program.units[unit], take, state)
        return self._without_bad_rows(unit, take, lambda: self._steps[unit].run(take, state))

    def _without_bad_rows(self, unit: str, take: StepInput, execute: Callable[[], _T]) -> _T:
        """Execute with the rows of a step; if bad rows fail it and are set aside, execute again without them."""
        try:
            return execute()
        except DataError as error:
            if error.condition != "BAD_ROW" or self._program.units[unit].unit.rereads_source:
                raise
            if not self._set_aside.resolve(self._inputs.taken(take), error):
                raise
        return execute()

    def probe(self, batch: str, message: Message) -> RowProbe:
        take = StepInput(message.time, (message,))
        return self._without_bad_rows(batch, take, lambda: row_probe(self._program.units[batch], take, self.jobs))

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        to = self.plan.sinks[sink].sink
        if to.capabilities.runs_jobs:
            self._group.join(
                sink, f"commits step {time:,}"
            )  # else its jobs would belong to the unit that ran last on this thread
        return to.commit(time, *self._staged(payload))

    def commit_together(self, steps: Sequence[tuple[str, int, Any]]) -> None:
        sinks = [share for sink, _, _ in steps if (share := self.plan.sinks[sink].sink.capabilities.shares_transaction)]
        writes = zip(sinks, steps, strict=True)
        commit_together(
            sinks[0], [sink.step_write(time, *self._staged(payload)) for sink, (_, time, payload) in writes]
        )

    def _staged(self, payload: Any) -> tuple[int, str, Sequence[Staged]]:
        """Return the rows, the digest and the staged parts of a step for a sink."""
        step = payload_of(payload)
        assert isinstance(step, RunsPayload)
        assert step.rows is not None
        assert step.digest is not None
        return step.rows, step.digest, [Staged(run.residue, run.rows, str(self.path(run))) for run in step.runs]

    # -- runs ---------------------------------------------------------------------------------------------------------

    def path(self, run: RunRef) -> Path:
        return self._inputs.path(run)

    def kept(self, unit: str, runs: Iterable[RunRef]) -> None:
        self._files.kept(run.name for run in runs)
        self._steps[unit].saved(runs)

    def holds(self) -> AbstractSet[str]:
        return self._held() | self._files.fresh

    def _held(self) -> frozenset[str]:
        return frozenset(name for steps in self._steps.values() for name in steps.holds())

    def delivered(self, results: Iterable[StepResult]) -> None:
        self._files.delivered(run.name for result in results for run in result.runs())

    def discard(self, live: Collection[str]) -> None:
        for steps in self._steps.values():
            steps.forget(live)
        self._files.discard({*live, *self._held()})
