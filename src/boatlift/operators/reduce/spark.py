"""The reduction on Spark: the kernel of an aggregate without its state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from boatlift.kernels.aggregate import ReduceKernel
from boatlift.operators.reduce.operator import Reduce
from boatlift.spark.aggregates.compiled import compile_aggregates
from boatlift.spark.compile.keyed import CompiledKeyed
from boatlift.spark.compile.operator import Columns, Kit


def compile_reduce(operator: Reduce, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile a reduction.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`, `[UNSUPPORTED_AGGREGATE]`, `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]`.
    """
    (takes,) = inputs
    kernel = partial(ReduceKernel, processor=operator.name)
    return compile_aggregates(operator.name, operator.keys, operator.columns, takes, kit, kernel, changes=False)


COMPILERS = {Reduce: compile_reduce}
