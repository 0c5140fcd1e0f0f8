"""The lookup on Spark: a task adds the columns of tables to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructField, StructType

from boatlift.errors import InvalidError
from boatlift.operators.lookup.operator import Lookup, Table
from boatlift.operators.lookup.steps import LOOKS_UP, LookupSteps, runs_of_table
from boatlift.operators.lookup.task import ChannelLookupTask, KeptTableTask, LookupTable, LookupTask
from boatlift.spark.compile.operator import Columns, Compiled, KeptTable, Kit
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.plan_cache import SmallStep
from boatlift.spark.jobs.steps import Empty, HasSteps
from boatlift.spark.plans.catalyst import map_in_arrow
from boatlift.storage.records.payloads import StepClock
from boatlift.storage.records.records import RunRef
from boatlift.tasks.channels import ChannelTask

_NO_KEYS = ArrayType | StructType | MapType | FloatType | DoubleType
"""Types whose equal values may have different bits, or an order of their own."""


@dataclass(frozen=True, kw_only=True)
class CompiledLookup(Compiled, HasSteps):
    """A lookup, compiled."""

    opaque: ClassVar[bool] = True
    lookup: Lookup
    takes: Columns
    """The columns of the rows that it looks up for."""
    arrow: pa.Schema
    """The same in tasks."""
    task: LookupTask
    tables: tuple[StructType, ...]
    """The columns of each table."""

    @property
    def kept_tables(self) -> Mapping[str, KeptTable]:
        return {
            f"{self.lookup.name}_{table.name}": KeptTable(columns, partial(self._kept, table))
            for table, columns in zip(self.task.tables, self.tables, strict=True)
        }

    def _kept(self, table: LookupTable, state: Any, located: Callable[[RunRef], str]) -> KeptTableTask:
        messages = tuple(tuple(map(located, message)) for message in runs_of_table(state, table.name))
        return KeptTableTask(self.lookup.name, table, messages)

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        del clock, state
        rows = inputs[0]  # the tables are no frames
        assert rows is not None
        return map_in_arrow(rows, self.takes.names, self.task, self.columns.schema)

    def looked_up(self, unit: CompiledUnit, step: SmallStep) -> DataFrame:
        """Return the unit's rows from those that an earlier job of the step has left for the lookup."""
        task = ChannelLookupTask(ChannelTask(unit.name, LOOKS_UP, None), self.task)
        return unit.frame({self.lookup.name: step.frame_of(task, self.columns.schema)}, StepClock(0, 0))

    def small_frames(self, unit: CompiledUnit, rows: Mapping[str, DataFrame], empty: Empty) -> Iterator[DataFrame]:
        yield unit.below(rows, StepClock(0, 0))
        yield self.looked_up(unit, SmallStep(rows, None, lambda _, columns: empty(columns)))

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> LookupSteps:
        return LookupSteps(unit, jobs, self.lookup, self.arrow, partial(self.looked_up, unit))


def compile_lookup(operator: Lookup, inputs: Sequence[Columns], kit: Kit) -> CompiledLookup:
    """Compile a lookup.

    Raises:
        InvalidError: `[BAD_LOOKUP]` a key's type cannot be looked up by, or two rows that hold may have one key;
            `[SCHEMA_MISMATCH]` a key is not there, or the result would have two columns of one name.
    """
    takes, *others = inputs
    fields = list(takes.schema.fields)
    for table, there in zip(operator.tables, others, strict=True):
        _check_table(operator.name, table, takes.schema, there.schema)
        _check_unique(operator.name, table, there)
        fields += [
            StructField(f"{table.name}_{field.name}", field.dataType)
            for field in there.schema.fields
            if field.name not in table.keys
        ]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidError(
            "SCHEMA_MISMATCH", f"{operator.name} has two columns {', '.join(twice)}: name its tables otherwise"
        )
    return CompiledLookup(
        columns=Columns(
            operator.name,
            StructType(fields),
            has_watermark=takes.has_watermark,
            watermark_column=takes.watermark_column,
            without_watermark=takes.without_watermark,
        ),
        lookup=operator,
        takes=takes,
        arrow=kit.arrow_of(takes.schema),
        task=LookupTask(
            operator.name,
            tuple(
                LookupTable(table.name, table.keys, kit.arrow(there))
                for table, there in zip(operator.tables, others, strict=True)
            ),
        ),
        tables=tuple(there.schema for there in others),
    )


def _check_unique(name: str, table: Table, there: Columns) -> None:
    if there.changes and not any(key <= set(table.keys) for key in there.keys):
        known = " or ".join(f"({', '.join(sorted(each))})" for each in there.keys)
        shown = f"its rows are told apart by {known}" if known else "nothing in its query tells its rows apart"
        raise InvalidError(
            "BAD_LOOKUP",
            f"{name} looks up {table.upstream} by {', '.join(table.keys)}, on which rows of it may be equal: {shown}; "
            "look up by such a key, GROUP BY the key, or number the rows of each key and keep the first",
        )


def _check_table(name: str, table: Table, rows: StructType, there: StructType) -> None:
    for key in table.keys:
        for schema, whose in ((rows, f"the input of {name}"), (there, table.upstream)):
            if key in schema.fieldNames() and isinstance(schema[key].dataType, _NO_KEYS):
                raise InvalidError(
                    "BAD_LOOKUP",
                    f"{name} looks up {table.upstream} by {key}, a {schema[key].dataType.simpleString()} in {whose}: "
                    "look up by columns of whole numbers, text, dates or the like",
                )
            if key not in schema.fieldNames():
                raise InvalidError(
                    "SCHEMA_MISMATCH",
                    f"{name} looks up {table.upstream} by {key}, which {whose} does not have: it has "
                    f"{', '.join(schema.fieldNames())}; both sides need the key's columns by the same names, so "
                    "rename one before",
                )
        if rows[key].dataType != there[key].dataType:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"{name} looks up {table.upstream} by {key}, which is {rows[key].dataType.simpleString()} here and "
                f"{there[key].dataType.simpleString()} there: cast one of them",
            )


COMPILERS = {Lookup: compile_lookup}
