"""Changes from an external system, on Spark: each row as often as its weight says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StructType

from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.errors import InvalidError
from boatlift.operators.changes.operator import Changes
from boatlift.spark.compile.operator import Columns, Compiled, Kit
from boatlift.spark.jobs.diagnosis import RAISED_BAD_ROW
from boatlift.spark.plans.catalyst import INPUT
from boatlift.spark.plans.clock import dated
from boatlift.spark.plans.fingerprint import fingerprint
from boatlift.spark.plans.row_wise import check_row_wise
from boatlift.storage.records.payloads import StepClock

LARGEST_WEIGHT = 1_000_000
"""The largest weight of a row: the row is written so often."""

_SHOWN = 500


@dataclass(frozen=True, kw_only=True)
class CompiledChanges(Compiled):
    """A changes operator, compiled."""

    weight: str

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        del clock, state
        (rows,) = inputs
        assert rows is not None
        kept = [F.col(quoted(name)) for name in self.columns.names]
        weight = _checked(self.weight, self.columns.origin, kept)
        signs = F.array_repeat(F.signum(weight).cast("long"), F.abs(weight).cast("int"))
        return dated(rows.select(*kept, F.explode(signs).alias(WEIGHT)))


def compile_changes(operator: Changes, inputs: Sequence[Columns], kit: Kit) -> CompiledChanges:
    """Compile a changes operator.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]` the weight is no whole number, or no column that it names is there;
            `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]`.
    """
    (takes,) = inputs
    bare = replace(takes, positioned=False)
    try:
        (field,) = kit.empty(bare).select(F.expr(operator.weight)).schema.fields
    except AnalysisException as error:
        raise InvalidError(
            "SCHEMA_MISMATCH",
            f"the weight of {operator.name} is {operator.weight}, which Spark does not understand: "
            f"{str(error).partition(chr(10))[0]}; choose from {', '.join(takes.names)}",
        ) from error
    if not isinstance(field.dataType, IntegralType):
        raise InvalidError(
            "SCHEMA_MISMATCH",
            f"the weight of {operator.name} is {operator.weight}, of type {field.dataType.simpleString()}: give a "
            "whole number, such as CASE WHEN op = 'D' THEN -1 ELSE 1 END",
        )
    check_row_wise(kit.empty(bare), lambda rows: rows.select(F.expr(operator.weight)), operator.name, None)
    schema = StructType([field for field in takes.schema.fields if field.name != operator.weight])
    compiled = CompiledChanges(
        columns=Columns(operator.name, schema, changes=True, has_watermark=takes.has_watermark),
        weight=operator.weight,
        keys=(),
    )
    # Of the weight alone: the error of a bad row has a random sign.
    return replace(compiled, fingerprint=fingerprint(kit.empty(bare).alias(INPUT).select(F.expr(operator.weight))))


def _checked(weight: str, name: str, row: Sequence[Column]) -> Column:
    """Return a checked weight: NULL, and one beyond `LARGEST_WEIGHT`, raises the error of a bad row."""
    given = F.expr(weight).cast("long")
    shown = F.substring(F.to_json(F.struct(*row)), 1, _SHOWN)

    def bad(*flaw: str | Column) -> Column:
        parts = (F.lit(each) if isinstance(each, str) else each for each in flaw)
        return F.raise_error(F.concat(F.lit(f"{RAISED_BAD_ROW}a row of {name} has "), *parts, F.lit(": "), shown))

    large = bad(f"the weight {weight} of ", given.cast("string"), f", and {LARGEST_WEIGHT:,} is the largest")
    checked = F.when(given.isNull(), bad(f"no weight: {weight} is NULL"))
    return checked.when(given.between(-LARGEST_WEIGHT, LARGEST_WEIGHT), given).otherwise(large)


COMPILERS = {Changes: compile_changes}
