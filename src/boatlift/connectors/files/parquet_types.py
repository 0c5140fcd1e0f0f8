"""The columns of a Parquet file as Spark has them, by the types that Parquet itself gives them.

Arrow may keep a schema of its own in a footer. It says how a writer had the values in memory, and Spark passes over it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from boatlift.connectors.kit import Columns

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


def columns_in(footer: pq.FileMetaData) -> Columns:
    """Return the columns of a file.

    Raises:
        TypeError: a column has a type that Spark does not read; the text names both.
    """
    return tuple((field.name, _nested(field, iter(leaves))) for field, leaves in fields_of(footer))


def fields_of(footer: pq.FileMetaData) -> list[tuple[pa.Field, list[Any]]]:
    """Return each column of a file as Arrow has it, with its parts that have values, as Parquet has them."""
    leaves = leaves_of(footer)
    return [(field, [next(leaves) for _ in range(_parts(field.type))]) for field in footer.schema.to_arrow_schema()]


def leaves_of(footer: pq.FileMetaData) -> Iterator[Any]:
    """Return the parts of columns that have values, as Parquet has them."""
    return map(footer.schema.column, range(len(footer.schema)))


def has_nanoseconds(leaf: Any) -> bool:
    """Return whether a part of a column has times in nanoseconds, which Spark does not read."""
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
    """Return the type that Spark has for a part of a column; None if it does not read it."""
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
