"""The union on Spark."""

from __future__ import annotations

from collections.abc import Sequence

from boatlift.operators.union.operator import Union
from boatlift.spark.compile.operator import Columns, Kit, SparkOperator
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.compile.united import United, unite
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.row_steps import RowSteps

__all__ = ["UnionOnSpark"]


class UnionOnSpark(SparkOperator[Union]):
    """Compiles unions."""

    def compile(self, operator: Union, inputs: Sequence[Columns], kit: Kit) -> United:
        """Compile a union.

        Raises:
            InvalidError: `[SCHEMA_MISMATCH]` the columns of its streams differ.
        """
        del kit
        return unite(operator.name, inputs)

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> RowSteps:
        """Return steps that stage the rows."""
        return RowSteps(unit, jobs)
