"""Partial aggregates of the streams of a union, and the aggregate that combines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from boatlift.dataflow.columns import quoted
from boatlift.errors import InternalError, InvalidError
from boatlift.kernels.aggregate import CombiningKernel, PartialKernel
from boatlift.kernels.aggregate.partial_rows import ADDENDS, extreme_columns
from boatlift.spark.aggregates.compiled import compile_aggregates
from boatlift.spark.compile.keyed import CompiledKeyed, KeyedInput
from boatlift.spark.compile.operator import Columns, Kit


def compile_partials(
    name: str, keys: Sequence[str], columns: Sequence[Column], takes: Columns, kit: Kit
) -> CompiledKeyed:
    """Compile the partial aggregates of one stream.

    Raises:
        InvalidError: as `compile_aggregates`.
    """
    whole = compile_aggregates(name, keys, columns, takes, kit, partial(PartialKernel, processor=name), changes=False)
    layout = _kernel_of(whole).layout
    (taken,) = whole.inputs
    types = [field.dataType for field in taken.schema.fields[len(keys) :]]
    extremes = [
        StructField(column, LongType() if layout.by_code(number) else types[number])
        for column, number in extreme_columns(layout)
    ]
    schema = StructType([*(takes.schema[key] for key in keys), StructField(ADDENDS, BinaryType(), False), *extremes])
    return replace(
        whole, columns=Columns(name, schema, has_watermark=takes.has_watermark, partials=(whole,)), results=""
    )


def compile_combined(name: str, takes: Columns, kit: Kit) -> CompiledKeyed:
    """Compile an aggregate of partial aggregates; its state and its rows are those of an aggregate of the rows.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` the streams' columns have other types; as `compile_aggregates`.
    """
    del kit
    wholes = [each for each in takes.partials if isinstance(each, CompiledKeyed)]
    first = wholes[0]
    layouts = [_kernel_of(each).layout for each in wholes]
    other = next(
        (at for at, each in enumerate(layouts) if replace(each, weighted=layouts[0].weighted) != layouts[0]), 0
    )
    if other:
        raise InvalidError(
            "SCHEMA_MISMATCH",
            f"{name} aggregates columns that have other types in {wholes[other].columns.origin} than in "
            f"{first.columns.origin}: give the streams the same columns of the same types",
        )
    layout = replace(layouts[0], weighted=any(each.weighted for each in layouts))
    keys = tuple(key for key, _ in layout.keys)
    results = first.columns.schema.fields[len(keys) :]
    schema = StructType([*(takes.schema[key] for key in keys), *results])  # a key may be NULL in one stream alone
    return CompiledKeyed(
        columns=Columns(name, schema, changes=True, keys=(frozenset(keys),), has_watermark=takes.has_watermark),
        fingerprint=first.results,
        results=first.results,
        kernel=CombiningKernel(layout, name),
        inputs=(KeyedInput(tuple(F.col(quoted(each)) for each in takes.names), keys, takes.schema),),
    )


def _kernel_of(whole: CompiledKeyed) -> PartialKernel:
    if not isinstance(whole.kernel, PartialKernel):
        raise InternalError("INTERNAL", f"{whole.columns.origin} has no kernel of partial aggregates")
    return whole.kernel
