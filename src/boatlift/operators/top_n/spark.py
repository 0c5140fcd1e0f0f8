"""The first rows of each key on Spark: a kernel over the rows by key."""

from __future__ import annotations

from collections.abc import Sequence

from boatlift.errors import InvalidError
from boatlift.operators.top_n.kernel import TopNKernel
from boatlift.operators.top_n.operator import TopN
from boatlift.spark.compile.keyed import CompiledKeyed, require_columns, rows_by_key, weighted_input
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
    keys = (frozenset(operator.keys), *takes.keys) if operator.count == 1 else takes.keys
    return CompiledKeyed(
        columns=Columns(name, rows.frame.schema, changes=True, keys=keys, has_watermark=takes.has_watermark),
        fingerprint=fingerprint(rows.frame),
        keys=keys,
        kernel=TopNKernel(name, rows.keys, rows.arrow, takes.changes, operator.count, order),
        inputs=(weighted_input(rows.taken, takes),),
    )


COMPILERS = {TopN: compile_top_n}
