"""Rows of Arrow columns as JSON text, a column at a time, ten times as fast as by Python objects.

| Arrow | JSON |
|---|---|
| integers, decimals | a number, with all its digits |
| floats | the shortest number that reads as the same |
| NaN, infinities | the texts `"NaN"`, `"Infinity"`, `"-Infinity"`, as Spark writes and reads them |
| booleans | `true`, `false` |
| strings | text |
| binary | text, in base64 |
| dates, timestamps, times | text as ISO 8601 (`arrow_text`); instants in UTC, with a `Z` |
| lists, structs, maps | arrays, objects, arrays of pairs |

NULL is `null`.
"""

from __future__ import annotations

import base64
import decimal
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.connectors.kit.arrow_text import has_times, is_string, times_as_text

_SPECIAL = r'["\\\x00-\x1f]'


def json_objects(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.StringArray:
    """Return one object a row, with the columns in their order."""
    parts: list[Any] = []
    for place, (name, column) in enumerate(zip(names, columns, strict=True)):
        opened = ("{" if place == 0 else ",") + msgspec.json.encode(name).decode() + ":"
        parts += [pa.scalar(opened, pa.string()), json_values(column)]
    return pc.binary_join_element_wise(*parts, pa.scalar("}", pa.string()), pa.scalar("", pa.string()))


def json_values(column: pa.Array) -> pa.StringArray:
    """Return one value a row; a NULL is the text `null`."""
    return pc.fill_null(_texts(column), "null")


def plain_texts(column: pa.Array) -> pa.Array:
    """Return values as text without quotes; strings and binary stay unchanged, and NULL stays NULL."""
    kind = column.type
    if is_string(kind) or _is_bytes(kind):
        return column
    quoted = _texts(column)
    return pc.utf8_trim(quoted, '"') if not _is_nested(kind) else quoted


def _texts(column: pa.Array) -> pa.StringArray:
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else format(value, "f") for value in column.to_pylist()], pa.string())
    if pa.types.is_floating(kind):
        return _floats(column)
    if is_string(kind):
        return _strings(column.cast(pa.string()))
    if has_times(kind):
        texts = times_as_text(column)
        return _texts(texts) if _is_nested(kind) else _quoted(texts)
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


def _strings(column: pa.StringArray) -> pa.StringArray:
    if not pc.any(pc.match_substring_regex(column, _SPECIAL)).as_py():
        return _quoted(column)
    return pa.array(
        [None if value is None else msgspec.json.encode(value).decode() for value in column.to_pylist()], pa.string()
    )


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


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))
