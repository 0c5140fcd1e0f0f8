"""Values on their way to and from MariaDB and MySQL: types, and Arrow columns as literals of SQL.

No value changes, and NULL stays NULL. Values that the server does not have are refused, and so are those that it would
cut without an error: spaces at the end of a text that is too long. `docs/formats/mysql-sink.md` has the table of types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boatlift.connectors.kit.arrow_text import is_string, times_of_day
from boatlift.errors import DataError, InvalidError

_AT_ONCE = 65_536  # rows that are in memory as literals
_STATEMENT = 1 << 19
"""Bytes of a statement, unless a row is longer."""

_FIRST_DAY, _END_DAY = -719_162, 2_932_897
_DAY = 86_400_000_000
"""From 0001-01-01 to 9999-12-31. The server's year 0 has no leap day, and Arrow's has one."""


@dataclass(frozen=True, slots=True)
class MysqlType:
    """The server's type for an Arrow type.

    Attributes:
        name: As the server's catalog has it, without the widths of whole numbers.
        literal: From a column to its literals, as binary; NULL stays NULL.
    """

    name: str
    literal: Callable[[pa.Array], pa.Array]


def column_type(field: pa.Field, collation: str, key_bytes: int) -> MysqlType:
    """Return the server's type for a column.

    Args:
        collation: The collation of texts.
        key_bytes: The bytes that a text in a key has in its index; 0: the column is in no key.

    Raises:
        InvalidError: `[TYPE_REFUSED]`.
    """
    kind, name = field.type, field.name
    if pa.types.is_boolean(kind):
        return MysqlType("tinyint(1)", lambda column: _text(column.cast(pa.int8())))
    for whole, width in (("tinyint", 1), ("smallint", 2), ("int", 4), ("bigint", 8)):
        signed = pa.types.is_signed_integer(kind) and kind.bit_width <= 8 * width
        if signed or (pa.types.is_unsigned_integer(kind) and kind.bit_width < 8 * width):
            return MysqlType(whole, _text)
    if kind in (pa.float32(), pa.float64()):
        return MysqlType("double", _floats(name))
    if pa.types.is_decimal(kind) and kind.scale >= 0:
        return MysqlType(f"decimal({kind.precision},{kind.scale})", _quoted)
    if is_string(kind):
        if not key_bytes:
            return MysqlType(f"longtext COLLATE {collation}", _escaped)
        characters = key_bytes // 4
        return MysqlType(f"varchar({characters}) COLLATE {collation}", _bounded(name, pc.utf8_length, characters))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        if not key_bytes:
            return MysqlType("longblob", _hexadecimal)
        return MysqlType(f"varbinary({key_bytes})", _bounded(name, pc.binary_length, key_bytes))
    if pa.types.is_date32(kind):
        return MysqlType("date", _dates(name))
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return MysqlType("datetime(6)", _timestamps(name))
    if pa.types.is_time(kind) and kind.unit != "ns":
        return MysqlType("time(6)", lambda column: _quoted(column.cast(pa.time64("us"))))
    raise InvalidError(
        "TYPE_REFUSED",
        f"column {name} of type {kind} has no type in a table of MariaDB or MySQL: cast it in a transform (to_json "
        "makes text of arrays, maps and structs), or drop it",
    )


def is_sized(kind: pa.DataType) -> bool:
    """Return whether values of a type have sizes of their own, of which an index has room for so many bytes."""
    return is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or (
        pa.types.is_fixed_size_binary(kind)
    )  # fmt: skip


def row_lists(rows: pa.Table, types: Sequence[MysqlType], largest: int) -> Iterator[bytes]:
    """Yield lists of rows as they follow VALUES, each for one statement.

    Args:
        largest: Bytes that a statement of the server may have.

    Raises:
        DataError: `[VALUE_REFUSED]`; `[NAN_REFUSED]`.
    """
    for start in range(0, rows.num_rows, _AT_ONCE):
        part = rows.slice(start, _AT_ONCE).combine_chunks()
        columns = [
            pc.fill_null(each.literal(column.chunk(0)).cast(pa.large_binary()), b"NULL")
            for column, each in zip(part.columns, types, strict=True)
        ]
        whole = pc.binary_join_element_wise(*columns, pa.scalar(b",", pa.large_binary()))
        ends = np.cumsum(pc.binary_length(whole).to_numpy() + 3)
        begin, done = 0, 0
        while begin < len(whole):
            end = max(begin + 1, int(np.searchsorted(ends, done + _STATEMENT, "right")))
            if (size := int(ends[end - 1]) - done) > largest:
                raise DataError(
                    "VALUE_REFUSED",
                    f"a row of {size:,} bytes is longer than the server's max_allowed_packet, {largest:,}: raise that, "
                    "or make the row smaller",
                )
            yield b"(" + b"),(".join(whole.slice(begin, end - begin).to_pylist()) + b")"
            begin, done = end, int(ends[end - 1])


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_string()).cast(pa.large_binary())


def _between(before: bytes, column: pa.Array, after: bytes) -> pa.Array:
    ends = [pa.scalar(each, pa.large_binary()) for each in (before, after, b"")]
    return pc.binary_join_element_wise(ends[0], column, ends[1], ends[2])


def _quoted(column: pa.Array) -> pa.Array:
    return _between(b"'", _text(column), b"'")


def _escaped(column: pa.Array) -> pa.Array:
    doubled = pc.replace_substring(column.cast(pa.large_binary()), b"'", b"''")  # a backslash is one: see the sql_mode
    return _between(b"'", doubled, b"'")


def _hexadecimal(column: pa.Array) -> pa.Array:
    values = column.cast(pa.binary()).cast(pa.large_binary())
    offsets = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, values.offset * 8)
    data = values.buffers()[2]
    digits = (data.to_pybytes() if data else b"")[offsets[0] : offsets[-1]].hex().encode()
    buffers = [None, pa.py_buffer(2 * (offsets - offsets[0])), pa.py_buffer(digits)]
    written = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
    return pc.if_else(values.is_valid(), _between(b"X'", written, b"'"), pa.scalar(None, pa.large_binary()))


def _bounded(name: str, length: Callable[[pa.Array], pa.Array], most: int) -> Callable[[pa.Array], pa.Array]:
    def literal(column: pa.Array) -> pa.Array:
        longest = pc.max(length(column)).as_py() or 0
        if longest > most:
            unit = "characters" if is_string(column.type) else "bytes"
            raise DataError(
                "VALUE_REFUSED",
                f"column {name} holds a value of {longest:,} {unit}, and the index of the key has room for {most}: "
                "shorten it, or write sha2(…, 256) as the key",
            )
        return _escaped(column) if is_string(column.type) else _hexadecimal(column)

    return literal


def _floats(name: str) -> Callable[[pa.Array], pa.Array]:
    def literal(column: pa.Array) -> pa.Array:
        wrong = column.filter(pc.invert(pc.is_finite(column)))
        if len(wrong):
            raise DataError(
                "NAN_REFUSED",
                f"column {name} holds {wrong[0].as_py()}, which MariaDB and MySQL do not have: filter it, or make it "
                "NULL or text in a transform",
            )
        return _quoted(column.cast(pa.float64()))

    return literal


def _dates(name: str) -> Callable[[pa.Array], pa.Array]:
    def literal(column: pa.Array) -> pa.Array:
        _check_range(name, column.cast(pa.int32()).cast(pa.int64()), _FIRST_DAY, _END_DAY)
        return _quoted(column)

    return literal


def _timestamps(name: str) -> Callable[[pa.Array], pa.Array]:
    def literal(column: pa.Array) -> pa.Array:
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        _check_range(name, micros, _FIRST_DAY * _DAY, _END_DAY * _DAY)
        return _quoted(micros.cast(pa.timestamp("us")))

    return literal


def _check_range(name: str, values: pa.Array, first: int, end: int) -> None:
    least, most = (pc.min_max(values)[part].as_py() for part in ("min", "max"))
    if least is not None and (least < first or most >= end):
        raise DataError(
            "VALUE_REFUSED",
            f"column {name} holds a time outside the years 1 to 9999, which MariaDB and MySQL have: filter it, or cast "
            "it to text",
        )


def declared_values(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """Return values of a column as the session reads them, most as texts, with the column's declared type."""
    kind = field.type
    if pa.types.is_boolean(kind):
        return pa.array([None if each is None else bool(each) for each in values], kind)
    if pa.types.is_timestamp(kind):
        micros = pa.array(values, pa.string()).cast(pa.timestamp("us")).cast(pa.int64())
        return micros.cast(pa.timestamp("us", kind.tz)).cast(kind)
    if pa.types.is_floating(kind):
        return pa.array(values, pa.string()).cast(pa.float64()).cast(kind)
    if pa.types.is_decimal(kind) or pa.types.is_date32(kind):
        return pa.array(values, pa.string()).cast(kind)
    if pa.types.is_time(kind):
        return times_of_day(pa.array(values, pa.string()), kind)
    return pa.array(values, kind)
