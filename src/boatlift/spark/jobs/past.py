"""The whole past, for a transition: units from no state, and for each sink what differs from what it holds.

A plan of its own reads each source whole in one step, as a recomputation does, or in steps as the source divides its
past anew. It stages the rows for every sink as Arrow files.
These rows less those that the sink holds are the difference, which the sink's own stager then stages.

Where states give the rows, none is executed or read back for them (`states`): what a unit that stands has given, and
what a sink got from a state that is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructType
from pyspark.sql.window import Window

from boatlift.dataflow import Delivery, Json, Plan, Sink, SinkCapabilities, SinkSpec, Source, SourceCapabilities
from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.errors import BoatliftError, InvalidError
from boatlift.runtime.engine import FromPast, Past, StepResult
from boatlift.runtime.graph import edge_name, source_record
from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.inputs import ReadTask
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.planner import StepPlan
from boatlift.spark.jobs.states import can_read, kernel_with_rows, rows_between
from boatlift.spark.plans.catalyst import bytes_of
from boatlift.storage.records.payloads import RunsPayload, runs_of, to_json
from boatlift.tasks.sealed_errors import TaskFailedError, unsealing
from boatlift.tasks.stage import Output, StageTask, TaskReceipt
from boatlift.tasks.staging import ArrowStager

MOST_BYTES = 64 << 30
"""A past counts as no larger than this when tasks are made for it: Spark knows no size of some sources."""

PARTS_A_SLOT = 4
"""The parts of a comparison for each task that runs at the same time: each holds the rows of its keys in memory."""


def without_comparison(
    past: Past, plan: Plan, units: Mapping[str, CompiledUnit], spark: SparkSession
) -> dict[str, Any]:
    """Return the sinks that get what lies between two states of their unit, each with the older one.

    None stands for a state without rows, for a sink that holds none.
    """
    found: dict[str, Any] = {}
    for name, state in past.known.items():
        unit, able = plan.unit_of_sink(name).name, plan.sinks[name].sink.capabilities
        kernel = kernel_with_rows(units[unit])
        if kernel is None or unit not in past.time or past.sinks[name] or past.stepwise:
            continue
        if state is None and name in past.undone:
            continue
        if state is None:
            proved = able.reads_back is None or able.reads_back.held(spark) is None
        else:
            since = past.undone.get(name, -1)
            assert since is not None
            proved = able.untouched is not None and can_read(kernel, state, past.store) and able.untouched(since)
        if proved:
            found[name] = state
    return found


def past_plan(plan: Plan, past: Past, spark: SparkSession, alone: Collection[str] = ()) -> Plan:
    """Return the plan of a past: each source with a cursor has all rows up to it, in one step or in several.

    Args:
        alone: Sinks that need no rows of steps.
    """
    most: dict[str, int] = {}
    for name, time in past.time.items():
        bound = time + 1 if past.stepwise else 1
        most |= {read: min(most.get(read, bound), bound) for read in plan.sources_of(name)}
    sources = {
        name: replace(spec, source=_PastSource(spec.source, past.cursors.get(name), most.get(name, 1), spark))
        for name, spec in plan.sources.items()
    }
    sinks: dict[str, SinkSpec] = {
        name: replace(spec, sink=cast("Sink", _Collects(spec.sink)))
        for name, spec in plan.sinks.items()
        if name in past.sinks and name not in past.undone and name not in alone
    }
    units = {
        name: replace(unit, sinks=tuple(sinks[sink.name] for sink in unit.sinks if sink.name in sinks))
        for name, unit in plan.units.items()
    }
    kept = {name: each for name, each in plan.processors.items() if name not in plan.sinks}
    processors = {**kept, **sources, **sinks}
    return replace(plan, sources=sources, sinks=sinks, units=units, processors=processors)


class _PastSource:
    """A source with the rows up to a cursor. A position is `{"step": n}`.

    Attributes:
        steps: How many positions there are: none without a cursor.
    """

    delivery = Delivery.EXACTLY_ONCE

    def __init__(self, source: Source, cursor: Json | None, most: int, spark: SparkSession) -> None:
        self._source, self._cursor, self._spark = source, cursor, spark
        self.positioned = source.positioned
        self._divided: Sequence[Json] = ()
        if most > 1 and cursor is not None:
            self.verify({})  # positions are divided from what is there
            divided_anew = source.capabilities.divided_anew
            assert divided_anew is not None
            self._divided = divided_anew(cursor, most)
        self.steps = len(self._divided) or (0 if cursor is None else 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    @property
    def capabilities(self) -> SourceCapabilities:
        own = self._source.capabilities
        return SourceCapabilities(ordered_within=own.ordered_within, upserts=own.upserts, bad_rows=own.bad_rows)

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        if self._divided:
            return self._source.load(spark, self._divided[position["step"]])
        rescannable = self._source.capabilities.rescannable
        assert rescannable is not None
        assert self._cursor is not None
        return rescannable.load_everything(spark, self._cursor)

    def verify(self, _position: Json) -> None:
        rescannable = self._source.capabilities.rescannable
        assert rescannable is not None
        assert self._cursor is not None
        rescannable.verify_everything(self._cursor)

    def size_bytes(self, position: Json) -> int:
        estimate = self._source.capabilities.bytes_up_to
        if estimate is not None:
            assert self._cursor is not None
            return min(MOST_BYTES, estimate(self._cursor) // self.steps)
        try:
            return min(MOST_BYTES, bytes_of(self.load(self._spark, position)))
        except PySparkException:
            self.verify(position)  # tells which input is gone
            raise

    def diagnose(self, position: Json, text: str) -> Exception | None:
        del text
        try:
            self.verify(position)
        except BoatliftError as error:
            return error
        return None


class _Collects:
    """A sink in the place of another one: tasks stage its rows as Arrow files."""

    delivery = Delivery.EXACTLY_ONCE

    def __init__(self, sink: Sink) -> None:
        self.key, self.schema = None, pa.schema([])  # a step for a key lacks the rows that others replace
        self.capabilities = SinkCapabilities(refuses_duplicates=sink.capabilities.refuses_duplicates)
        self.describe = sink.describe

    def stager(self) -> ArrowStager:
        return ArrowStager(self.schema)

    def close(self) -> None:
        pass


class PastRows:
    """The rows of a past, as its units are executed one after the other."""

    def __init__(self, plan: Plan, past: Past, outputs: Mapping[str, pa.Schema]) -> None:
        self._plan, self._past = plan, past
        self._results: dict[str, list[StepResult | None]] = {}  # by step
        for name, spec in plan.sinks.items():
            sink: Any = spec.sink
            sink.schema = outputs[plan.unit_of_sink(name).name]

    def execute(self, unit: str, step: Callable[[StepInput, Any], StepResult]) -> None:
        """Execute a unit over its whole past; not if there is none."""
        last, state = self._past.time[unit], None
        results = self._results[unit] = list[StepResult | None]()
        reads = self._plan.units[unit].reads
        for number in range(last + 1 - max(map(self._steps_of, reads)), last + 1):
            inputs = [message for each in reads if (message := self._message(each, unit, len(results), number))]
            results.append(step(StepInput(number, tuple(inputs)), state) if inputs else None)
            state = state if (made := results[-1]) is None else made.state

    def take_kept(self, unit: CompiledUnit, jobs: Jobs) -> None:
        """Take the past rows of a unit from its recorded state, if anything takes rows of steps from it."""
        name, number = unit.name, self._past.time[unit.name]
        read = any(name in self._plan.units[each].reads for each in self._past.time)
        receipts: list[TaskReceipt] = []
        if read or unit.unit.sinks:
            receipts = rows_between(jobs, unit, (None, self._past.kept[name]), jobs.planner.outlets(unit), number)
        whole = Message("", number, source_record({"step": 0}, self._past.clock, 0))
        self._results[name] = [jobs.result(unit, StepInput(number, (whole,)), receipts, None, 0.0)]

    def _steps_of(self, sender: str) -> int:
        spec: Any = self._plan.sources.get(sender)
        return len(self._results.get(sender, ())) if spec is None else cast("int", spec.source.steps)

    def _message(self, sender: str, unit: str, step: int, number: int) -> Message | None:
        edge = edge_name(sender, unit)
        if step >= self._steps_of(sender):
            return None
        if sender in self._plan.sources:
            return Message(edge, number, source_record({"step": step}, self._past.clock, 0))
        made = self._results[sender][step]
        return None if made is None else Message(edge, number, made.sent[edge])

    def results(
        self,
        spark: SparkSession,
        jobs: Jobs,
        plan: Plan,
        units: Mapping[str, CompiledUnit],
        alone: Mapping[str, Any],
    ) -> FromPast:
        """Return the states, and the differences to what sinks hold.

        Args:
            plan: The plan with the real sinks.
            units: Its units, compiled.
            alone: As `without_comparison` returns them.
        """
        states = {
            unit: made.state
            for unit, results in self._results.items()
            for made in results
            if made is not None and unit not in self._past.kept
        }  # the last counts
        differences = {}
        for name in self._past.sinks:
            sink, unit = plan.sinks[name].sink, units[plan.unit_of_sink(name).name]
            if name in alone:
                now = self._past.kept.get(unit.name, states.get(unit.name))
                own = tuple(each for each in unit.unit.sinks if each.name == name)  # others are not open
                outlets = jobs.planner.outlets(replace(unit, unit=replace(unit.unit, sinks=own)))
                output = [each for each in outlets if each.name == name]
                made = rows_between(jobs, unit, (alone[name], now), output, self._past.time[unit.name])
                differences[name] = self._payload(name, made)
                continue
            jobs.group.join(unit.name, f"what differs in {name}")
            try:
                with unsealing(spark.sparkContext):  # also for tasks that read what the sink holds
                    differences[name] = self._difference(spark, jobs, unit, name, sink)
            except TaskFailedError as failed:
                raise failed.error from failed
        return FromPast(states, differences)

    def _difference(self, spark: SparkSession, jobs: Jobs, unit: CompiledUnit, name: str, sink: Sink) -> Any:
        results = [] if name in self._past.undone else self._results.get(unit.name, [])
        edge = edge_name(unit.name, name)
        staged_runs = [run for made in results if made is not None for run in runs_of(made.sent[edge])]
        files = tuple(str(jobs.inputs.path(run)) for run in staged_runs)
        columns = unit.columns.weighted_schema
        slots = spark.range(0, max(1, len(files)), 1, max(1, len(files)))
        rows = slots.mapInArrow(ReadTask(name, files), columns)
        reads_back, steps = sink.capabilities.reads_back, sink.capabilities.reads_back_steps
        if name in self._past.undone:
            since = self._past.undone[name]
            held = None if since is None or steps is None else steps.held_since(spark, since)
        else:
            held = None if reads_back is None else reads_back.held(spark)
        shown = f"{sum(run.rows for run in staged_runs)} rows"
        frame = _less(
            rows,
            held,
            columns,
            sink,
            name,
            shown,
            only_new=self._past.sinks[name],
            slots=jobs.planner.slots(),
            steps=len(results),
        )
        number = self._past.time.get(unit.name, 0)
        task = StageTask(name, self._past.token, (Output(name, sink.stager(), upserts=False),), str(self._past.scratch))
        plan = jobs.planner
        staged = plan.staged(unit, frame, task)
        (receipts,) = StepPlan(staged, plan.parameters(number, state=False)).run()
        return self._payload(name, receipts)

    def _payload(self, name: str, receipts: Sequence[TaskReceipt]) -> Any:
        digest = f"{sum(receipt.digest for receipt in receipts) % 2**64:016x}"
        runs = tuple(run for receipt in receipts if (run := receipt.staged[name]) is not None)
        return to_json(RunsPayload(runs, sum(run.rows for run in runs), digest, self._past.clock, 0))


def _less(
    rows: DataFrame,
    held: DataFrame | None,
    columns: StructType,
    sink: Sink,
    name: str,
    shown: str,
    *,
    only_new: bool,
    slots: int,
    steps: int,
) -> DataFrame:
    """Return rows of some steps less those that are held, as changes if the sink takes changes."""
    changes = WEIGHT in columns.names
    if held is None and not (changes and steps > 1):
        return rows
    own = [each for each in columns.fields if each.name != WEIGHT]
    if any(isinstance(each.dataType, MapType) for each in own):
        raise InvalidError(
            "SINK_NOT_READABLE",
            f"{name} has a column of maps, which cannot be compared with what it holds: choose --change {name}=now",
        )
    names = [quoted(each.name) for each in own]
    both = rows.select(*names, F.col(WEIGHT) if changes else F.lit(1).cast("long").alias(WEIGHT))
    if held is not None:
        there = {each.lower() for each in held.columns}
        had = [
            (F.col(quoted(each.name)) if each.name.lower() in there else F.lit(None))
            .cast(each.dataType)
            .alias(each.name)
            for each in own
        ]
        both = both.unionAll(held.select(*had, (-F.col(WEIGHT)).alias(WEIGHT)))
    keyed = sink.key is not None and changes
    keys = [quoted(each) for each in sink.key or ()] if keyed else names
    both = both.repartition(PARTS_A_SLOT * slots, *keys)  # one shuffle for all that follows
    summed = both.groupBy(*names).agg(F.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} <> 0")
    if only_new:
        summed = summed.where(f"{WEIGHT} > 0")
    elif not changes:
        summed = summed.persist()
        gone = summed.where(f"{WEIGHT} < 0").count()
        if gone:
            summed.unpersist()
            raise InvalidError(
                "CANNOT_TAKE_BACK",
                f"{name} holds {gone} rows that the new program does not give (it gives {shown}), and only adds rows: "
                f"choose --change {name}=new_rows (rows that come, never one that goes) or {name}=now (nothing of the "
                "past), or give it another name and place",
            )
    if keyed and not sink.capabilities.refuses_duplicates:  # else a row goes before another one takes its key
        stays = F.max(WEIGHT).over(Window.partitionBy(*keys)) > 0  # the new row replaces the old one
        summed = summed.withColumn("_stays", stays).where(f"{WEIGHT} > 0 OR NOT _stays").drop("_stays")
    each_once = F.explode(F.array_repeat(F.signum(WEIGHT).cast("long"), F.abs(WEIGHT).cast("int"))).alias(WEIGHT)
    spread = summed.select(*names, each_once)
    return spread if changes else spread.drop(WEIGHT)
