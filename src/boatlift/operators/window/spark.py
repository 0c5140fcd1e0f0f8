"""Windows on Spark: expressions give the windows of a row, and a kernel keeps the aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

from boatlift.dataflow.columns import quoted
from boatlift.dataflow.policies import microseconds_in
from boatlift.errors import InvalidError
from boatlift.kernels.aggregate import AggregateKernel
from boatlift.operators.window.kernel import FinalWindowKernel
from boatlift.operators.window.operator import WINDOW_END, WINDOW_START, Window, WindowAggregate
from boatlift.spark.aggregates.compiled import compile_aggregates
from boatlift.spark.compile.keyed import CompiledKeyed, require_columns
from boatlift.spark.compile.operator import Columns, Kit, no_watermark
from boatlift.storage.records.payloads import StepClock

_END = 1
"""The place of a window's end among the keys."""


@dataclass(frozen=True, kw_only=True)
class CompiledWindows(CompiledKeyed):
    """Windows, compiled."""

    window: Window

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        return super().frame(
            [None if rows is None else _in_windows(rows, self.window) for rows in inputs], clock, state
        )


def compile_windows(operator: WindowAggregate, inputs: Sequence[Columns], kit: Kit) -> CompiledWindows:
    """Compile aggregates by window.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`, `[TYPE_REFUSED]`, `[UNSUPPORTED_AGGREGATE]`, `[NOT_ROW_WISE]`,
            `[NOT_DETERMINISTIC]`; `[NO_LATENESS]` rows are to come at a window's end, and the input has no watermark.
    """
    (takes,) = inputs
    name, each = operator.name, operator.window
    require_columns(name, (each.column, *operator.keys), takes)
    _check_window(name, each, takes)
    ends = takes.has_watermark and takes.watermark_column == each.column
    if operator.final and not ends:
        wish = f"gives rows when windows of {each.column} have ended"
        raise InvalidError("NO_LATENESS", no_watermark(name, wish, takes, each.column))
    in_windows = replace(takes, schema=_in_windows(kit.empty(replace(takes, positioned=False)), each).schema)
    if operator.final:
        kernel: Any = partial(
            FinalWindowKernel,
            processor=name,
            window_end=_END,
            slide_us=microseconds_in(each.slide),
            length_us=microseconds_in(each.length),
        )
    else:
        kernel = partial(AggregateKernel, processor=name, window_end=_END if ends else None)
    keys = (WINDOW_START, WINDOW_END, *operator.keys)
    made = compile_aggregates(name, keys, operator.columns, in_windows, kit, kernel, changes=not operator.final)
    columns = replace(
        made.columns,
        keys=(frozenset((WINDOW_START, *operator.keys)),),
        has_watermark=ends,
        watermark_column=WINDOW_END if ends else None,
    )
    known = {field.name: getattr(made, field.name) for field in fields(made)}
    return CompiledWindows(**{**known, "columns": columns}, window=each)


def _in_windows(rows: DataFrame, each: Window) -> DataFrame:
    """Return rows with the windows that they are in; a row that is in several comes several times."""
    found = F.window(F.col(quoted(each.column)), each.length, each.slide)
    return rows.select("*", found["start"].alias(WINDOW_START), found["end"].alias(WINDOW_END))


def _check_window(name: str, each: Window, takes: Columns) -> None:
    kind = takes.schema[each.column].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise InvalidError(
            "TYPE_REFUSED",
            f"{name} has windows of {each.column}, a {kind.simpleString()}: cast it to a timestamp in a transform "
            "before it",
        )
    taken = [column for column in (WINDOW_START, WINDOW_END) if column in takes.names]
    if taken:
        raise InvalidError(
            "SCHEMA_MISMATCH",
            f"{name} gives a column {taken[0]}, and {takes.origin} has one of this name: rename that in a transform "
            "before it",
        )


COMPILERS = {WindowAggregate: compile_windows}
