"""Recent rows on Spark: an expression gives the time at which a row leaves, and a kernel retracts the row then."""

from __future__ import annotations

from collections.abc import Sequence

from boatlift.operators.recent.kernel import RecentKernel
from boatlift.operators.recent.operator import Recent
from boatlift.spark.aggregates.compiled import compile_until
from boatlift.spark.compile.keyed import CompiledKeyed, ticks_input
from boatlift.spark.compile.operator import Columns, Kit
from boatlift.spark.plans.fingerprint import fingerprint

_BEFORE_ALL = 0
"""The time at which a row without a time leaves: before the first step."""


def compile_recent(operator: Recent, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile recent rows.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`, `[TYPE_REFUSED]`.
    """
    (takes, *ticks), name = inputs, operator.name
    made = compile_until(
        name,
        operator.column,
        takes,
        kit,
        later=operator.period_ms,
        missing=_BEFORE_ALL,
        inclusive=operator.inclusive,
    )
    by_time = [ticks_input(each, kit) for each in ticks]
    return CompiledKeyed(
        columns=Columns(
            name, made.by_key.frame.schema, changes=True, keys=takes.keys, has_watermark=takes.has_watermark
        ),
        fingerprint=fingerprint(made.by_key.frame),
        keys=takes.keys,
        kernel=RecentKernel(name, made.by_key.keys, takes.changes, ("number",) if ticks else None),
        inputs=(made.taken, *by_time),
    )


COMPILERS = {Recent: compile_recent}
