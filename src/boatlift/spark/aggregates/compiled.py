"""Aggregates by key, compiled: Spark evaluates keys and arguments, and a kernel computes the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import InvalidError
from boatlift.kernels.aggregate import AggregateColumn, Layout
from boatlift.kernels.kernel import KeyedKernel
from boatlift.spark.aggregates.columns import ParsedAggregates, parse_aggregates
from boatlift.spark.compile.keyed import CompiledKeyed, KeyedInput
from boatlift.spark.compile.operator import Columns, Kit, without_position
from boatlift.spark.plans.canonical_keys import canonical_key
from boatlift.spark.plans.catalyst import INPUT
from boatlift.spark.plans.fingerprint import fingerprint


def compile_aggregates(
    name: str,
    keys: Sequence[str],
    columns: Sequence[Column],
    takes: Columns,
    kit: Kit,
    kernel: Callable[[Layout], KeyedKernel],
    *,
    changes: bool,
) -> CompiledKeyed:
    """Compile aggregates by key.

    Args:
        keys: The columns to group by; none: all rows are one group.
        columns: Spark's aggregates, each with its result's name.
        kit: Makes empty frames.
        changes: Whether the result is changes.

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
