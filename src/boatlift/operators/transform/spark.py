"""The transform on Spark: the user's function, proved row-wise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pyspark.sql import DataFrame

from boatlift.dataflow.columns import POSITION
from boatlift.errors import BoatliftError
from boatlift.operators.transform.operator import Transform
from boatlift.spark.compile.operator import OWN_POSITION, Columns, Compiled, Kit
from boatlift.spark.plans.catalyst import INPUT, analysed, analysed_text, passed_on
from boatlift.spark.plans.column_rules import refuse_reserved
from boatlift.spark.plans.fingerprint import calls_python, fingerprint, libraries
from boatlift.spark.plans.function_code import code_hash
from boatlift.spark.plans.row_wise import apply, check_row_wise
from boatlift.spark.plans.step_functions import MARK, StepContext, step_context
from boatlift.storage.records.payloads import StepClock
from boatlift.views.catalyst_plan import CatalystPlan
from boatlift.views.unique_keys import unique_keys


@dataclass(frozen=True, kw_only=True)
class CompiledTransform(Compiled):
    """A transform, compiled."""

    row_wise: ClassVar[bool] = True
    transform: Transform
    takes: Columns

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        del state
        (rows,) = inputs
        assert rows is not None
        with step_context(_context(self.transform, self.takes, clock)):
            return apply(rows, self.transform.function, self.transform.name)


def compile_transform(operator: Transform, inputs: Sequence[Columns], kit: Kit) -> CompiledTransform:
    """Compile a transform; its function is called several times, on frames of no rows.

    Raises:
        InvalidError: `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]`, `[NOT_ON_A_STREAM]`, `[NO_ROW_POSITION]`,
            `[RESERVED_NAME]`.
        UserCodeError: `[USER_CODE]`.
    """
    (takes,) = inputs
    rows = kit.empty(takes)
    vouched = (operator.vouched or None) if operator.deterministic else False
    with step_context(_context(operator, takes, StepClock(0, 0))):
        frame = check_row_wise(rows, operator.function, operator.name, vouched)
    positioned = POSITION in frame.columns
    if positioned and frame.schema[POSITION].metadata != OWN_POSITION:
        refuse_reserved([POSITION], operator.name)
    kit.pin(frame)
    plain = frame.drop(POSITION) if positioned else frame
    python, keys = calls_python(frame), _keys(plain, rows, takes, kit)
    by_place = takes.positioned and _computes_with_position(plain)
    return CompiledTransform(
        columns=Columns(
            operator.name,
            plain.schema,
            takes.changes,
            positioned,
            takes.of_step or MARK in analysed_text(frame),
            keys,
            has_watermark=takes.has_watermark,
            without_watermark=takes.without_watermark,
            watermark_column=None if takes.watermark_column is None else passed_on(frame, takes.watermark_column),
        ),
        fingerprint=_fingerprint(operator, takes, plain, kit, by_place=by_place),
        calls_python=python,
        libraries=libraries(frame) if python else {},
        keys=keys if takes.changes else None,
        by_place=by_place,
        transform=operator,
        takes=takes,
    )


def _fingerprint(transform: Transform, takes: Columns, frame: DataFrame, kit: Kit, *, by_place: bool) -> str:
    """Return the hash of a transform's plan.

    Rows lose their position when another unit reads them. So the plan is hashed as it is without the position,
    unless the function uses the position: then it is another program where the rows have none.
    """
    if not transform.deterministic:
        return code_hash(transform.function)  # its plan may differ every time
    if takes.positioned and not by_place:
        bare = replace(takes, positioned=False)
        try:
            with step_context(_context(transform, bare, StepClock(0, 0))):
                frame = apply(kit.empty(bare).alias(INPUT), transform.function, transform.name)
        except BoatliftError:
            pass  # the function draws from the position, or selects it
    return fingerprint(frame)


def _computes_with_position(frame: DataFrame) -> bool:
    """Return whether a plan computes something from `_position`, in whatever way it names it (`struct("*")`)."""
    return any(
        each.fields.get("name") == POSITION
        for node in analysed(frame).walk()
        for root in node.expressions()
        if root.kind != "AttributeReference"
        for each in root.walk()
        if each.kind == "AttributeReference"
    )


def _keys(frame: DataFrame, rows: DataFrame, takes: Columns, kit: Kit) -> tuple[frozenset[str], ...]:
    """Return the sets of columns that tell rows apart behind a transform, which makes no new ones."""
    if not takes.keys:
        return ()
    nodes = CatalystPlan(kit.spark)
    return unique_keys(nodes.optimised(frame), nodes, {nodes.rdd_of(rows): takes.keys})


def _context(transform: Transform, takes: Columns, clock: StepClock) -> StepContext:
    return StepContext(
        clock.clock, clock.seed, transform.name, takes.positioned, takes.changes, not transform.deterministic
    )


COMPILERS = {Transform: compile_transform}
