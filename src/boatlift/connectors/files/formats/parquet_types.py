"""The types of a Parquet file's columns, and times that Spark and Arrow read differently.

Types are those that Parquet itself stores. Arrow may store a schema of its own in a footer, with the types that a
writer had in memory; Spark ignores it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from boatlift.connectors.kit import Columns
from boatlift.errors import DataError

_MOST_DIGITS = 38

_PLAIN = {
    ("BOOLEAN", "None"): "boolean",
    ("INT32", "None"): "int",
    ("INT32", "Date"): "date",
    ("INT64", "None"): "bigint",
    ("INT96", "None"): "timestamp",
    ("FLOAT", "None"): "float",
    ("DOUBLE", "None"): "double",
    ("BYTE_ARRAY", "None"): "binary",
    ("BYTE_ARRAY", "BSON"): "binary",
    ("BYTE_ARRAY", "String"): "string",
    ("BYTE_ARRAY", "Enum"): "string",
    ("BYTE_ARRAY", "JSON"): "string",
    ("FIXED_LEN_BYTE_ARRAY", "None"): "binary",
}
_WHOLE = {(8, True): "tinyint", (16, True): "smallint", (32, True): "int", (64, True): "bigint"}
_UNSIGNED = {(8, False): "smallint", (16, False): "int", (32, False): "bigint", (64, False): "decimal(20,0)"}

MICROSECONDS = (
    "write its times in microseconds (pandas: coerce_timestamps='us', and allow_truncated_timestamps=True to cut them)"
)
"""The remedy for finer times, in words."""

_DAY = 86_400_000
_FAR_MILLIS = (2**31 - 2_440_588) * _DAY
"""The day 0 of a time of 96 bits is 2,440,588 days before 1970."""
_TURN_MICROS = 2**32 * _DAY * 1000
_ROWS_AT_ONCE = 1 << 14
_WRITTEN_BY_SPARK = b"org.apache.spark.version"


def columns_in(footer: pq.FileMetaData) -> Columns:
    """Return the columns of a file.

    Raises:
        TypeError: a column has a type that Spark does not read; the text names both.
    """
    return tuple((field.name, _nested(field, iter(leaves))) for field, leaves in fields_of(footer))


def fields_of(footer: pq.FileMetaData) -> list[tuple[pa.Field, list[Any]]]:
    """Return each column of a file in Arrow, with its leaves in Parquet."""
    leaves = leaves_of(footer)
    return [(field, [next(leaves) for _ in range(_parts(field.type))]) for field in footer.schema.to_arrow_schema()]


def leaves_of(footer: pq.FileMetaData) -> Iterator[Any]:
    """Return the leaves of columns in Parquet: the parts that have values."""
    return map(footer.schema.column, range(len(footer.schema)))


def has_nanoseconds(leaf: Any) -> bool:
    """Return whether a leaf has times in nanoseconds, which Spark does not read."""
    about = json.loads(leaf.logical_type.to_json())
    return bool(about["Type"] == "Timestamp" and about["timeUnit"] == "nanoseconds")


def _parts(kind: pa.DataType) -> int:
    return sum(_parts(inner.type) for inner in _inner(kind)) if types.is_nested(kind) else 1


def _inner(kind: pa.DataType) -> list[pa.Field]:
    if types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(number) for number in range(kind.num_fields)]


def _nested(field: pa.Field, leaves: Iterator[Any]) -> str:
    kind = field.type
    if not types.is_nested(kind):
        leaf = next(leaves)
        if (named := _named(leaf)) is None:
            about = json.loads(leaf.logical_type.to_json())["Type"]
            shown = leaf.physical_type if about == "None" else f"{leaf.physical_type} ({about.upper()})"
            raise TypeError(f"{leaf.path}, {shown}")
        return named
    inner = [(each.name, _nested(each, leaves)) for each in _inner(kind)]
    if types.is_struct(kind):
        return f"struct<{','.join(f'{name}:{named}' for name, named in inner)}>"
    return f"{'map' if types.is_map(kind) else 'array'}<{','.join(named for _, named in inner)}>"


def _named(leaf: Any) -> str | None:
    """Return Spark's type of a leaf; None if Spark does not read it."""
    about = json.loads(leaf.logical_type.to_json())
    match about["Type"]:
        case "Int":
            size = about["bitWidth"], about["isSigned"]
            return _WHOLE.get(size) or _UNSIGNED.get(size)
        case "Decimal":
            return f"decimal({leaf.precision},{leaf.scale})" if leaf.precision <= _MOST_DIGITS else None
        case "Timestamp":
            return "timestamp" if about["isAdjustedToUTC"] else "timestamp_ntz"
        case "Time":
            micros = about["timeUnit"] == "microseconds" and not about["isAdjustedToUTC"]
            return "time(6)" if micros else None
        case "Null":
            return _PLAIN.get((leaf.physical_type, "None"))
        case name:
            return _PLAIN.get((leaf.physical_type, name))


def refuse_fractions(path: Path) -> None:
    """Raise if a file has times of 96 bits with a fraction below a microsecond, which Spark would cut.

    Spark itself writes none. The two numbers that are compared may have overflowed by the same amount, so their
    difference is right.

    Raises:
        DataError: `[BAD_ROW]`.
    """
    footer = pq.read_metadata(path)
    paths = [leaf.path for leaf in leaves_of(footer) if leaf.physical_type == "INT96"]
    if not paths or _WRITTEN_BY_SPARK in (footer.metadata or {}):
        return
    files = [pq.ParquetFile(path, coerce_int96_timestamp_unit=unit) for unit in ("us", "ns")]
    row = 0
    for micros, nanos in zip(*(file.iter_batches(_ROWS_AT_ONCE, columns=paths) for file in files), strict=True):
        for name in micros.schema.names:
            nested = types.is_nested(micros.column(name).type)
            for one, other in zip(*(_instants(rows.column(name)) for rows in (micros, nanos)), strict=True):
                if (fractions := _numbers(other) - _numbers(one) * 1000).any():
                    raise too_fine(path, None if nested else row + int(fractions.argmax()), name)
        row += len(micros)


def _instants(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of times inside an array."""
    if types.is_timestamp(values.type):
        yield values
    elif types.is_struct(values.type):
        for inner in values.flatten():
            yield from _instants(inner)
    elif types.is_map(values.type):
        yield from _instants(values.keys)
        yield from _instants(values.items)
    else:
        yield from _instants(values.values)


def _numbers(times: pa.Array) -> np.ndarray:
    numbers: np.ndarray = times.view(pa.int64()).fill_null(0).to_numpy()
    return numbers


def first_fraction(times: pa.Array) -> int | None:
    """Return the index of the first time in nanoseconds that is no whole microsecond; None if all are."""
    fractions = _numbers(times) % 1000
    return int((fractions != 0).argmax()) if fractions.any() else None


def too_fine(path: str | Path, row: int | None, name: str) -> DataError:
    """Return the error of a time with a fraction below a microsecond, with its row if it is known."""
    place = "" if row is None else f"row {row + 1}: "
    what = f"column {name} has a time with a fraction below a microsecond, which no TIMESTAMP holds"
    return DataError("BAD_ROW", f"{path}: {place}{what}; {MICROSECONDS}, under a new name")


class Times96:
    """Columns of times of 96 bits in some row groups: a day in 32 bits and nanoseconds in 64 bits, both signed.

    Arrow ignores both signs. Spark writes negative days for years before -4712.

    Args:
        path, groups, names: The file, its row groups, and the columns.
    """

    def __init__(self, path: str, groups: list[int], names: list[str], rows: int) -> None:
        self._path, self._groups, self._names, self._rows = path, groups, names, rows
        self._millis = self._read("ms") if names else iter(())

    def _read(self, unit: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self._path, coerce_int96_timestamp_unit=unit) as file:
            options = {"row_groups": self._groups, "columns": self._names, "use_threads": False}
            yield from file.iter_batches(self._rows, **options)

    def as_spark_has_them(self, number: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Correct the next batch, with its number, which Arrow has read in microseconds."""
        millis = next(self._millis)  # milliseconds do not overflow
        for name in self._names:
            far = _numbers(millis.column(name)) >= _FAR_MILLIS
            if not far.any():
                continue
            nanos = next(islice(self._read("ns"), number, None))
            at = rows.schema.get_field_index(name)
            values = rows.column(at)
            micros = _numbers(values)
            below = (
                _numbers(nanos.column(name)) - micros * 1000
            ) == 2**64 % 1000  # a day before the epoch of the format
            signs = np.where(far, np.uint64(_TURN_MICROS % 2**64), np.uint64(0))
            signs += np.where(far & below, np.uint64(2**64 // 1000), np.uint64(0))
            moved = (micros.view(np.uint64) - signs).view(np.int64)
            made = pa.array(moved, mask=values.is_null().to_numpy(zero_copy_only=False))
            rows = rows.set_column(at, name, made.cast(values.type))
        return rows
