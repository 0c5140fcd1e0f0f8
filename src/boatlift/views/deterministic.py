"""Checks that a query gives the same rows at each execution, and finds its temporal conditions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import DataFrame

from boatlift.errors import InvalidError
from boatlift.spark.plans.allowed import NONDETERMINISTIC, USER_FUNCTIONS
from boatlift.spark.plans.catalyst import analysed, items
from boatlift.spark.plans.clock import unseen
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node
from boatlift.views.current_time import TIME_PLACES
from boatlift.views.shifted import has_calendar_days, interval_in

_INSTEAD = "add a column in a transform of a stream before the view"


def check_deterministic(frame: DataFrame, view: str, *, deterministic: bool | None, at_ticks: bool = False) -> None:
    """Raise if a query may give other rows at another execution.

    This reads the analysed plan, because the optimiser replaces `current_timestamp()` by a literal; and the optimised
    one, because the optimiser rewrites some operators with expressions of its own.

    Args:
        frame: The query over empty frames.
        deterministic: The user's declaration for functions that Spark does not know: True, or None for none.
        at_ticks: Whether the view says a period for `now()`.

    Raises:
        InvalidError: `[NOT_INCREMENTAL]`, with the expression and its replacement.
    """
    plan = analysed(frame)
    used = {part.kind for part in plan.parts()}
    for kind in sorted(used & NONDETERMINISTIC.keys()):
        if at_ticks and kind in TIME_PLACES:
            raise InvalidError(
                "NOT_INCREMENTAL",
                f"{view} uses {_function(kind)} in a subquery, in OVER, in a function that gives several rows, or "
                "beside an aggregate without GROUP BY: use it in a view of its own, below or above this one",
            )
        if kind in TIME_PLACES:
            raise InvalidError(
                "NOT_INCREMENTAL",
                f"{view} uses {_function(kind)} otherwise than in a condition such as `at > now() - INTERVAL 1 HOUR` "
                "of a TIMESTAMP, alone or with AND in a WHERE, without months and days of a calendar: say how often "
                "its rows change, as in flow.sql(…, now='1 minute') or @flow.view(now='1 minute'); "
                f"or {_INSTEAD}, with {NONDETERMINISTIC[kind]}",
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


_LATER_FIRST = {"GreaterThan": (True, False), "GreaterThanOrEqual": (True, True)}
_LATER_SECOND = {"LessThan": (False, False), "LessThanOrEqual": (False, True)}
_LATER = _LATER_FIRST | _LATER_SECOND
"""A comparison to whether its first operand is the later one, and whether both may be equal."""

NOW = frozenset({"Now", "CurrentTimestamp"})
"""The expressions for the time of the step."""


@dataclass(frozen=True, slots=True)
class TemporalCondition:
    """A temporal condition: `WHERE at > now() - INTERVAL 1 HOUR`, which rows stop to fulfil as time passes."""

    attribute: int
    """The id of the attribute with the time of a row."""
    period: int
    inclusive: bool
    """Whether a row fulfils it at exactly this age."""
    others: Expression | None


def temporal_condition(node: Node, nodes: CatalystPlan) -> TemporalCondition | None:
    """Return the first temporal condition of a filter in an analysed plan; None if there is none."""
    parts = nodes.conjuncts(node.condition())
    for number, part in enumerate(parts):
        kind = nodes.kind(part)
        if kind not in _LATER:
            continue
        later_first, inclusive = _LATER[kind]
        first, second = items(part.children())
        later, earlier = (first, second) if later_first else (second, first)
        column, now = _plus(later, nodes), _plus(earlier, nodes)
        if column is None or now is None or nodes.kind(now[0]) not in NOW:
            continue
        microseconds = column[1] - now[1]
        if nodes.kind(column[0]) != "AttributeReference" or microseconds % 1000:
            continue
        others = nodes.all_of([each for place, each in enumerate(parts) if place != number])
        return TemporalCondition(nodes.id(column[0]), microseconds // 1000, inclusive, others)
    return None


def _plus(expression: Expression, nodes: CatalystPlan) -> tuple[Expression, int] | None:
    """Return an expression as another one plus microseconds; None for other forms."""
    children = items(expression.children())
    match nodes.kind(expression):
        case "AttributeReference" | "Now" | "CurrentTimestamp":
            return expression, 0
        case "Cast" if str(expression.dataType().catalogString()) == "timestamp":
            same = str(children[0].dataType().catalogString()) == "timestamp"
            return _plus(children[0], nodes) if same else None
        case "DatetimeSub":
            return _plus(children[0], nodes)
        case "TimestampAddInterval":
            added, below = interval_in(expression), _plus(children[0], nodes)
            if added is None or below is None or has_calendar_days(expression, added):
                return None
            return below[0], below[1] + added
        case _:
            return None
