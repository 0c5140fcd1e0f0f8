"""Flaws of pushed rows that JSON and Arrow may accept: NUL in text, halves of surrogate pairs, a field given twice.

Detecting a flaw is cheap, because every push pays for it. Describing a flaw may be slow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_FINE = re.compile(rb":[0-9]{2}\.[0-9]{6}[0-9]*[1-9]")
_NO_BLANK = re.compile(r"[^ \t\n\r]")


def has_repeated_fields(body: bytes, fields: int) -> bool:
    """Return whether an object of valid JSON has a field twice.

    Each field has one colon outside of strings. So the numbers of such colons and of fields differ if one is repeated.

    Args:
        fields: The number of fields that the parser found in all objects.
    """
    if body.count(b":") == fields or body.translate(None, b" \t\r\n").count(b'":') == fields:
        return False  # a colon of a field follows a quote: these are the colons of all fields, and perhaps more
    marked = body.replace(rb"\\", b"").replace(rb"\"", b"")  # every quote left begins or ends a string
    return b"".join(marked.split(b'"')[::2]).count(b":") != fields


def field_counter(kind: DataType) -> Callable[[Any], int] | None:
    """Return a function that counts the fields of all objects in a value of a type; None if there are none."""
    from pyspark.sql import types as T

    match kind:
        case T.StructType(fields=fields):
            inner = {f.name: counter for f in fields if (counter := field_counter(f.dataType))}
            return lambda value: len(value) + sum(inner[name](value[name]) for name in inner if value.get(name))
        case T.MapType(valueType=held):
            counter = field_counter(held)
            return lambda value: len(value) + (sum(map(counter, filter(None, value.values()))) if counter else 0)
        case T.ArrayType(elementType=element):
            counter = field_counter(element)
            return counter and (lambda value: sum(map(counter, filter(None, value))))
    return None


def may_have_nul(column: pa.Array) -> bool:
    """Return whether a column's text has a NUL, also in bytes that a NULL hides."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        data = column.buffers()[2]
        return data is not None and b"\0" in data.to_pybytes()
    if pa.types.is_map(kind):
        return may_have_nul(column.keys) or may_have_nul(column.items)
    if pa.types.is_list(kind):
        return may_have_nul(column.values)
    return pa.types.is_struct(kind) and any(may_have_nul(column.field(at)) for at in range(kind.num_fields))


def flaw_in_json(body: bytes) -> str | None:
    """Return the first flaw of a body, with its place; None if it has no flaw of this module."""
    try:
        text, wrong = body.decode(), "half of a surrogate pair"
    except UnicodeDecodeError:  # then each wrong byte becomes half of a pair
        text, wrong = body.decode(errors="surrogateescape"), "bytes that are no UTF-8"
    return flaw_in(_rows_in(text, json.JSONDecoder(object_pairs_hook=_Pairs, strict=False)), wrong)


def _rows_in(text: str, decoder: json.JSONDecoder) -> list[Any]:
    """Return the rows of a body up to the first one that cannot be read."""
    rows: list[Any] = []
    with suppress(ValueError, RecursionError):  # a flaw may come before the error
        if text.lstrip()[:1] == "[":
            rows = decoder.decode(text)
        else:
            end = 0
            while (found := _NO_BLANK.search(text, end)) is not None:
                row, end = decoder.raw_decode(text, found.start())
                rows.append(row)
    return rows


def too_fine_time(body: bytes, schema: StructType) -> str | None:
    """Return the first time of a body that is finer than a microsecond, which the parser would round."""
    if _FINE.search(body) is None:
        return None
    for number, row in enumerate(_rows_in(body.decode(), json.JSONDecoder())):
        for field in schema.fields:
            if isinstance(row, dict) and (text := _fine_text(row.get(field.name), field.dataType)) is not None:
                return f"row {number + 1}: column {field.name} is {text!r}: a time has six digits behind its seconds"
    return None


def _fine_text(value: Any, kind: DataType) -> str | None:
    from pyspark.sql import types as T

    match kind, value:
        case ((T.TimestampType() | T.TimestampNTZType()), str()):
            return value if _FINE.search(value.encode()) else None
        case T.StructType(fields=fields), dict():
            found = (_fine_text(value.get(each.name), each.dataType) for each in fields)
        case T.ArrayType(elementType=held), list():
            found = (_fine_text(each, held) for each in value)
        case T.MapType(valueType=held), dict():
            found = (_fine_text(each, held) for each in value.values())
        case _:
            return None
    return next((text for text in found if text is not None), None)


def flaw_in(rows: Iterable[Any], wrong: str = "half of a surrogate pair") -> str | None:
    """Return the first flaw of rows, with its place.

    Args:
        wrong: The words for text that cannot be UTF-8.
    """
    for number, row in enumerate(rows):
        if found := _flaw(row, f"$[{number}]", wrong):
            what, where = found
            return f"row {number + 1}: {what} - at `{where}`"
    return None


def flaw_in_columns(table: Any) -> str | None:
    """Return the first flaw in the text of a table that is not Arrow's, such as pandas'."""
    names = list(getattr(table, "columns", ()))
    return flaw_in(dict(zip(names, row, strict=True)) for row in zip(*(table[n] for n in names), strict=True))


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as written, with repeated fields."""


def _flaw(value: Any, path: str, wrong: str) -> tuple[str, str] | None:
    match value:
        case str():
            what = _flaw_of_text(value, wrong)
            return (what, path) if what else None
        case _Pairs() | Mapping():
            pairs = value if isinstance(value, _Pairs) else value.items()
            names = set()
            for name, held in pairs:
                if isinstance(name, str) and (what := _flaw_of_text(name, wrong)):
                    return f"{what}, in the name of a field", path
                if name in names:
                    return f"the field `{name}` is given twice", path
                names.add(name)
                if found := _flaw(held, f"{path}.{name}", wrong):
                    return found
        case list() | tuple():
            for at, held in enumerate(value):
                if found := _flaw(held, f"{path}[{at}]", wrong):
                    return found
    return None


def _flaw_of_text(text: str, wrong: str) -> str | None:
    if "\0" in text:
        return "text with a NUL"
    return None if text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text) else wrong
