"""The reduction on Spark: the kernel of an aggregate without its state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from boatlift.kernels.aggregate import ReduceKernel
from boatlift.operators.reduce.operator import Reduce
from boatlift.spark.aggregates.compiled import compile_aggregates
from boatlift.spark.compile.keyed import CompiledKeyed
from boatlift.spark.compile.operator import Columns, Kit, SparkOperator
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.keyed_steps import KeyedSteps

__all__ = ["ReduceOnSpark"]


class ReduceOnSpark(SparkOperator[Reduce]):
    """Compiles reductions."""

    def compile(self, operator: Reduce, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
        """Compile a reduction.

        Raises:
            InvalidError: `[SCHEMA_MISMATCH]`, `[UNSUPPORTED_AGGREGATE]`, `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]`.
        """
        (takes,) = inputs
        kernel = partial(ReduceKernel, processor=operator.name)
        return compile_aggregates(operator.name, operator.keys, operator.columns, takes, kit, kernel, changes=False)

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> KeyedSteps:
        """Return steps whose tasks run the kernel over their share of the keys."""
        assert isinstance(unit.top, CompiledKeyed)
        return KeyedSteps(unit, jobs, unit.top.kernel)
