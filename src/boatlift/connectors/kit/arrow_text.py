"""Arrow's values as text, and rows as JSON text: a column at a time, ten times as fast as by Python objects.

Dates and times are ISO 8601. As in Spark, years beyond 9999 and before 0 have a sign: `+55840-11-08`, `-1199-02-15`.

| Arrow | JSON |
|---|---|
| integers, decimals | a number, with all its digits |
| floats | the shortest number that reads as the same |
| NaN, infinities | the texts `"NaN"`, `"Infinity"`, `"-Infinity"`, as Spark writes and reads them |
| booleans | `true`, `false` |
| strings | text |
| binary | text, in base64 |
| dates, timestamps, times | text; instants in UTC, with a `Z` |
| lists, structs, maps | arrays, objects, arrays of pairs |

NULL is `null`.
"""

from __future__ import annotations

import base64
import decimal
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

Values = TypeVar("Values", pa.Array, pa.ChunkedArray)

_DAY = 86_400_000_000
_FIRST, _END = -62_135_596_800_000_000, 253_402_300_800_000_000
"""The years 1 to 9999 in microseconds since 1970; Arrow formats no others."""

_CYCLE, _YEARS = 146_097, 400
"""The days and the years after which the calendar repeats."""

_SPECIAL = r'["\\\x00-\x1f]'


def timestamps_as_text(values: Values) -> Values:
    """Return timestamps as ISO 8601, with microseconds; instants are in UTC, with a `Z`."""
    # Arrow formats a zoned timestamp only if it finds a zone database; its microseconds are UTC already.
    micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    texts = _texts(micros, pa.timestamp("us"), (_FIRST, _END), time_of)
    return texts if values.type.tz is None else pc.binary_join_element_wise(texts, pa.scalar("Z"), pa.scalar(""))


def dates_as_text(values: Values) -> Values:
    """Return dates as ISO 8601."""
    days = values.cast(pa.date32()).cast(pa.int32())
    return _texts(days, pa.date32(), (_FIRST // _DAY, _END // _DAY), lambda day: time_of(day * _DAY)[:-16])


def times_as_text(column: pa.Array) -> pa.Array:
    """Return a column with text for all dates and times, also within lists, structs and maps."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return timestamps_as_text(column)
    if pa.types.is_date(kind):
        return dates_as_text(column)
    if pa.types.is_time(kind):
        return column.cast(pa.string())
    if not has_times(kind):
        return column
    none = column.is_null()
    if pa.types.is_struct(kind):
        parts = [times_as_text(part) for part in column.flatten()]
        fields = [field.with_type(part.type) for field, part in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=none)
    begin, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    offsets = pc.subtract(column.offsets, begin)
    if pa.types.is_map(kind):
        keys, items = (times_as_text(part.slice(begin, end - begin)) for part in (column.keys, column.items))
        return pa.MapArray.from_arrays(offsets, keys, items, mask=none)
    return pa.ListArray.from_arrays(offsets, times_as_text(column.values.slice(begin, end - begin)), mask=none)


def times_of_day(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return times of day from their texts, which Arrow casts to moments alone."""
    moments = pc.binary_join_element_wise(pa.scalar("1970-01-01"), texts, pa.scalar(" ")).cast(pa.timestamp("ns"))
    return moments.cast(pa.int64()).cast(pa.time64("ns")).cast(kind)


def has_times(kind: pa.DataType) -> bool:
    """Return whether a type is of dates or times, or contains one."""
    if pa.types.is_nested(kind):
        return any(has_times(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind))


def time_of(micros: int) -> str:
    """Return a time in microseconds since 1970 as ISO 8601, in UTC, without a `Z`."""
    cycles, day = divmod(micros // _DAY, _CYCLE)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day, microseconds=micros % _DAY)
    year = at.year + _YEARS * cycles
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{at:%m-%dT%H:%M:%S.%f}"


def is_string(kind: pa.DataType) -> bool:
    """Return whether a type is of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _texts(numbers: Any, kind: pa.DataType, years: tuple[int, int], far: Callable[[int], str]) -> Any:
    if isinstance(numbers, pa.ChunkedArray):
        return pa.chunked_array([_texts(chunk, kind, years, far) for chunk in numbers.chunks], pa.string())
    near = pc.and_(pc.greater_equal(numbers, years[0]), pc.less(numbers, years[1]))
    written = pc.replace_substring(
        pc.if_else(near, numbers, pa.scalar(None, numbers.type)).cast(kind).cast(pa.string()), " ", "T"
    )
    if pc.all(near, min_count=0).as_py():
        return written
    beyond = pc.fill_null(pc.invert(near), False)
    texts = [far(number) for number in numbers.filter(beyond).to_pylist()]
    return pc.replace_with_mask(written, beyond, pa.array(texts, pa.string()))


def json_objects(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.StringArray:
    """Return one object a row, with the columns in their order."""
    parts: list[Any] = []
    for place, (name, column) in enumerate(zip(names, columns, strict=True)):
        opened = ("{" if place == 0 else ",") + msgspec.json.encode(name).decode() + ":"
        parts += [pa.scalar(opened, pa.string()), json_values(column)]
    return pc.binary_join_element_wise(*parts, pa.scalar("}", pa.string()), pa.scalar("", pa.string()))


def json_values(column: pa.Array) -> pa.StringArray:
    """Return one value a row; a NULL is the text `null`."""
    return pc.fill_null(_json_texts(column), "null")


def plain_texts(column: pa.Array) -> pa.Array:
    """Return values as text without quotes; strings and binary stay unchanged, and NULL stays NULL."""
    kind = column.type
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    if is_string(kind) or is_bytes:
        return column
    quoted = _json_texts(column)
    return quoted if pa.types.is_nested(kind) else pc.utf8_trim(quoted, '"')


def _json_texts(column: pa.Array) -> pa.StringArray:
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else format(value, "f") for value in column.to_pylist()], pa.string())
    if pa.types.is_floating(kind):
        return _floats(column)
    if is_string(kind):
        strings = column.cast(pa.string())
        if not pc.any(pc.match_substring_regex(strings, _SPECIAL)).as_py():
            return _quoted(strings)
    if has_times(kind):
        texts = times_as_text(column)
        return _json_texts(texts) if pa.types.is_nested(kind) else _quoted(texts)
    encoded = [None if value is None else msgspec.json.encode(_plain(value)).decode() for value in column.to_pylist()]
    return pa.array(encoded, pa.string())


def _floats(column: pa.Array) -> pa.StringArray:
    finite = pc.is_finite(column)
    texts = column.cast(pa.string())
    if pc.all(finite, min_count=0).as_py():
        return texts
    named = pc.case_when(
        pc.make_struct(pc.is_nan(column), pc.greater(column, 0.0)),
        pa.scalar('"NaN"'),
        pa.scalar('"Infinity"'),
        pa.scalar('"-Infinity"'),
    )
    return pc.if_else(finite, texts, named)


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    quote = pa.scalar('"', pa.string())
    return pc.binary_join_element_wise(quote, texts, quote, pa.scalar("", pa.string()))


def _plain(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return msgspec.Raw(format(value, "f").encode())
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
