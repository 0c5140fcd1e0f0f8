"""The gathering on Spark: the rows as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from boatlift.operators.gather.operator import Gather
from boatlift.spark.compile.operator import Columns, Compiled, Kit, SparkOperator, without_position
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.row_questions import check_row_conditions
from boatlift.spark.jobs.row_steps import RowSteps
from boatlift.spark.plans.column_rules import refuse_of_step
from boatlift.storage.records.payloads import StepClock

__all__ = ["GatherOnSpark"]


@dataclass(frozen=True, kw_only=True)
class CompiledGather(Compiled):
    """A gathering, compiled."""

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        """Return the rows."""
        del clock, state
        (rows,) = inputs
        assert rows is not None
        return rows


class GatherOnSpark(SparkOperator[Gather]):
    """Compiles gatherings."""

    def compile(self, operator: Gather, inputs: Sequence[Columns], kit: Kit) -> CompiledGather:
        """Compile a gathering.

        Raises:
            InvalidError: `[NOT_DETERMINISTIC]` the rows take clock or chance from a step; `[BAD_POLICY]` the policy
                cannot be asked of the rows.
        """
        (takes,) = inputs
        refuse_of_step(operator.name, of_step=takes.of_step)
        if operator.ends.asks_rows:
            check_row_conditions(operator.name, operator.ends, kit.empty(without_position(takes)))
        return CompiledGather(columns=replace(takes, origin=operator.name, positioned=False))

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> RowSteps:
        """Return steps that stage the rows."""
        return RowSteps(unit, jobs, again=False)
