"""Duplicates on Spark: a kernel around the rows by key."""

from __future__ import annotations

from collections.abc import Sequence

from boatlift.errors import InvalidError
from boatlift.operators.duplicates.kernel import DuplicatesKernel
from boatlift.operators.duplicates.operator import Duplicates
from boatlift.spark.compile.keyed import CompiledKeyed, rows_by_key
from boatlift.spark.compile.operator import Columns, Kit, SparkOperator, no_watermark
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.keyed_steps import KeyedSteps
from boatlift.spark.plans.column_rules import refuse_maps
from boatlift.spark.plans.fingerprint import fingerprint

__all__ = ["DuplicatesOnSpark"]


class DuplicatesOnSpark(SparkOperator[Duplicates]):
    """Compiles duplicates."""

    def compile(self, operator: Duplicates, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
        """Compile duplicates.

        Raises:
            InvalidError: `[SCHEMA_MISMATCH]`, `[TYPE_REFUSED]`; `[NO_LATENESS]` duplicates are to be forgotten, and
                nothing says when.
        """
        (takes,) = inputs
        name, column = operator.name, None if operator.within is None else takes.watermark_column
        if operator.within is not None and column is None:
            raise InvalidError("NO_LATENESS", no_watermark(name, "drops duplicates within a time", takes))
        refuse_maps(takes.schema, name)
        rows = rows_by_key(name, operator.keys, takes, kit)
        kernel = DuplicatesKernel(name, rows.keys, rows.arrow, column, operator.within or 0)
        return CompiledKeyed(
            columns=Columns(
                name,
                rows.frame.schema,
                keys=(frozenset(operator.keys),) if operator.within is None else (),
                has_watermark=takes.has_watermark,
                watermark_column=takes.watermark_column,
            ),
            fingerprint=fingerprint(rows.frame),
            kernel=kernel,
            inputs=(rows.taken,),
        )

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> KeyedSteps:
        """Return steps over keyed state."""
        assert isinstance(unit.top, CompiledKeyed)
        return KeyedSteps(unit, jobs, unit.top.kernel)
