"""Values on their way to and from PostgreSQL: types, and Arrow columns in the binary form of `COPY`.

No value changes: floats keep their bits, decimals all digits, times their microseconds, and NULL stays NULL. What the
server cannot hold is refused: NUL in text, and times before 4714 BC, `[VALUE_REFUSED]`; types without a peer,
`[TYPE_REFUSED]`. `docs/formats/postgres-sink.md` has the table of types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.connectors.kit.arrow_text import is_string
from boatlift.errors import DataError, InvalidError

HEADER, TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_AT_ONCE = 65_536  # rows that are in memory in the form of COPY

_DAYS, _MICROS = 10_957, 946_684_800_000_000
"""From 1970 to 2000, from which the server counts."""

_FIRST_DAY, _END_DAY = -2_440_588, 2_145_042_906
_FIRST_MICRO = _FIRST_DAY * 86_400_000_000
"""The server's range of dates and of timestamps, from 1970. Arrow's end of timestamps is before the server's."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The server's type for an Arrow type.

    Attributes:
        name: As `format_type` writes it.
        sent_as: The type of the column that `COPY` fills; the server casts it.
        encode: From a column to its bytes: fixed ones as an array of one row a value, or Arrow binary.
        filler: What `encode` gets in place of NULL; None: NULL, for which it returns no bytes.
    """

    name: str
    sent_as: str
    encode: Callable[[pa.Array], Any]
    filler: Any


def column_type(field: pa.Field) -> ColumnType:
    """Return the server's type for a column.

    Raises:
        InvalidError: `[TYPE_REFUSED]`.
    """
    kind = field.type
    if pa.types.is_boolean(kind):
        return ColumnType("boolean", "boolean", _fixed(pa.uint8(), "u1"), False)
    for name, width, arrow in (("smallint", 2, pa.int16()), ("integer", 4, pa.int32()), ("bigint", 8, pa.int64())):
        signed = pa.types.is_signed_integer(kind) and kind.bit_width <= 8 * width
        if signed or (pa.types.is_unsigned_integer(kind) and kind.bit_width < 8 * width):
            return ColumnType(name, name, _fixed(arrow, f">i{width}"), 0)
    if kind == pa.float32():
        return ColumnType("real", "real", _fixed(kind, ">f4"), 0.0)
    if kind == pa.float64():
        return ColumnType("double precision", "double precision", _fixed(kind, ">f8"), 0.0)
    if pa.types.is_decimal(kind) and kind.scale >= 0:
        return ColumnType(f"numeric({kind.precision},{kind.scale})", "text", _decimals, None)
    if is_string(kind):
        return ColumnType("text", "text", _bytes, None)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return ColumnType("bytea", "bytea", _bytes, None)
    if pa.types.is_date32(kind):
        return ColumnType("date", "date", _dates(field.name), 0)
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        name = f"timestamp {'with' if kind.tz else 'without'} time zone"
        return ColumnType(name, name, _timestamps(field.name), 0)
    if pa.types.is_time(kind) and kind.unit != "ns":
        return ColumnType("time without time zone", "time without time zone", _times, 0)
    raise InvalidError(
        "TYPE_REFUSED",
        f"column {field.name} of type {kind} has no type in a PostgreSQL table: cast it in a transform (to_json makes "
        "text of arrays, maps and structs), or drop it",
    )


def copied(rows: pa.Table, types: Sequence[ColumnType]) -> Iterator[bytes]:
    """Yield rows in the binary form of `COPY`, without its header and its end."""
    for start in range(0, rows.num_rows, _AT_ONCE):
        part = rows.slice(start, _AT_ONCE).combine_chunks()
        columns = [each.chunk(0) for each in part.columns]
        yield _rows(part.num_rows, columns, types)


def _rows(count: int, columns: Sequence[pa.Array], types: Sequence[ColumnType]) -> bytes:
    """Encode rows: two bytes with the number of columns; each value's length (−1: NULL) and its bytes."""
    encoded = []
    lengths = np.empty((len(columns), count), np.int64)
    for place, (column, each) in enumerate(zip(columns, types, strict=True)):
        valid = None if not column.null_count else pc.is_valid(column).to_numpy(zero_copy_only=False)
        values = each.encode(_filled(column, each.filler))
        if isinstance(values, np.ndarray):
            lengths[place] = values.shape[1]
        else:
            lengths[place] = np.diff(_offsets(values))
        if valid is not None:
            lengths[place][~valid] = 0
        encoded.append((values, valid))
    ends = np.cumsum(lengths.sum(axis=0) + 2 + 4 * len(columns))
    out = np.zeros(int(ends[-1]), np.uint8)
    at = np.concatenate(([0], ends[:-1]))
    out[at], out[at + 1] = divmod(len(columns), 256)
    at = at + 2
    for place, (values, valid) in enumerate(encoded):
        announced = lengths[place] if valid is None else np.where(valid, lengths[place], -1)
        _put(out, at, announced.astype(">i4").view(np.uint8).reshape(count, 4))
        at = at + 4
        if isinstance(values, np.ndarray):
            _put(out, *((at, values) if valid is None else (at[valid], values[valid])))
        else:
            # The bytes of a NULL are none: its filler is empty.
            offsets = _offsets(values)
            size = int(offsets[-1] - offsets[0])
            data = np.frombuffer(values.buffers()[2] or b"", np.uint8, size, int(offsets[0])) if size else out[:0]
            out[np.repeat(at - (offsets[:-1] - offsets[0]), lengths[place]) + np.arange(size)] = data
        at = at + lengths[place]
    return out.tobytes()


def _put(out: Any, at: Any, values: Any) -> None:
    out[at[:, None] + np.arange(values.shape[1])] = values


def _offsets(values: pa.Array) -> Any:
    return np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, values.offset * 8)


def _filled(column: pa.Array, filler: Any) -> pa.Array:
    if not column.null_count or filler is None:
        return column
    small = pa.types.is_date(column.type) or pa.types.is_time32(column.type)
    return pc.fill_null(column, pa.scalar(filler, pa.int32() if small else None).cast(column.type))


def _fixed(arrow: pa.DataType, form: str) -> Callable[[pa.Array], Any]:
    def encode(column: pa.Array) -> Any:
        values = column.cast(arrow).to_numpy(zero_copy_only=False).astype(form, copy=False)
        return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize)

    return encode


_BIGINTS = _fixed(pa.int64(), ">i8")


def _bytes(column: pa.Array) -> pa.Array:
    return pc.fill_null(column.cast(pa.binary()), b"").cast(pa.large_binary())


def _decimals(column: pa.Array) -> pa.Array:
    return pc.fill_null(column.cast(pa.string()), "").cast(pa.large_binary())


def _dates(name: str) -> Callable[[pa.Array], Any]:
    def encode(column: pa.Array) -> Any:
        days = column.cast(pa.int32()).cast(pa.int64())
        _check_range(name, days, _FIRST_DAY, _END_DAY)
        return _fixed(pa.int32(), ">i4")(pc.subtract(days, _DAYS))

    return encode


def _timestamps(name: str) -> Callable[[pa.Array], Any]:
    def encode(column: pa.Array) -> Any:
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        _check_range(name, micros, _FIRST_MICRO, None)
        return _BIGINTS(pc.subtract(micros, _MICROS))

    return encode


def _times(column: pa.Array) -> Any:
    return _BIGINTS(column.cast(pa.time64("us")).cast(pa.int64()))


def _check_range(name: str, values: pa.Array, first: int, end: int | None) -> None:
    """Refuse what would become infinity, or another time, on the way to the server's own beginning."""
    least, most = (pc.min_max(values)[part].as_py() for part in ("min", "max"))
    if least is not None and (least < first or (end is not None and most >= end)):
        raise DataError(
            "VALUE_REFUSED",
            f"column {name} holds a time outside PostgreSQL's range, from 4714 BC on: filter it, or cast it to text",
        )


def declared_values(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """Return values of a column as `TIMES` loads them, with the column's declared type."""
    kind = field.type
    if pa.types.is_date32(kind):
        days = [None if each is None else each + _DAYS for each in values]
        return pa.array(days, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        micros = [None if each is None else _finite(each) + _MICROS for each in values]
        return pa.array(micros, pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)
    if pa.types.is_time(kind):
        return pa.array(values, pa.int64()).cast(pa.time64("us")).cast(kind)
    if pa.types.is_floating(kind):
        return pa.array(values, pa.float64()).cast(kind)
    return pa.array(values, kind)


def _finite(micros: int) -> int:
    if micros in (2**63 - 1, -(2**63)):
        raise ValueError("an infinite time")
    return micros


TIMES = (1082, 1083, 1114, 1184)
"""The server's numbers of the types of dates and times: loaded as whole numbers, as Python has not all years."""
