"""Operators with a keyed kernel, compiled: a frame has the kernel's input rows, with the hashes of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import xxhash
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, _parse_datatype_string

from boatlift.dataflow.columns import HASH, WEIGHT, quoted
from boatlift.errors import InvalidError
from boatlift.kernels.kernel import Kernel
from boatlift.kernels.step_state import KernelTime
from boatlift.spark.compile.operator import Columns, Compiled, KeptRows, Kit, without_position
from boatlift.spark.plans.catalyst import INPUT as MARKED
from boatlift.spark.plans.clock import dated
from boatlift.spark.plans.column_rules import canonical_key
from boatlift.state.column import is_supported
from boatlift.state.key_groups import key_hash
from boatlift.storage.records.payloads import StepClock
from boatlift.tasks.inputs import INPUT, input_column

FIRST_STEP = object()
"""The state before the first step, as an argument of `frame`."""


@dataclass(frozen=True, slots=True)
class KeyedInput:
    """One input of a kernel.

    Attributes:
        selected: The kernel's columns, without `_hash`, as expressions over the operator's input.
        keys: The names of the key columns among them, in the order of the kernel's keys.
        schema: The kernel's columns, without `_hash`.
    """

    selected: tuple[Column, ...]
    keys: tuple[str, ...]
    schema: StructType


@dataclass(frozen=True, slots=True)
class RowsByKey:
    """Whole rows as the input of a kernel.

    Attributes:
        taken: The input: the columns in their order, the keys in canonical form.
        frame: The rows, on an empty frame.
        arrow: The columns in tasks.
        keys: Name and type of each key column in tasks.
    """

    taken: KeyedInput
    frame: DataFrame
    arrow: pa.Schema
    keys: tuple[tuple[str, pa.DataType], ...]


def rows_by_key(name: str, keys: Sequence[str], takes: Columns, kit: Kit, *, does: str = "groups by") -> RowsByKey:
    """Return the whole rows of an operator's input, divided by key columns.

    Args:
        name: The operator.
        keys: The key columns.
        takes: The columns of the input, without `_weight`.
        kit: Makes empty frames.
        does: The operator's use of the key columns, for the error.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` there is no such column; `[TYPE_REFUSED]` a column cannot be a key.
    """
    require_columns(name, keys, takes)
    frame = kit.empty(without_position(takes)).alias(MARKED)
    selected = tuple(canonical_key(frame, each) if each in keys else F.col(quoted(each)) for each in takes.names)
    rows = frame.select(*selected)
    arrow = kit.arrow_of(rows.schema)
    typed = tuple((key, arrow.field(key).type) for key in keys)
    for key, kind in typed:
        if not is_supported(kind):
            raise InvalidError(
                "TYPE_REFUSED",
                f"{name} {does} {key}, a {kind}: it can be a column of numbers, text or times; drop others, or cast "
                "them, in a transform before it",
            )
    return RowsByKey(KeyedInput(selected, tuple(keys), rows.schema), rows, arrow, typed)


def weighted_input(rows: KeyedInput, takes: Columns) -> KeyedInput:
    """Return the rows of an operator's input, with `_weight` behind them if they are changes."""
    if not takes.changes:
        return rows
    schema = StructType([*rows.schema.fields, StructField(WEIGHT, LongType())])
    return KeyedInput((*rows.selected, F.col(WEIGHT)), rows.keys, schema)


def require_columns(name: str, columns: Sequence[str], takes: Columns) -> None:
    """Raise unless an operator's input has some columns.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`.
    """
    for column in columns:
        if column not in takes.names:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"{name} asks for {column}, which {takes.origin} does not have: it has {', '.join(takes.names)}",
            )


def declared_columns(name: str, what: str, declared: str | StructType) -> StructType:
    """Return the columns of a state, or of new rows, that a program declares.

    Args:
        name: The processor.
        what: The declaration, for the error: `state` or `output`.
        declared: The columns, as a schema or as `"count LONG, last TIMESTAMP"`.

    Raises:
        InvalidError: `[BAD_PROCESSOR]` they are no list of columns.
    """
    try:
        schema = _parse_datatype_string(declared) if isinstance(declared, str) else declared
    except PySparkException as error:
        first = next(iter(str(error).splitlines()), "")
        raise InvalidError(
            "BAD_PROCESSOR",
            f"{name}: {what} {declared!r} is no list of columns as in 'count LONG, last TIMESTAMP': {first}",
        ) from error
    if not isinstance(schema, StructType) or not len(schema):
        raise InvalidError(
            "BAD_PROCESSOR", f"{name}: {what} {declared!r} has no columns: write 'count LONG' or the like"
        )
    return schema


def ticks_input(ticks: Columns, kit: Kit) -> KeyedInput:
    """Return the stream of ticks as an input of a kernel: its rows only let time pass."""
    return KeyedInput((F.col("number"),), (), kit.empty(without_position(ticks)).select("number").schema)


@dataclass(frozen=True, kw_only=True)
class CompiledKeyed(Compiled):
    """An operator whose tasks run a kernel over rows divided by key; it is the top of its unit (`ends_job`).

    Attributes:
        kernel: The computation of a task.
        inputs: The kernel's inputs, in its order: one for each read of the operator; and one for `begin`.
        begin: Further rows of the first step, if there are any.
    """

    selects: ClassVar[bool] = True

    kernel: Kernel
    inputs: tuple[KeyedInput, ...]
    begin: DataFrame | None = None

    @property
    def goes_by_event_time(self) -> bool:
        return self.kernel.time in (KernelTime.WATERMARK_BEFORE, KernelTime.WATERMARK)

    @property
    def layout(self) -> str:
        parts = sorted(self.kernel.parts.items())
        forms = [
            [part, each.kind, [[name, str(kind)] for name, kind in each.keys], each.description] for part, each in parts
        ]
        return xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode(forms, order="deterministic")) if forms else ""

    @property
    def kept_rows(self) -> KeptRows | None:
        if not self.kernel.gives_rows:
            return None
        (taken,) = self.inputs
        return KeptRows(self.kernel, self.columns.weighted_schema, key=taken.keys)

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        """Return the kernel's input; several inputs in one frame, for `tasks.inputs.by_input`.

        Args:
            inputs, clock: As for `Compiled.frame`.
            state: `FIRST_STEP` of the step that takes `begin`.
        """
        del clock
        given = list(inputs)
        if self.begin is not None:
            given.append(self.begin if state is FIRST_STEP else None)
        frames = [None if rows is None else _hashed(each, rows) for each, rows in zip(self.inputs, given, strict=True)]
        if len(frames) == 1 and frames[0] is not None:
            return frames[0]
        return one_frame(
            frames, [StructType([*each.schema.fields, StructField(HASH, LongType())]) for each in self.inputs]
        )


def one_frame(frames: Sequence[DataFrame | None], schemas: Sequence[StructType]) -> DataFrame:
    """Return the rows of several inputs in one frame, for `tasks.inputs.by_input`.

    Args:
        frames: The rows of each input, if it has any.
        schemas: The columns of each input; all or none have `_hash`.
    """
    return reduce(
        DataFrame.unionAll, [_nested(rows, number, schemas) for number, rows in enumerate(frames) if rows is not None]
    )


def _nested(rows: DataFrame, number: int, schemas: Sequence[StructType]) -> DataFrame:
    """Return rows of one input with the columns of all inputs: those of the others are NULL."""
    nested = []
    for other, schema in enumerate(schemas):
        column = F.struct("*") if other == number else F.lit(None)
        nested.append(column.cast(schema).alias(input_column(other)))
    hashed = [F.col(HASH)] if HASH in schemas[number].fieldNames() else []
    return rows.select(F.lit(number).alias(INPUT), *nested, *hashed)


def _hashed(each: KeyedInput, rows: DataFrame) -> DataFrame:
    return dated(rows.select(*each.selected)).selectExpr("*", f"{key_hash(each.keys)} AS {HASH}")
