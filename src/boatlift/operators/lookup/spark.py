"""Lookups: what they keep, of each table the messages that make it up; and how their steps are executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from boatlift.dataflow import Plan, RowKind
from boatlift.operators.lookup.node import Lookup, Table
from boatlift.operators.lookup.task import LookupTable, LookupTask, put_together
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.jobs.inputs import Inputs, content_of
from boatlift.spark.jobs.planner import StepPlanner
from boatlift.spark.plans.catalyst import map_in_arrow
from boatlift.spark.program import CompiledUnit
from boatlift.spark.tasks.stage import TaskReceipt
from boatlift.storage.records.payloads import contents_with, runs_of
from boatlift.storage.records.records import RunRef

__all__ = ["Lookups", "runs_of_table", "with_message"]

PutTogether = Callable[[Sequence[Sequence[RunRef]], bool], RunRef]
"""Writes several messages as one run; the flag says that they are the whole table."""


def runs_of_table(state: Any, table: str) -> list[list[RunRef]]:
    """Return the messages that make up a table, in order of arrival, each as its runs."""
    if state is None:
        return []
    runs = {run.name: run for run in runs_of(state)}
    return [[runs[name] for name in message] for message in state["tables"].get(table, ())]


def with_message(
    state: Any, tables: Sequence[Table], changed: Table, message: Any, *, whole: bool, put_together: PutTogether
) -> Mapping[str, Any]:
    """Return the state after a message of a table.

    Messages are put together as one counts in binary: one is never put to another that is more than twice as large. So
    a row is copied as often as the logarithm of the table's size, and there are never many.

    Args:
        state: The state before; None at the start.
        tables: All tables of the lookup.
        changed: The one that the message is for.
        message: The content that came.
        whole: Whether it takes the place of all before; else it is changes.
        put_together: As its type says.
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
    return contents_with(
        every.values(),
        tables={name: [[run.name for run in message] for message in messages] for name, messages in kept.items()},
    )


def _rows(message: Sequence[RunRef]) -> int:
    return sum(run.rows for run in message)


class Lookups:
    """Executes the steps of units with a lookup: tables go into the state, and rows get what is looked up.

    Args:
        spark: The session.
        plan: The dataflow.
        units: Its units, compiled.
        inputs: What steps take.
        planner: Makes plans.
    """

    def __init__(
        self, spark: SparkSession, plan: Plan, units: Mapping[str, CompiledUnit], inputs: Inputs, planner: StepPlanner
    ) -> None:
        self._spark, self._plan, self._units, self._inputs, self._planner = spark, plan, units, inputs, planner

    def table_of(self, unit: str, take: StepInput) -> Table | None:
        """Return the table that a message is for; None if its rows are to get what is looked up."""
        (message,) = take.inputs
        return next((t for t in self._tables_of(unit) if edge_name(t.upstream, unit) == message.edge), None)

    def _tables_of(self, unit: str) -> tuple[Table, ...]:
        keeper = self._plan.units[unit].keeper
        assert isinstance(keeper, Lookup)
        return keeper.tables

    def with_message(self, unit: str, table: Table, message: Any, state: Any) -> Mapping[str, Any]:
        """Return the state after a message of a table."""

        def put(messages: Sequence[Sequence[RunRef]], first: bool) -> RunRef:
            scratch, token = self._planner.scratch, self._planner.token
            return put_together(messages, self._inputs.path, table, scratch, token, first=first)

        whole = self._plan.rows_of(table.upstream).kind is RowKind.TABLE
        return with_message(state, self._tables_of(unit), table, message, whole=whole, put_together=put)

    def look_up(self, unit: str, take: StepInput, state: Any) -> Sequence[TaskReceipt]:
        """Run the job of a step: the lookup, and the transforms around it."""
        compiled, given = self._units[unit], content_of(take)
        lookup = compiled.lookup
        assert lookup is not None
        self._inputs.verify_recorded((take,))
        rows, _ = self._inputs.rows(self._spark, unit, take)
        tables = tuple(
            LookupTable(table.name, table.keys, columns, self._files(state, table.name))
            for table, columns in lookup.tables
        )
        rows = lookup.before.build(rows, given["clock"], given["seed"])
        rows = map_in_arrow(rows, lookup.before.schema.names, LookupTask(unit, tables), lookup.schema)
        plan = self._planner.plan(compiled, rows, 0, take.number, given["clock"], given["seed"])
        (receipts,) = plan.run(())
        self._inputs.verify(unit, (take,))
        return receipts

    def _files(self, state: Any, table: str) -> tuple[tuple[str, ...], ...]:
        messages = runs_of_table(state, table)
        return tuple(tuple(str(self._inputs.path(run)) for run in message) for message in messages if message)
