"""The aggregate on Spark: exact sums, kept as state by a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from boatlift.kernels.aggregate import AggregateKernel
from boatlift.operators.aggregate.operator import Aggregate
from boatlift.spark.aggregates.compiled import compile_aggregates
from boatlift.spark.compile.keyed import CompiledKeyed
from boatlift.spark.compile.operator import Columns, Kit


def compile_aggregate(operator: Aggregate, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile an aggregate.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`, `[UNSUPPORTED_AGGREGATE]`, `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]`.
    """
    (takes,) = inputs
    kernel = partial(AggregateKernel, processor=operator.name)
    return compile_aggregates(operator.name, operator.keys, operator.columns, takes, kit, kernel, changes=True)


COMPILERS = {Aggregate: compile_aggregate}
