"""Operators with epochs of their own, on Spark: the rows as they are, or any DataFrame operation over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pyspark.sql import DataFrame

from boatlift.operators.epochs.operator import Gather, Recompute
from boatlift.spark.compile.operator import Columns, Compiled, Kit, without_position
from boatlift.spark.jobs.row_questions import check_row_conditions
from boatlift.spark.plans.catalyst import INPUT
from boatlift.spark.plans.column_rules import refuse_of_step
from boatlift.spark.plans.fingerprint import calls_python, libraries
from boatlift.spark.plans.function_code import code_hash
from boatlift.spark.plans.row_wise import apply
from boatlift.spark.plans.step_functions import StepContext, step_context
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


@dataclass(frozen=True, kw_only=True)
class CompiledRecompute(Compiled):
    """A recomputation, compiled."""

    beside: ClassVar[bool] = True
    recompute: Recompute

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        del state
        (rows,) = inputs
        assert rows is not None
        return _recomputed(self.recompute, rows.drop(*self.recompute.marks), clock)


def compile_recompute(operator: Recompute, inputs: Sequence[Columns], kit: Kit) -> CompiledRecompute:
    """Compile a recomputation; its function is called on frames of no rows.

    Raises:
        InvalidError: `[NOT_DETERMINISTIC]` the rows take clock or chance from a step; `[BAD_POLICY]` the policy
            cannot be asked of the rows.
        UserCodeError: `[USER_CODE]`.
    """
    (takes,) = inputs
    rows = kit.empty(without_position(takes)).drop(*operator.marks)
    refuse_of_step(operator.name, of_step=takes.of_step)
    if operator.ends.asks_rows:
        check_row_conditions(operator.name, operator.ends, rows)
    frame = _recomputed(operator, rows.alias(INPUT), StepClock(0, 0))
    python = calls_python(frame)
    return CompiledRecompute(
        columns=Columns(operator.name, frame.schema),
        fingerprint=code_hash(operator.function),  # its plan may differ every time
        calls_python=python,
        libraries=libraries(frame) if python else {},
        recompute=operator,
    )


def _recomputed(operator: Recompute, rows: DataFrame, clock: StepClock) -> DataFrame:
    with step_context(StepContext(clock.clock, clock.seed, operator.name, False, False, True)):
        return apply(rows, operator.function, operator.name)


COMPILERS = {Gather: compile_gather, Recompute: compile_recompute}
