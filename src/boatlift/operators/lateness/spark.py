"""LATENESS on Spark: rows as they are, which the tasks of the last stage judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.errors import InvalidError
from boatlift.operators.lateness.operator import Watermark
from boatlift.operators.lateness.steps import WatermarkSteps
from boatlift.spark.compile.operator import Columns, Compiled, Kit, SparkOperator
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.plans.column_rules import refuse_maps
from boatlift.storage.records.payloads import StepClock

__all__ = ["CompiledWatermark", "WatermarkOnSpark"]


@dataclass(frozen=True, kw_only=True)
class CompiledWatermark(Compiled):
    """LATENESS, compiled."""

    selects: ClassVar[bool] = True

    lateness: Watermark

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        """Return the rows."""
        del clock, state
        (rows,) = inputs
        assert rows is not None
        weight = [WEIGHT] if self.columns.changes else []
        return rows.select(*(quoted(name) for name in (*self.columns.names, *weight)))


class WatermarkOnSpark(SparkOperator[Watermark]):
    """Compiles LATENESS."""

    def compile(self, operator: Watermark, inputs: Sequence[Columns], kit: Kit) -> CompiledWatermark:
        """Compile LATENESS.

        Raises:
            InvalidError: `[SCHEMA_MISMATCH]` there is no such column; `[TYPE_REFUSED]` it is no TIMESTAMP, or a column
                has a type that rows cannot be told apart by.
        """
        del kit
        (takes,) = inputs
        name, column = operator.name, operator.column
        if column not in takes.names:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"{name} goes by {column}, which {takes.origin} does not have: it has {', '.join(takes.names)}",
            )
        kind = takes.schema[column].dataType
        if not isinstance(kind, TimestampType):
            raise InvalidError(
                "TYPE_REFUSED",
                f"{name} goes by {column}, a {kind.simpleString()}: cast it to TIMESTAMP in a transform before it",
            )
        refuse_maps(takes.schema, name)
        timely = not operator.gives_late
        return CompiledWatermark(
            columns=Columns(
                name,
                takes.schema,
                takes.changes,
                keys=takes.keys
                if timely and not takes.changes
                else (),  # a late change leaves the row that it replaces
                has_watermark=timely,
                watermark_column=column if timely else None,
            ),
            lateness=operator,
            keys=() if takes.changes else None,
        )

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> WatermarkSteps:
        """Return steps that judge rows."""
        assert isinstance(unit.top, CompiledWatermark)
        return WatermarkSteps(unit, jobs, unit.top.lateness)
