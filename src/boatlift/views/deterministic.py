"""The check that a query gives the same rows at each execution."""

from __future__ import annotations

import re

from pyspark.sql import DataFrame

from boatlift.errors import InvalidError
from boatlift.spark.plans.allowed import NONDETERMINISTIC, USER_FUNCTIONS
from boatlift.spark.plans.catalyst import analysed
from boatlift.spark.plans.clock import unseen
from boatlift.views.now import NOW

_INSTEAD = "add a column in a transform of a stream before the view"


def check_deterministic(frame: DataFrame, view: str, *, deterministic: bool | None) -> None:
    """Raise if a query may give other rows at another execution.

    The analysed plan is read, because the optimiser puts a literal in the place of `current_timestamp()`; and the
    optimised one, because the optimiser writes some operators with expressions of its own.

    Args:
        frame: The query over empty frames.
        deterministic: The user's declaration for functions that Spark does not know: True, or None for none.

    Raises:
        InvalidError: `[NOT_INCREMENTAL]`, with the expression and what to write instead.
    """
    plan = analysed(frame)
    used = {part.kind for part in plan.parts()}
    for kind in sorted(used & NONDETERMINISTIC.keys()):
        if kind in NOW:
            raise InvalidError(
                "NOT_INCREMENTAL",
                f"{view} uses {_function(kind)} otherwise than in a condition such as `at > now() - INTERVAL 1 HOUR` "
                "of a TIMESTAMP, alone or with AND in a WHERE, without months and days of a calendar: "
                f"{_INSTEAD}, with {NONDETERMINISTIC[kind]}",
            )
        raise InvalidError(
            "NOT_INCREMENTAL",
            f"{view} uses {_function(kind)}, whose value is another at each execution: {_INSTEAD}, with "
            f"{NONDETERMINISTIC[kind]}",
        )
    for what, instead in unseen(frame, plan, view):
        raise InvalidError("NOT_INCREMENTAL", f"{view} holds {what}, which differs from run to run: use {instead}")
    unknown = sorted(used & USER_FUNCTIONS)
    if deterministic is None and unknown:
        what = "a Python function" if unknown[0] == "PythonUDF" else f"a function of Java's ({_function(unknown[0])})"
        raise InvalidError(
            "NOT_INCREMENTAL",
            f"{view} calls {what}, which may give another value at each execution: write it with Spark's "
            "functions, or declare deterministic=True: @flow.view(deterministic=True), flow.sql(…, deterministic=True)",
        )


def _function(kind: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower() + "()"
