"""Recent rows on Spark: Spark says when a row leaves, and a kernel lets it go."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F

from boatlift.operators.recent.kernel import RecentKernel
from boatlift.operators.recent.operator import Recent
from boatlift.spark.aggregates.compiled import compile_until
from boatlift.spark.compile.keyed import CompiledKeyed, KeyedInput
from boatlift.spark.compile.operator import Columns, Kit, SparkOperator, without_position
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.keyed_steps import KeyedSteps
from boatlift.spark.plans.fingerprint import fingerprint

__all__ = ["RecentOnSpark"]

LEFT = 0
"""The time at which a row without a time leaves: before the first step."""


class RecentOnSpark(SparkOperator[Recent]):
    """Compiles recent rows."""

    def compile(self, operator: Recent, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
        """Compile recent rows.

        Raises:
            InvalidError: `[SCHEMA_MISMATCH]`, `[TYPE_REFUSED]`.
        """
        takes, name = inputs[0], operator.name
        made = compile_until(
            name, operator.column, takes, kit, later=operator.period, missing=LEFT, inclusive=operator.inclusive
        )
        ticks = None if operator.ticks is None else ("number",)
        taken = [made.taken]
        if ticks is not None:
            number = kit.empty(without_position(inputs[1])).select("number").schema
            taken.append(KeyedInput((F.col("number"),), (), number))
        return CompiledKeyed(
            columns=Columns(
                name, made.by_key.frame.schema, changes=True, keys=takes.keys, has_watermark=takes.has_watermark
            ),
            fingerprint=fingerprint(made.by_key.frame),
            keys=takes.keys,
            kernel=RecentKernel(made.rows, ticks),
            inputs=tuple(taken),
        )

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> KeyedSteps:
        """Return steps over keyed state."""
        assert isinstance(unit.top, CompiledKeyed)
        return KeyedSteps(unit, jobs, unit.top.kernel)
