"""From messages back to rows: the inverse of `encoding`, for a sink that is read back.

Each value comes back with all its bits: numbers are read from their own digits, never by way of a double.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from boatlift.connectors.kafka.encoding import HEADERS, VALUE
from boatlift.connectors.kit.arrow_text import is_string
from boatlift.decoders import look_up
from boatlift.errors import InvalidError

look_up(timedelta)

_OBJECTS = json.JSONDecoder(parse_float=str, parse_int=str)
"""Numbers stay as they are written."""

_EPOCH, _CYCLE, _YEARS = date(1970, 1, 1).toordinal(), 146_097, 400
_DAY = 86_400_000_000
_FAR = re.compile(r"([+-]\d{4,})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)\.(\d{6})Z?)?")
"""A date or a time with a sign before its year, which Arrow does not read."""
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")


def refuse_unreadable(topic: str, fields: Sequence[pa.Field], *, raw: bool) -> None:
    """Raise if the values of a column cannot be told from its messages.

    Raises:
        InvalidError: `[SINK_NOT_READABLE]`, naming the column.
    """
    for field in fields:
        if raw and field.name == HEADERS:
            why = "a message without headers may have had none, or NULL"
        elif not _is_readable(field.type, raw=raw):
            why = f"its type is {field.type}"
        else:
            continue
        raise InvalidError(
            "SINK_NOT_READABLE",
            f"column {field.name} cannot be read back from topic {topic}, because {why}: choose --change SINK=now, or "
            "give the sink another name and topic",
        )


def _is_readable(kind: pa.DataType, *, raw: bool) -> bool:
    if raw:
        return is_string(kind) or _is_bytes(kind)
    if _is_list(kind):
        return _is_readable(kind.value_type, raw=raw)
    if pa.types.is_struct(kind):
        return all(_is_readable(kind.field(at).type, raw=raw) for at in range(kind.num_fields))
    return any(found(kind) for found, _ in _LEAVES)


def rows_of_messages(
    topic: str, fields: Sequence[pa.Field], keys: pa.Array, values: pa.Array, *, raw: bool
) -> list[pa.Array]:
    """Return the columns of the rows that were sent as messages.

    Raises:
        InvalidError: `[SINK_NOT_READABLE]` a message is none of this sink's.
    """
    if raw:
        sent = {field.name: values if field.name == VALUE else keys for field in fields}
        return [_column(topic, field, sent[field.name].cast, field.type) for field in fields]
    rows = [_object(topic, value, key) for value, key in zip(values.to_pylist(), keys.to_pylist(), strict=True)]
    # A message of an older version of the program lacks the columns that came later.
    return [_column(topic, field, _array, field.type, [row.get(field.name) for row in rows]) for field in fields]


def _object(topic: str, value: bytes | None, key: bytes | None) -> dict[str, Any]:
    try:
        found = None if value is None else _OBJECTS.decode(value.decode())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidError(
            "SINK_NOT_READABLE",
            f"topic {topic} has a message, with key {key!r}, whose value is no object of this sink's columns: choose "
            "--change SINK=now, or give the sink another name and topic",
        )
    return found


def _column(topic: str, field: pa.Field, made: Callable[..., pa.Array], *given: Any) -> pa.Array:
    try:
        return made(*given)
    except (pa.ArrowException, msgspec.MsgspecError, ArithmeticError, TypeError, ValueError) as error:
        raise InvalidError(
            "SINK_NOT_READABLE",
            f"topic {topic} has in column {field.name} a value that is no {field.type} ({error}): choose --change "
            "SINK=now, or give the sink another name and topic",
        ) from error


def _array(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if _is_list(kind):
        mask = _nulls_among(values, list)
        ends = [0]
        for value in values:
            ends.append(ends[-1] + len(value or ()))
        within = [each for value in values for each in value or ()]
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), _array(kind.value_type, within), type=kind, mask=mask
        )
    if pa.types.is_struct(kind):
        mask = _nulls_among(values, dict)
        fields = [kind.field(at) for at in range(kind.num_fields)]
        parts = [
            _array(field.type, [None if value is None else value.get(field.name) for value in values])
            for field in fields
        ]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    return next(read for found, read in _LEAVES if found(kind))(kind, values)


def _nulls_among(values: Sequence[Any], kind: type) -> pa.Array:
    other = next((value for value in values if not isinstance(value, kind | None)), None)
    if other is not None:
        raise ValueError(f"{other!r} is no {kind.__name__}")
    return pa.array([value is None for value in values], pa.bool_())


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _as_they_are(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.array(values, kind)


def _written(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.array(values, pa.string()).cast(kind)


def _bytes(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.array([None if value is None else base64.b64decode(value, validate=True) for value in values], kind)


def _times(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    is_date = pa.types.is_date(kind)
    counted = pa.int32() if is_date else pa.int64()
    near: list[str | None] = list(values)
    far: dict[int, int] = {}
    for at, value in enumerate(values):
        if value is not None and value[:1] in ("+", "-"):
            near[at], far[at] = None, _far(value) // (_DAY if is_date else 1)
    read = pa.array(near, pa.string()).cast(pa.date32() if is_date else pa.timestamp("us", kind.tz and "UTC"))
    if far:
        numbers = [far.get(at, number) for at, number in enumerate(read.cast(counted).to_pylist())]
        read = pa.array(numbers, counted).cast(read.type)
    return read.cast(kind)


def _far(text: str) -> int:
    """Return the microseconds since 1970 of a time whose year has a sign."""
    found = _FAR.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no date or time")
    year, month, day, hour, minute, second, micros = (int(part or 0) for part in found.groups())
    cycles, years = divmod(year - 1970, _YEARS)  # the calendar repeats
    days = date(1970 + years, month, day).toordinal() - _EPOCH + cycles * _CYCLE
    return days * _DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros


def _times_of_day(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    nanos: list[int | None] = []
    for value in values:
        found = None if value is None else _TIME.fullmatch(value)
        if value is not None and found is None:
            raise ValueError(f"{value!r} is no time of day")
        if found is None:
            nanos.append(None)
        else:
            hour, minute, second = map(int, found.group(1, 2, 3))
            nanos.append(((hour * 60 + minute) * 60 + second) * 10**9 + int((found[4] or "").ljust(9, "0")))
    return pa.array(nanos, pa.int64()).cast(pa.time64("ns")).cast(kind)


def _durations(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.array([None if value is None else msgspec.convert(value, timedelta) for value in values], kind)


_LEAVES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, Sequence[Any]], pa.Array]], ...] = (
    (pa.types.is_boolean, _as_they_are),
    (pa.types.is_null, _as_they_are),
    (is_string, _as_they_are),
    (pa.types.is_integer, _written),
    (pa.types.is_floating, _written),
    (pa.types.is_decimal, _written),
    (_is_bytes, _bytes),
    (pa.types.is_date, _times),
    (pa.types.is_timestamp, _times),
    (pa.types.is_time, _times_of_day),
    (pa.types.is_duration, _durations),
)
"""How values of a type that is not nested are read from what JSON has for them."""
