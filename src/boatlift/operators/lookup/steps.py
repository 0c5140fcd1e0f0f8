"""The steps of a lookup: a table's message changes the state, and rows get the tables' columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from boatlift.dataflow import RowKind
from boatlift.operators.lookup.operator import Lookup, Table
from boatlift.operators.lookup.task import message_channel, put_together
from boatlift.runtime.engine import StepResult
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.members import needed_by_expressions
from boatlift.spark.jobs.plan_cache import PlanCache, SmallStep
from boatlift.spark.jobs.planner import LastStage
from boatlift.spark.jobs.steps import Steps
from boatlift.spark.jobs.told_rows import ToldInputs
from boatlift.storage.records.payloads import RunsPayload, StepClock, payload_of, runs_of, to_json
from boatlift.storage.records.records import RunRef
from boatlift.storage.remote_files import removed
from boatlift.tasks.stage import Output, StageTask, TaskReceipt
from boatlift.tasks.staging import ArrowStager

PutTogether = Callable[[Sequence[Sequence[RunRef]], bool], RunRef]
"""Writes several messages as one run; the flag says that they are the whole table."""


def runs_of_table(state: Any, table: str) -> list[list[RunRef]]:
    """Return the messages of a table, in order of arrival, each as its runs."""
    if state is None:
        return []
    payload = payload_of(state)
    assert isinstance(payload, RunsPayload)
    runs = {run.name: run for run in payload.runs}
    return [[runs[name] for name in message] for message in (payload.tables or {}).get(table, ())]


def with_message(
    state: Any, tables: Sequence[Table], changed: Table, message: Any, *, whole: bool, put_together: PutTogether
) -> dict[str, Any]:
    """Return the state after a message of a table.

    Messages are merged like binary digits: a message is never merged into one of more than twice its size. So a row is
    copied as often as the logarithm of the table's size, and a table has few messages.

    Args:
        state: The state before; None at the start.
        tables: All tables of the lookup.
        changed: The table that the message is for.
        message: The payload of the message.
        whole: Whether the message replaces all before it; else it is changes.
        put_together: Writes several messages as one run.
    """
    kept = {table.name: runs_of_table(state, table.name) for table in tables}
    came = list(runs_of(message))
    if whole or came:
        messages = [came] if whole else [*kept[changed.name], came]
        first, rows = len(messages) - 1, _rows(messages[-1])
        while first and _rows(messages[first - 1]) <= 2 * rows:
            first -= 1
            rows += _rows(messages[first])
        if first < len(messages) - 1:
            messages[first:] = [[put_together(messages[first:], first == 0)]]
        kept[changed.name] = messages
    every = {run.name: run for messages in kept.values() for message in messages for run in message}
    tables_of_runs = {
        name: tuple(tuple(run.name for run in message) for message in messages) for name, messages in kept.items()
    }
    return to_json(RunsPayload(tuple(every.values()), tables=tables_of_runs))


def _rows(message: Sequence[RunRef]) -> int:
    return sum(run.rows for run in message)


MOST_ROWS = 50_000
"""A step that looks up in more rows has a job of its own: all units of a round would wait for it."""

LOOKS_UP = "looks up"
"""The channel from the job below a lookup to the one that looks up, in rounds of the long-running job."""

_BELOW, _ABOVE = 0, 1


class LookupSteps(Steps):
    """Steps of a lookup, each of one message, in the order in which messages arrive.

    A step has one job. In rounds it has two: the rows of the first are looked up as the second one reads them.

    Args:
        unit: The unit.
        jobs: The dataflow's jobs.
        lookup: The operator.
        takes: The columns of the rows that are looked up, in tasks.
        looked_up: Makes the frame of the second job of a small step.
    """

    def __init__(
        self,
        unit: CompiledUnit,
        jobs: Jobs,
        lookup: Lookup,
        takes: pa.Schema,
        looked_up: Callable[[SmallStep], DataFrame],
    ) -> None:
        self._unit, self._jobs = unit, jobs
        self._tables = {edge_name(table.upstream, unit.name): table for table in lookup.tables}
        self._takes, self._looked_up = takes, looked_up
        cacheable = unit.unit.deterministic and not unit.of_step
        # A step goes round with both of its jobs or with none.
        both = cacheable and jobs.long_running is not None and needed_by_expressions(unit, jobs.spark) is None
        self._in_round = [self._below, self._above] if both else []
        self._cache = PlanCache(unit, jobs, [self._whole], self._in_round) if cacheable else None

    def steps_per_job(self, takes: Sequence[StepInput]) -> int:
        """Return how many messages of tables come first: these need no job."""
        return max(1, sum(1 for _ in takewhile(lambda take: self._table_of(take) is not None, takes)))

    def run(self, take: StepInput, state: Any) -> StepResult:
        table = self._table_of(take)
        if table is None:
            return self._jobs.step(self._unit, take, partial(self._look_up, take, state), state)
        message = take.inputs[0].payload
        after = self._with_message(table, message, state)
        self._jobs.files.made({run.name for run in runs_of(after)} - {run.name for run in runs_of(state)})
        came = payload_of(message)
        assert isinstance(came, RunsPayload)
        return StepResult(0, came.digest or "", {}, after, came.rows or 0, 0.0)

    def _table_of(self, take: StepInput) -> Table | None:
        """Return the table that a message is for; None if its rows are to get the tables' columns."""
        (message,) = take.inputs
        return self._tables.get(message.edge)

    def _with_message(self, table: Table, message: Any, state: Any) -> dict[str, Any]:
        """Return the state after a message of a table."""
        planner, path = self._jobs.planner, self._jobs.inputs.path

        def put(messages: Sequence[Sequence[RunRef]], first: bool) -> RunRef:
            return put_together(messages, path, table, planner.scratch, planner.token, first=first)

        whole = self._jobs.plan.rows_of(table.upstream).kind is RowKind.TABLE
        tables = tuple(self._tables.values())
        return with_message(state, tables, table, message, whole=whole, put_together=put)

    def _look_up(self, take: StepInput, state: Any) -> Sequence[TaskReceipt]:
        """Run the job of a step: the lookup, and the transforms around it."""
        jobs, unit = self._jobs, self._unit
        jobs.inputs.verify_recorded((take,))
        messages = {
            message_channel(table.name, number): [str(jobs.inputs.path(run)) for run in message]
            for table in self._tables.values()
            for number, message in enumerate(runs_of_table(state, table.name))
        }
        try:
            rows = sum(run.rows for run in runs_of(state))
            receipts = self._planned(take, messages, in_rounds=bool(self._in_round) and rows <= MOST_ROWS)
        except BaseException:
            if self._cache is not None:
                self._cache.forget()
            raise
        jobs.inputs.verify(unit.name, (take,))
        return receipts

    def _planned(
        self, take: StepInput, messages: Mapping[str, Sequence[str]], *, in_rounds: bool
    ) -> Sequence[TaskReceipt]:
        jobs, unit, cache = self._jobs, self._unit, self._cache
        sent = jobs.inputs.sent(take)
        named = None if cache is None else cache.named(sent, jobs.inputs.weight(sent))
        plan = None
        if cache is not None and named is not None:
            if in_rounds and named.small and (made := self._in_rounds(cache, take.number, named, messages)) is not None:
                return made
            plan = cache.of(take.number, named, state=True)
        if plan is None:
            rows, _ = jobs.inputs.rows(jobs.spark, unit, take)
            plan = jobs.planner.staging(unit, unit.frame(rows, clock_of(take)), take.number, state=True)
        (receipts,) = plan.run(channels=messages)
        return receipts

    def _in_rounds(
        self, cache: PlanCache, number: int, named: ToldInputs, messages: Mapping[str, Sequence[str]]
    ) -> list[TaskReceipt] | None:
        """Run both jobs in rounds; return None if a round does not take one of them."""
        below = cache.in_round(number, _BELOW, named).in_round({})
        if below is None:
            return None
        files = [str(self._jobs.inputs.path(run)) for each in below if (run := each.staged[LOOKS_UP]) is not None]
        try:
            return cache.in_round(number, _ABOVE).in_round({**messages, LOOKS_UP: files} if files else messages)
        finally:
            removed(files)

    def _whole(self, step: SmallStep, last_stage: LastStage | None) -> DataFrame:
        frame = self._unit.frame(step.rows, StepClock(0, 0))
        return self._jobs.planner.staged(self._unit, frame, None, last_stage)

    def _below(self, step: SmallStep, last_stage: LastStage | None) -> DataFrame:
        planner, unit = self._jobs.planner, self._unit
        outputs = (Output(LOOKS_UP, ArrowStager(self._takes), upserts=False),)
        task = StageTask(unit.name, planner.token, outputs, str(planner.scratch))
        return planner.staged(unit, unit.below(step.rows, StepClock(0, 0)), task, last_stage, self._takes)

    def _above(self, step: SmallStep, last_stage: LastStage | None) -> DataFrame:
        return self._jobs.planner.staged(self._unit, self._looked_up(step), None, last_stage)
