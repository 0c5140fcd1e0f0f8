"""The check that a query gives the same rows at each execution."""

from __future__ import annotations

import re

from pyspark.sql import DataFrame

from boatlift.errors import InvalidError
from boatlift.spark.incremental.nodes import PlanNodes
from boatlift.spark.incremental.now import NOW
from boatlift.spark.plans.allowed import NONDETERMINISTIC
from boatlift.spark.plans.fingerprint import calls_python

__all__ = ["check_deterministic"]

_CLASS = re.compile(r'"class":"org\.apache\.spark\.sql\.catalyst\.expressions\.([\w.]+)"')

_INSTEAD = "add a column in a transform of a stream before the view"


def check_deterministic(frame: DataFrame, nodes: PlanNodes, view: str, *, deterministic: bool | None) -> None:
    """Raise if a query may give other rows at another execution.

    The analysed plan is read, because the optimiser puts a literal in the place of `current_timestamp()`.

    Args:
        frame: The query over empty frames.
        nodes: Reads nodes.
        view: The view, for messages.
        deterministic: The user's declaration for Python functions: True, or None for none.

    Raises:
        InvalidError: `[NOT_INCREMENTAL]`, with the expression and what to write instead.
    """
    used = set(_CLASS.findall(str(nodes.analysed(frame).toJSON())))
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
    if deterministic is None and calls_python(frame):
        raise InvalidError(
            "NOT_INCREMENTAL",
            f"{view} calls a Python function, which may give another value at each execution: write it with Spark's "
            "functions, or declare deterministic=True: @flow.view(deterministic=True), flow.sql(…, deterministic=True)",
        )


def _function(kind: str) -> str:
    """Return a class of expressions as SQL writes it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower() + "()"
