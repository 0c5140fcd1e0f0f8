"""Recent rows on Spark: Spark says when a row leaves, and a kernel lets it go."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.errors import InvalidError
from boatlift.operators.recent.kernel import LEAVES, RecentKernel
from boatlift.operators.recent.node import Recent
from boatlift.spark.compile.keyed import CompiledKeyed, KeyedInput, require_columns, rows_by_key
from boatlift.spark.compile.operator import Columns, Kit, SparkOperator, without_position
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.keyed_steps import KeyedSteps
from boatlift.spark.plans.fingerprint import fingerprint

__all__ = ["RecentOnSpark"]

NEVER_HELD = 0
"""The time at which a row without a time leaves: it has left before the first step."""


class RecentOnSpark(SparkOperator[Recent]):
    """Compiles recent rows."""

    def compile(self, operator: Recent, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
        """Compile recent rows.

        Raises:
            InvalidError: `[SCHEMA_MISMATCH]` there is no such column; `[TYPE_REFUSED]` it is no timestamp with a time
                zone, or rows cannot be told apart by a column.
        """
        takes, name = inputs[0], operator.name
        require_columns(name, (operator.column,), takes)
        kind = takes.schema[operator.column].dataType
        if not isinstance(kind, TimestampType):
            raise InvalidError(
                "TYPE_REFUSED",
                f"{name} goes by {operator.column}, a {kind.simpleString()}: cast it to TIMESTAMP in a transform "
                "before it",
            )
        rows = rows_by_key(name, takes.names, takes, kit)
        # Rounded up: a row holds as long as its time is later than the clock less the period.
        micros = F.unix_micros(F.col(quoted(operator.column)))
        leaves = F.coalesce(F.ceil(micros / F.lit(1000)).cast("long") + operator.period, F.lit(NEVER_HELD)).alias(
            LEAVES
        )
        weight = (F.col(WEIGHT),) if takes.changes else ()
        fields = [StructField(LEAVES, LongType()), *rows.frame.schema.fields]
        schema = StructType([*fields, *([StructField(WEIGHT, LongType())] if takes.changes else [])])
        ticks = None if operator.ticks is None else ("number",)
        taken = [KeyedInput((leaves, *rows.taken.selected, *weight), (LEAVES, *takes.names), schema)]
        if ticks is not None:
            number = kit.empty(without_position(inputs[1])).select("number").schema
            taken.append(KeyedInput((F.col("number"),), (), number))
        return CompiledKeyed(
            columns=Columns(name, rows.frame.schema, changes=True, keys=takes.keys),
            fingerprint=fingerprint(rows.frame),
            kernel=RecentKernel(name, rows.keys, takes.changes, ticks),
            inputs=tuple(taken),
        )

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> KeyedSteps:
        """Return steps over keyed state."""
        assert isinstance(unit.top, CompiledKeyed)
        return KeyedSteps(unit, jobs, unit.top.kernel)
