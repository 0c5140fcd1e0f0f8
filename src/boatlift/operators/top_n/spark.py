"""The first rows of each key on Spark: a kernel over the rows by key."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import InvalidError
from boatlift.operators.top_n.kernel import TopNKernel
from boatlift.operators.top_n.operator import TopN
from boatlift.spark.compile.keyed import CompiledKeyed, KeyedInput, require_columns, rows_by_key
from boatlift.spark.compile.operator import Columns, Kit
from boatlift.spark.plans.column_rules import refuse_types
from boatlift.spark.plans.fingerprint import fingerprint
from boatlift.state.column import is_supported


def compile_top_n(operator: TopN, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile the first rows of each key.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` there is no such column; `[TYPE_REFUSED]` a column cannot be a key, or has no
            order.
    """
    (takes,) = inputs
    name, order = operator.name, tuple(operator.order())
    require_columns(name, [column for column, _ in order], takes)
    refuse_types(takes.schema, name)
    rows = rows_by_key(name, operator.keys, takes, kit)
    for column, _ in order:
        if not is_supported(rows.arrow.field(column).type):
            kind = takes.schema[column].dataType.simpleString()
            raise InvalidError(
                "TYPE_REFUSED", f"{name} orders by {column}, a {kind}: order by columns of numbers, text or times"
            )
    taken = rows.taken
    if takes.changes:
        schema = StructType([*taken.schema.fields, StructField(WEIGHT, LongType())])
        taken = KeyedInput((*taken.selected, F.col(WEIGHT)), taken.keys, schema)
    keys = (frozenset(operator.keys), *takes.keys) if operator.count == 1 else takes.keys
    return CompiledKeyed(
        columns=Columns(name, rows.frame.schema, changes=True, keys=keys, has_watermark=takes.has_watermark),
        fingerprint=fingerprint(rows.frame),
        keys=keys,
        kernel=TopNKernel(name, rows.keys, rows.arrow, operator.count, order, takes.changes),
        inputs=(taken,),
    )


COMPILERS = {TopN: compile_top_n}
