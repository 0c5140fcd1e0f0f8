"""Compiled aggregates by key: Spark evaluates keys and arguments, and a kernel computes the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from boatlift.dataflow.columns import LEAVES, WEIGHT, quoted
from boatlift.errors import InvalidError
from boatlift.kernels.aggregate import AggregateColumn, Layout
from boatlift.kernels.kernel import Kernel
from boatlift.spark.aggregates.columns import ParsedAggregates, parse_aggregates
from boatlift.spark.compile.keyed import CompiledKeyed, KeyedInput, RowsByKey, require_columns, rows_by_key
from boatlift.spark.compile.operator import Columns, Kit, without_position
from boatlift.spark.plans.catalyst import INPUT
from boatlift.spark.plans.column_rules import canonical_key
from boatlift.spark.plans.fingerprint import fingerprint


def compile_aggregates(
    name: str,
    keys: Sequence[str],
    columns: Sequence[Column],
    takes: Columns,
    kit: Kit,
    kernel: Callable[[Layout], Kernel],
    *,
    changes: bool,
) -> CompiledKeyed:
    """Compile aggregates by key.

    Args:
        keys: The columns to group by; none: all rows are one group.
        columns: Spark's aggregates, each with the name of its result.
        changes: Whether the result is a changelog.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`, `[UNSUPPORTED_AGGREGATE]`, `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]`.
    """
    frame = kit.empty(without_position(takes), weighted=True).alias(INPUT)
    missing = [key for key in keys if key not in takes.names]
    if missing:
        raise InvalidError(
            "SCHEMA_MISMATCH",
            f"{name} groups by {', '.join(missing)}, which {takes.origin} does not have: it has "
            f"{', '.join(takes.names)}",
        )
    parsed = parse_aggregates(frame, keys, columns)
    selected = (
        *(canonical_key(frame, key) for key in keys),
        *(column.alias(argument) for argument, column in parsed.arguments),
    )
    weight = (F.col(WEIGHT),) if takes.changes else ()
    arguments = frame.select(*selected, *weight)
    layout = _layout(parsed, keys, arguments.schema, kit, weighted=takes.changes)
    results = [StructField(each.output, each.spark_type) for each in parsed.aggregates]
    schema = StructType([*(takes.schema[key] for key in keys), *results])
    return CompiledKeyed(
        columns=Columns(
            name, schema, changes, keys=(frozenset(keys),) if changes else (), has_watermark=takes.has_watermark
        ),
        fingerprint=fingerprint(arguments) + parsed.fingerprint,
        results=parsed.fingerprint,
        kernel=kernel(layout),
        inputs=(KeyedInput((*selected, *weight), tuple(keys), arguments.schema),),
    )


def _layout(parsed: ParsedAggregates, keys: Sequence[str], schema: StructType, kit: Kit, *, weighted: bool) -> Layout:
    arrow = kit.arrow_of(schema)
    return Layout(
        tuple((key, arrow.field(key).type) for key in keys),
        tuple(
            AggregateColumn(each.function, each.argument, each.output, each.input_type, each.output_type)
            for each in parsed.aggregates
        ),
        null_on_overflow=str(kit.spark.conf.get("spark.sql.ansi.enabled")).lower() == "false",
        weighted=weighted,
    )


@dataclass(frozen=True, slots=True)
class CompiledUntil:
    """Rows that are kept until a time.

    Attributes:
        by_key: The rows, divided by all their columns.
        taken: The input of the kernel.
    """

    by_key: RowsByKey
    taken: KeyedInput


def compile_until(
    name: str, column: str, takes: Columns, kit: Kit, *, later: int, missing: int, inclusive: bool = False
) -> CompiledUntil:
    """Compile rows that leave some time after the time in a column.

    Args:
        later: The time from then until a row leaves, in milliseconds.
        missing: The time at which a row without a time leaves, in milliseconds since 1970.
        inclusive: Whether a row stays at the very moment at which `later` has passed.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` the column is missing; `[TYPE_REFUSED]` it is no timestamp, or the values of a
            column cannot be compared.
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
    return CompiledUntil(by_key, taken)
