"""Final rows on Spark: Spark says after which time a row stays, and a kernel gives it then."""

from __future__ import annotations

from collections.abc import Sequence

from boatlift.errors import InvalidError
from boatlift.operators.final.kernel import NEVER, FinalKernel
from boatlift.operators.final.operator import Final
from boatlift.spark.aggregates.compiled import compile_until
from boatlift.spark.compile.keyed import CompiledKeyed
from boatlift.spark.compile.operator import Columns, Kit, SparkOperator, no_watermark
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.keyed_steps import KeyedSteps
from boatlift.spark.plans.fingerprint import fingerprint

__all__ = ["FinalOnSpark"]


class FinalOnSpark(SparkOperator[Final]):
    """Compiles final rows."""

    def compile(self, operator: Final, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
        """Compile final rows.

        Raises:
            InvalidError: `[SCHEMA_MISMATCH]`, `[TYPE_REFUSED]`; `[NO_LATENESS]` nothing says when rows are final.
        """
        (takes,) = inputs
        name, column = operator.name, operator.column
        if not takes.has_watermark:
            raise InvalidError("NO_LATENESS", no_watermark(name, "gives rows that change no more", takes))
        made = compile_until(name, column, takes, kit, later=0, missing=NEVER)
        return CompiledKeyed(
            columns=Columns(
                name, made.by_key.frame.schema, keys=takes.keys, has_watermark=True, watermark_column=column
            ),
            fingerprint=fingerprint(made.by_key.frame),
            keys=takes.keys or None,
            kernel=FinalKernel(made.rows, column),
            inputs=(made.taken,),
        )

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> KeyedSteps:
        """Return steps over keyed state."""
        assert isinstance(unit.top, CompiledKeyed)
        return KeyedSteps(unit, jobs, unit.top.kernel)
