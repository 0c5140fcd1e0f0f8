"""The gathering on Spark: the rows as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from boatlift.operators.gather.operator import Gather
from boatlift.spark.compile.operator import Columns, Compiled, Kit, without_position
from boatlift.spark.jobs.row_questions import check_row_conditions
from boatlift.spark.plans.column_rules import refuse_of_step
from boatlift.storage.records.payloads import StepClock


@dataclass(frozen=True, kw_only=True)
class CompiledGather(Compiled):
    """A gathering, compiled."""

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        del clock, state
        (rows,) = inputs
        assert rows is not None
        return rows


def compile_gather(operator: Gather, inputs: Sequence[Columns], kit: Kit) -> CompiledGather:
    """Compile a gathering.

    Raises:
        InvalidError: `[NOT_DETERMINISTIC]` the rows have values of the clock or of random numbers of a step;
            `[BAD_POLICY]` the rows cannot answer the policy's condition.
    """
    (takes,) = inputs
    refuse_of_step(operator.name, of_step=takes.of_step)
    if operator.ends.asks_rows:
        check_row_conditions(operator.name, operator.ends, kit.empty(without_position(takes)))
    return CompiledGather(columns=replace(takes, origin=operator.name, positioned=False))


COMPILERS = {Gather: compile_gather}
