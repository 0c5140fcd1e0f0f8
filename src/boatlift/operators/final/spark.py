"""Final rows on Spark: an expression gives the time after which a row stays, and a kernel emits the row then."""

from __future__ import annotations

from collections.abc import Sequence

from boatlift.errors import InvalidError
from boatlift.operators.final.kernel import NEVER, FinalKernel
from boatlift.operators.final.operator import Final
from boatlift.spark.aggregates.compiled import compile_until
from boatlift.spark.compile.keyed import CompiledKeyed
from boatlift.spark.compile.operator import Columns, Kit, no_watermark
from boatlift.spark.plans.fingerprint import fingerprint


def compile_final(operator: Final, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile final rows.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`, `[TYPE_REFUSED]`; `[NO_LATENESS]` the input has no watermark.
    """
    (takes,) = inputs
    name, column = operator.name, operator.column
    if not takes.has_watermark:
        raise InvalidError("NO_LATENESS", no_watermark(name, "gives rows that change no more", takes))
    made = compile_until(name, column, takes, kit, later=0, missing=NEVER)
    return CompiledKeyed(
        columns=Columns(name, made.by_key.frame.schema, keys=takes.keys, has_watermark=True, watermark_column=column),
        fingerprint=fingerprint(made.by_key.frame),
        keys=takes.keys or None,
        kernel=FinalKernel(name, made.by_key.keys, takes.changes, column=column),
        inputs=(made.taken,),
    )


COMPILERS = {Final: compile_final}
