"""Rows that are held until a time, compiled: Spark says when a row leaves."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from boatlift.dataflow.columns import LEAVES, WEIGHT, quoted
from boatlift.errors import InvalidError
from boatlift.kernels.rows_until import RowsUntil
from boatlift.spark.compile.keyed import KeyedInput, RowsByKey, require_columns, rows_by_key
from boatlift.spark.compile.operator import Columns, Kit


@dataclass(frozen=True, slots=True)
class CompiledUntil:
    """Rows that are held until a time.

    Attributes:
        rows: The rows, as a kernel has them.
        by_key: The rows, divided by all their columns.
        taken: The input of the kernel.
    """

    rows: RowsUntil
    by_key: RowsByKey
    taken: KeyedInput


def compile_until(
    name: str, column: str, takes: Columns, kit: Kit, *, later: int, missing: int, inclusive: bool = False
) -> CompiledUntil:
    """Compile rows that leave some time after the time that a column has.

    Args:
        kit: Makes empty frames.
        later: How long after that time a row leaves, in milliseconds.
        missing: When a row without a time leaves, in milliseconds since 1970.
        inclusive: Whether a row still holds when just so much time has passed.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` there is no such column; `[TYPE_REFUSED]` it is no timestamp, or rows cannot
            be told apart by a column.
    """
    require_columns(name, (column,), takes)
    kind = takes.schema[column].dataType
    if not isinstance(kind, TimestampType):
        raise InvalidError(
            "TYPE_REFUSED",
            f"{name} goes by {column}, a {kind.simpleString()}: cast it to TIMESTAMP in a transform before it",
        )
    by_key = rows_by_key(name, takes.names, takes, kit, does="tells rows apart by")
    # Rounded up, so that a row never leaves before its time.
    micros = F.unix_micros(F.col(quoted(column)))
    thousandth = micros / F.lit(1000)
    milliseconds = F.floor(thousandth) + F.lit(1) if inclusive else F.ceil(thousandth)
    leaves = F.coalesce(milliseconds.cast("long") + later, F.lit(missing)).alias(LEAVES)
    weight = (F.col(WEIGHT),) if takes.changes else ()
    fields = [StructField(LEAVES, LongType()), *by_key.frame.schema.fields]
    schema = StructType([*fields, *([StructField(WEIGHT, LongType())] if takes.changes else [])])
    taken = KeyedInput((leaves, *by_key.taken.selected, *weight), (LEAVES, *takes.names), schema)
    return CompiledUntil(RowsUntil(name, by_key.keys, takes.changes), by_key, taken)
