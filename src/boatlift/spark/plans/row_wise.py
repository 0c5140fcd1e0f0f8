"""A user's transform, applied and proved row-wise.

A step may be divided in any way, executed again, or made of changes. Its result is the same only if the transform
computes the output of each row from that row alone (docs/design.md, section 6). So the analysed plan is checked against
the lists of `allowed.py` (`plan_check.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from boatlift.dataflow.advice import of_two
from boatlift.dataflow.columns import POSITION
from boatlift.errors import BoatliftError, InvalidError, UserCodeError
from boatlift.spark.plans.catalyst import INPUT, Tree, analysed, is_input
from boatlift.spark.plans.clock import dated, unseen
from boatlift.spark.plans.fingerprint import fingerprint
from boatlift.spark.plans.plan_check import PlanCheck
from boatlift.spark.plans.step_functions import current_context
from boatlift.spark.plans.time_literals import exact_times
from boatlift.spark.plans.tracebacks import own_frames, place
from boatlift.spark.plans.watermarks import refusing_watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OWN = f"{INPUT}own"
"""The mark of the input in a call of the function that shows whether it uses other frames."""


def apply(rows: DataFrame, function: Callable[[DataFrame], DataFrame], name: str) -> DataFrame:
    """Call a user's transform and return its result, in which a text without a date is no timestamp.

    Raises:
        UserCodeError: `[USER_CODE]` the function raised, or returned no DataFrame; the cause is its error, with its own
            traceback.
        InvalidError: `[NO_ROW_POSITION]`, `[NOT_DETERMINISTIC]` from `bl.rand()` and similar functions.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame

    context = current_context()
    if context is not None and context.positioned and POSITION not in rows.columns:
        context.positioned = False  # an earlier transform did not keep it
    try:
        with exact_times():
            result = function(rows)
    except BoatliftError:
        raise
    except Exception as error:
        if isinstance(error, AnalysisException) and f"with name `{POSITION}`" in str(error):
            raise InvalidError(
                "NO_ROW_POSITION",
                f"{name} draws from {POSITION}, but has dropped that column: name the columns that identify a row, or "
                "draw before select(…)",
            ) from error
        own = own_frames(error.__traceback__)
        raise UserCodeError("USER_CODE", f"{name} raised {_summary(error)}{place(own)}") from error.with_traceback(own)
    if not isinstance(result, DataFrame):
        raise UserCodeError("USER_CODE", f"{name} returned a {type(result).__name__}: return the transformed DataFrame")
    return dated(result)


def check_row_wise(
    rows: DataFrame, function: Callable[[DataFrame], DataFrame], name: str, deterministic: bool | None = None
) -> DataFrame:
    """Apply a user's transform, and prove that it is row-wise and gives the same rows on replay.

    No job runs. The function is called twice, and must build the same plan: so a Python clock in a literal is found
    too.

    Args:
        rows: The input, empty or not.
        deterministic: The user's declaration. None: there is none, and UDFs are refused. True: the UDFs are
            deterministic. False: the transform is not deterministic, and expressions whose value differs from run to
            run are accepted.

    Returns:
        The function's result.

    Raises:
        InvalidError: `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]`, with processor, offender and remedy; `[NOT_ON_A_STREAM]`
            the function uses the frame of another transform.
        UserCodeError: `[USER_CODE]` as for `apply`.
    """
    marked = rows.alias(INPUT)
    context = current_context()
    calls = context.calls if context is not None else 0
    with refusing_watermarks(marked, name):
        result = apply(marked, function, name)
    plan, own = analysed(result), analysed(marked)
    # A frame from elsewhere, or a union of the input with itself, of which Spark renumbers one.
    if any(node != own for node in _inputs(plan)):
        if context is not None:
            context.calls = calls
        _refuse_frames_from_elsewhere(analysed(apply(rows.alias(_OWN), function, name)), name)
    PlanCheck(name, deterministic, of_transform=True).check(plan)
    if deterministic is not False:
        _refuse_the_clock(result, name)
        if context is not None:
            context.calls = calls
        if fingerprint(apply(marked, function, name), content=False) != fingerprint(result, content=False):
            raise InvalidError(
                "NOT_DETERMINISTIC",
                f"{name} builds another plan at each call, so a replay would differ: take time and chance from "
                "bl.now(), bl.rand() and bl.uuid()",
            )
    return result


def _inputs(node: Tree) -> Iterator[Tree]:
    """Iterate over the topmost nodes that mark an input."""
    if is_input(node):
        yield node
    else:
        for child in node.children:
            yield from _inputs(child)


def _refuse_frames_from_elsewhere(node: Tree, name: str) -> None:
    """Raise if a plan has an input with another mark than that of its own call."""
    if is_input(node, _OWN):
        return
    if is_input(node):
        raise InvalidError(
            "NOT_ON_A_STREAM",
            f"{name} uses a DataFrame of another transform, or of another call, and can use only the rows of its "
            f"own step and static tables: {of_two('stream', 'other')}",
        )
    for child in node.children:
        _refuse_frames_from_elsewhere(child, name)


def check_expressions(frame: DataFrame, name: str, deterministic: bool | None = None) -> None:
    """Raise if the expressions of a frame's topmost node are not row-wise, or may differ on replay.

    Raises:
        InvalidError: as for `check_row_wise`.
    """
    PlanCheck(name, deterministic).expressions(analysed(frame))
    _refuse_the_clock(frame, name)


def _refuse_the_clock(frame: DataFrame, name: str) -> None:
    """Raise if clock or chance get into a plan in a way that its expressions do not show."""
    plan = analysed(frame)
    for what, instead in unseen(frame, plan, name):
        raise InvalidError("NOT_DETERMINISTIC", f"{name} holds {what}, which differs from run to run: use {instead}")


def _summary(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
