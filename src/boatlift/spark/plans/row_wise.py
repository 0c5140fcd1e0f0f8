"""Applies a user's transform and proves that it is row-wise.

A step may be divided in any way, executed again, or consist of changes. Its result stays the same only if the transform
computes the output of each row from that row alone (docs/design.md, section 6). `plan_check.py` proves this of the
analysed plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.advice import of_two
from boatlift.dataflow.columns import POSITION
from boatlift.errors import BoatliftError, InvalidError, UserCodeError
from boatlift.spark.plans.catalyst import INPUT, Tree, analysed, is_input
from boatlift.spark.plans.clock import dated, unseen
from boatlift.spark.plans.fingerprint import fingerprint
from boatlift.spark.plans.plan_check import PlanCheck
from boatlift.spark.plans.step_functions import current_context
from boatlift.spark.plans.tracebacks import own_frames, place
from boatlift.spark.plans.watermarks import refusing_watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OWN = f"{INPUT}own"
"""The mark of the input in the call that detects other frames."""


def apply(rows: DataFrame, function: Callable[[DataFrame], DataFrame], name: str) -> DataFrame:
    """Call a user's transform and return its result, in which a text without a date is no timestamp.

    Raises:
        UserCodeError: `[USER_CODE]` the function raised an error, which is the cause, or returned no DataFrame.
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

    No job runs. The function is called twice, and must build the same plan each time, so that a Python clock in a
    literal is detected.

    Args:
        rows: The input, empty or not.
        deterministic: The user's declaration. None: UDFs are refused. True: the UDFs are deterministic. False: the
            transform is nondeterministic, and may use expressions that differ from run to run.

    Returns:
        The function's result.

    Raises:
        InvalidError: `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]`, with processor, expression and remedy;
            `[NOT_ON_A_STREAM]` the function uses the frame of another transform.
        UserCodeError: `[USER_CODE]` as for `apply`.
    """
    marked = rows.alias(INPUT)
    context = current_context()
    calls = context.calls if context is not None else 0
    with refusing_watermarks(marked, name):
        result = apply(marked, function, name)
    plan, own = analysed(result), analysed(marked)
    # The plan has another frame, or a union of the input with itself, of which Spark renumbers one.
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
                f"{name} builds another plan at each call, so a replay would differ: take times and random values from "
                "bl.now(), bl.rand() and bl.uuid()",
            )
    return result


def _inputs(node: Tree) -> Iterator[Tree]:
    if is_input(node):
        yield node
    else:
        for child in node.children:
            yield from _inputs(child)


def _refuse_frames_from_elsewhere(node: Tree, name: str) -> None:
    """Raise if a plan has an input whose mark is of another call."""
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
    """Raise if a plan has hidden reads of the clock or of randomness."""
    plan = analysed(frame)
    for what, instead in unseen(frame, plan, name):
        raise InvalidError("NOT_DETERMINISTIC", f"{name} holds {what}, which differs from run to run: use {instead}")


def _summary(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


_EXACT: ContextVar[bool] = ContextVar("boatlift_exact_times", default=False)
"""Whether Python's dates and times become the same literals on every machine.

PySpark passes them on as `java.sql.Timestamp` and `java.sql.Date`: a time without a zone is then local to the machine,
and dates before 1582 move by days.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@contextmanager
def exact_times() -> Iterator[None]:
    """Convert dates and times to literals exactly in this block; a time without a zone is in UTC."""
    _register()
    token = _EXACT.set(True)
    try:
        yield
    finally:
        _EXACT.reset(token)


@cache
def _register() -> None:
    import pyspark.sql.types  # noqa: F401 - its converters are registered first
    from py4j.protocol import register_input_converter

    register_input_converter(_Times(), prepend=True)


class _Times:
    """A converter of Py4J."""

    def can_convert(self, value: object) -> bool:
        from pyspark.sql.utils import is_timestamp_ntz_preferred

        if not _EXACT.get() or not isinstance(value, date):
            return False
        naive = isinstance(value, datetime) and value.tzinfo is None
        return not (naive and is_timestamp_ntz_preferred())

    def convert(self, value: date, client: Any) -> Any:
        from py4j.java_gateway import JavaClass

        if not isinstance(value, datetime):
            return JavaClass("java.time.LocalDate", client).of(value.year, value.month, value.day)
        since = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH
        seconds = since // timedelta(seconds=1)
        return JavaClass("java.time.Instant", client).ofEpochSecond(seconds, since.microseconds * 1000)
