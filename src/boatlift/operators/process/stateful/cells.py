"""A state variable during a step: the values of the touched keys, read once, and their changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    DecimalType,
    FloatType,
    FractionalType,
    IntegralType,
    StringType,
    StructType,
    TimestampType,
)

from boatlift.operators.process.batch import Touched
from boatlift.operators.process.rows import in_utc, rows_of, table_of
from boatlift.operators.process.stateful.variables import EXPIRES, Variable
from boatlift.state.column import Column
from boatlift.state.newest.held import Cells

Entries = dict[tuple[Any, ...], tuple[Any, ...]]
"""The values of a key: by index, or by the user's key; of a value the key is empty."""


class VariableCells:
    """The values of a variable for the keys that a step touches.

    Args:
        variable: The variable.
        touched: The keys.
        fields: The Arrow columns of the variable's further key, and of its values.
        processor: The processor, for errors.
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

    def value(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """Return a value in the types of its columns, as a later step reads it."""
        return _coerced(given, self.variable.value)

    def key(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """Return a further key in the types of its columns."""
        return _coerced(given, self.variable.key)

    def written(self) -> tuple[Cells, npt.NDArray[np.bool_]] | None:
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
        if self._before is None:
            self._before = self._read()
        return self._before

    def _read(self) -> dict[int, Entries]:
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
        return held


def _coerced(given: Sequence[Any], schema: StructType) -> tuple[Any, ...]:
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
