"""Rows in the form of a user's function: a TIMESTAMP is a `datetime` in UTC, without a zone, on every machine.

PySpark's conversions go through the zone of the machine: they lose the second pass of an hour that comes twice, and the
first and the last day that Python has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    Row,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
)

from boatlift.errors import DataError

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, as all times here
_MICROSECOND = timedelta(microseconds=1)

_MISFITS = (AssertionError, PySparkException, pa.ArrowException, TypeError, ValueError, OverflowError)
"""The errors of PySpark and Arrow for a value that is not of its column's type: PySpark asserts some types."""

_LONGEST = 100
"""The most characters of a value in an error."""


def rows_of(table: pa.Table, schema: StructType, processor: str) -> list[Row]:
    """Return rows as Python has them.

    Raises:
        DataError: `[BAD_ROW]` a date or a time lies beyond the years that Python has.
    """
    plain = _with(schema, TimestampNTZType)
    try:
        if plain is not schema:
            table = table.cast(pa.schema([_naive(field) for field in table.schema]))
        rows: list[Row] = ArrowTableToRowsConversion.convert(table, plain)
    except (ValueError, OverflowError) as error:
        message = (
            f"{processor} calls a Python function with a row that Python cannot hold: {error}: its dates and times "
            "have the years 1 to 9999; turn the column into a number or NULL, or filter such rows, in a transform ahead"
        )
        raise DataError("BAD_ROW", message) from error
    return rows


def table_of(rows: Sequence[Any], schema: StructType) -> pa.Table:
    """Return the rows of a user's function as Arrow rows; a time without a zone is in UTC.

    Raises:
        ValueError: A row does not fit; the text names the column and the value.
    """
    try:
        return _converted(rows, schema)
    except _MISFITS as error:
        raise ValueError(_misfit(rows, schema) or str(error) or type(error).__name__) from error


def _converted(rows: Sequence[Any], schema: StructType) -> pa.Table:
    given = _with(schema, _Moment)
    table = LocalDataToArrowConversion.convert(rows, given, use_large_var_types=False)
    return table if given is schema else table.cast(to_arrow_schema(schema, timezone="UTC"))


def _misfit(rows: Sequence[Any], schema: StructType) -> str | None:
    """Return the fault of the first row that does not fit; None if each value fits by itself."""
    for row in (row for row in rows if row is not None):
        named = row if isinstance(row, dict) else vars(row) if hasattr(row, "__dict__") else None
        if isinstance(row, tuple) or named is None:
            if isinstance(row, str | bytes) or not hasattr(row, "__len__") or len(row) != len(schema):
                return f"{_short(row)} is no tuple of {len(schema)} values"
            values: Sequence[Any] = tuple(row)
        else:
            values = [named.get(name) for name in schema.names]
        for field, value in zip(schema.fields, values, strict=True):
            try:
                _converted([(value,)], StructType([field]))
            except _MISFITS:
                return f"column {field.name} has {_short(value)}, a {type(value).__name__}"
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def in_utc(at: datetime) -> datetime:
    """Return a time in UTC without a zone; one that has no zone is in UTC."""
    return at if at.tzinfo is None else at.astimezone(UTC).replace(tzinfo=None)


def moment(milliseconds: int) -> datetime:
    """Return a time, from the year 1 on, as a user's function has it; the last that Python has for all later ones."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        if milliseconds < 0:
            raise
        return datetime.max  # noqa: DTZ901


def microseconds(at: datetime) -> int:
    """Return a time of a user's function in microseconds since 1970."""
    return (in_utc(at) - _EPOCH) // _MICROSECOND


class _Moment(UserDefinedType):
    """A TIMESTAMP among the rows that a function gave."""

    @classmethod
    def sqlType(cls) -> DataType:  # noqa: N802 - PySpark's name
        return TimestampNTZType()

    def serialize(self, obj: Any) -> datetime:
        if not isinstance(obj, datetime):
            raise TypeError(f"{obj!r} is no datetime")
        return in_utc(obj)


def _with(schema: StructType, moments: Callable[[], DataType]) -> StructType:
    """Return columns with another type for TIMESTAMP; the columns themselves if they have none."""
    kinds = [_replaced(field.dataType, moments) for field in schema.fields]
    if all(kind is field.dataType for kind, field in zip(kinds, schema.fields, strict=True)):
        return schema
    return StructType([StructField(f.name, kind, f.nullable) for f, kind in zip(schema.fields, kinds, strict=True)])


def _replaced(kind: DataType, moments: Callable[[], DataType]) -> DataType:
    match kind:
        case TimestampType():
            return moments()
        case ArrayType():
            element = _replaced(kind.elementType, moments)
            return kind if element is kind.elementType else ArrayType(element, kind.containsNull)
        case MapType():
            key, value = _replaced(kind.keyType, moments), _replaced(kind.valueType, moments)
            same = key is kind.keyType and value is kind.valueType
            return kind if same else MapType(key, value, kind.valueContainsNull)
        case StructType():
            return _with(kind, moments)
    return kind


def _naive(field: pa.Field) -> pa.Field:
    """Return a column whose times are without a zone, in UTC."""
    return field.with_type(_without_zone(field.type))


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_struct(kind):
        return pa.struct([_naive(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_zone(kind.key_type), _naive(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_naive(kind.value_field))
    return kind
