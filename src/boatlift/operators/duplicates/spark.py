"""Duplicates on Spark: a kernel over the rows by key."""

from __future__ import annotations

from collections.abc import Sequence

from boatlift.errors import InvalidError
from boatlift.operators.duplicates.kernel import DuplicatesKernel
from boatlift.operators.duplicates.operator import Duplicates
from boatlift.spark.compile.keyed import CompiledKeyed, rows_by_key
from boatlift.spark.compile.operator import Columns, Kit, no_watermark
from boatlift.spark.plans.column_rules import refuse_types
from boatlift.spark.plans.fingerprint import fingerprint


def compile_duplicates(operator: Duplicates, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile duplicates.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`, `[TYPE_REFUSED]`; `[NO_LATENESS]` keys are to expire, and the input has no
            watermark.
    """
    (takes,) = inputs
    name, column = operator.name, None if operator.within_ms is None else takes.watermark_column
    if operator.within_ms is not None and column is None:
        raise InvalidError("NO_LATENESS", no_watermark(name, "drops duplicates within a time", takes))
    refuse_types(takes.schema, name)
    rows = rows_by_key(name, operator.keys, takes, kit)
    return CompiledKeyed(
        columns=Columns(
            name,
            rows.frame.schema,
            keys=(frozenset(operator.keys),) if operator.within_ms is None else (),
            has_watermark=takes.has_watermark,
            watermark_column=takes.watermark_column,
        ),
        fingerprint=fingerprint(rows.frame),
        kernel=DuplicatesKernel(name, rows.keys, rows.arrow, column, operator.within_ms or 0),
        inputs=(rows.taken,),
    )


COMPILERS = {Duplicates: compile_duplicates}
