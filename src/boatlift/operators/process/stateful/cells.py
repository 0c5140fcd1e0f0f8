"""The state variables of a `StatefulProcessor`, and its timers; and both during a step, with their changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    DecimalType,
    FloatType,
    FractionalType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from boatlift.operators.process.batch import Timers, Touched
from boatlift.operators.process.rows import in_utc, rows_of, table_of
from boatlift.state.column import Column, Mask
from boatlift.state.newest import Cells, NewestCodec

EXPIRES = "_expires"
"""The column of a variable with a time to live: when a value ends, in milliseconds since 1970."""

INDEX = StructType([StructField("_index", LongType())])
"""The further key of a value in a list."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A state variable: values by key, and within a key by index or by a key of the user's."""

    name: str
    kind: str
    """`value`, `list` or `map`."""
    key: StructType
    """The columns of a map's key; of a list its index; of a value none."""
    value: StructType
    """The columns of a value."""
    ttl: int | None = None
    """How long a value lives after it was written, in milliseconds; None: for ever."""

    @property
    def part(self) -> str:
        """The part of the state that holds it."""
        return f"{self.kind}.{self.name}"

    @property
    def columns(self) -> StructType:
        """The columns of a value, with the time at which it ends if it has one."""
        ends = [StructField(EXPIRES, LongType())] if self.ttl is not None else []
        return nullable(StructType([*self.value.fields, *ends]))

    def codec(self, keys: tuple[tuple[str, pa.DataType], ...], arrow: Callable[[StructType], pa.Schema]) -> NewestCodec:
        """Return the form of its rows."""
        further = tuple((field.name, field.type) for field in arrow(self.key))
        return NewestCodec((*keys, *further), arrow(self.columns))

    def describe(self) -> str:
        """Return its declaration without its columns, as part of the program's identity."""
        ttl = "" if self.ttl is None else f" ttl {self.ttl}"
        return f"{self.kind} {self.name} {self.key.simpleString()}{ttl}"


def nullable(schema: StructType) -> StructType:
    """Return columns that may all be NULL."""
    return StructType([StructField(field.name, field.dataType, nullable=True) for field in schema.fields])


Entries = dict[tuple[Any, ...], tuple[Any, ...]]
"""The values of a key: by index, or by the user's key; of a value the key is empty."""


class VariableCells:
    """The values of a variable for the keys that a step touches.

    Args:
        fields: The Arrow columns of the variable's further key, and of its values.
    """

    def __init__(
        self, variable: Variable, touched: Touched, fields: tuple[pa.Schema, pa.Schema], processor: str
    ) -> None:
        self.variable, self._touched, self._fields, self._processor = variable, touched, fields, processor
        self._before: dict[int, Entries] | None = None
        self._after: dict[int, Entries] = {}

    def of(self, number: int) -> Entries:
        """Return the values of a key, in the order of their further keys; those that have ended are left out."""
        if number in self._after:
            return self._after[number]
        return self._held().get(number, {})

    def changed(self, number: int) -> Entries:
        """Return the values of a key, to be changed."""
        if number not in self._after:
            self._after[number] = dict(self._held().get(number, {}))
        return self._after[number]

    def written(self) -> tuple[Cells, Mask] | None:
        """Return the rows that the step writes; None if it changes nothing."""
        numbers: list[int] = []
        rows: list[tuple[Any, ...]] = []
        holds: list[bool] = []
        before, none = self._held() if self._after else {}, (None,) * len(self.variable.columns)
        ends = () if self.variable.ttl is None else (self._touched.now + self.variable.ttl,)
        for number, entries in self._after.items():
            old = before.get(number, {})
            for key, value in entries.items():
                if old.get(key) is not value:  # a value that was written again lives on from now
                    numbers.append(number)
                    rows.append((*key, *value, *ends))
                    holds.append(True)
            for key in old.keys() - entries.keys():
                numbers.append(number)
                rows.append((*key, *none))
                holds.append(False)
        if not numbers:
            return None
        columns, (key_fields, value_fields) = self.variable.columns, self._fields
        table = table_of(rows, StructType([*self.variable.key.fields, *columns.fields]))
        arrays = [column.combine_chunks() for column in table.cast(pa.schema([*key_fields, *value_fields])).columns]
        width = len(self.variable.key)
        further = tuple(Column.from_arrow(array, array.type) for array in arrays[:width])
        return Cells(np.array(numbers, np.int64), further, tuple(arrays[width:])), np.array(holds, np.bool_)

    def _held(self) -> dict[int, Entries]:
        if self._before is not None:
            return self._before
        cells = self._touched.held(self.variable.part)
        keys = pa.Table.from_arrays([column.to_arrow() for column in cells.further], schema=self._fields[0])
        values = pa.Table.from_arrays(list(cells.columns), schema=self._fields[1])
        width = len(self.variable.value)
        held: dict[int, Entries] = {}
        further: Sequence[Any] = (
            rows_of(keys, self.variable.key, self._processor) if len(self.variable.key) else [()] * len(cells)
        )
        rows = rows_of(values, self.variable.columns, self._processor)
        for number, key, row in zip(cells.key.tolist(), further, rows, strict=True):
            if self.variable.ttl is None or row[EXPIRES] > self._touched.now:
                held.setdefault(number, {})[tuple(key)] = tuple(row)[:width]
        self._before = held
        return held


def coerced(given: Sequence[Any], schema: StructType) -> tuple[Any, ...]:
    """Return a value, or a further key, in the types of its columns, as a later step reads it.

    Raises:
        ValueError: It has another number of columns.
    """
    if len(given) != len(schema):
        raise ValueError(f"{tuple(given)!r} has {len(given)} values, declared is {schema.simpleString()}")
    return tuple(_as(value, field.dataType) for value, field in zip(given, schema.fields, strict=True))


def _as(value: Any, kind: DataType) -> Any:
    """Return a value as it comes back from the state, for the types that round or take other Python types."""
    if value is None:
        return None
    if isinstance(kind, IntegralType):
        return int(value)
    if isinstance(kind, FloatType):
        return float(np.float32(value))
    if isinstance(kind, DecimalType):
        return Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    if isinstance(kind, FractionalType):
        return float(value)
    if isinstance(kind, StringType) and not isinstance(value, str):
        return str(value)
    if isinstance(kind, TimestampType) and isinstance(value, datetime):
        return in_utc(value)
    return value


SET_TIMERS = "timers"
"""The part of the state with the timers of each key, for `listTimers`."""


def timers_codec(keys: tuple[tuple[str, pa.DataType], ...]) -> NewestCodec:
    """Return the form of the rows: a row for each timer of a key."""
    return NewestCodec((*keys, ("_at", pa.int64())), pa.schema([]))


class KeyTimers:
    """The timers of the keys that a step touches."""

    def __init__(self, touched: Touched) -> None:
        self._touched = touched
        self._before: dict[int, set[int]] | None = None
        self._changes: dict[tuple[int, int], bool] = {}

    def of(self, number: int) -> list[int]:
        """Return the timers of a key, ascending."""
        held = set(self._held().get(number, ()))
        for (key, at), on in self._changes.items():
            if key == number:
                (held.add if on else held.discard)(at)
        return sorted(held)

    def change(self, number: int, at: int, *, on: bool) -> None:
        """Set a timer, or clear it."""
        self._changes[number, at] = on

    def due(self) -> list[tuple[int, int]]:
        """Return times and keys of the timers that are due, in that order: those of this step's rows among them."""
        stood = zip(self._touched.due.at.tolist(), self._touched.due.key.tolist(), strict=True)
        due = {(at, number) for at, number in stood if not self.is_cleared(number, at)}
        due |= {(at, number) for (number, at), on in self._changes.items() if on and at <= self._touched.passed}
        return sorted(due)

    def is_cleared(self, number: int, at: int) -> bool:
        """Return whether the step has cleared a timer."""
        return self._changes.get((number, at)) is False

    def written(self) -> tuple[Timers, Mask, tuple[Cells, Mask] | None]:
        """Return the timers that are set and cleared, and the rows of the part `SET_TIMERS`."""
        pairs = np.array(list(self._changes), np.int64).reshape(-1, 2)
        on = np.array(list(self._changes.values()), np.bool_)
        timers = Timers(pairs[:, 0], pairs[:, 1])
        if not len(pairs):
            return timers, on, None
        return timers, on, (Cells(timers.key, (Column(pa.int64(), timers.at),), ()), on)

    def _held(self) -> dict[int, set[int]]:
        if self._before is None:
            cells = self._touched.held(SET_TIMERS)
            self._before = {}
            for number, at in zip(cells.key.tolist(), cells.further[0].values.tolist(), strict=True):
                self._before.setdefault(number, set()).add(at)
        return self._before
