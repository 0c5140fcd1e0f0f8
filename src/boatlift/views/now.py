"""Temporal conditions of a query: `WHERE at > now() - INTERVAL 1 HOUR`, which rows leave as time passes."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node, items
from boatlift.views.shifted import has_calendar_days, interval_in

_LATER_FIRST = {"GreaterThan": (True, False), "GreaterThanOrEqual": (True, True)}
_LATER_SECOND = {"LessThan": (False, False), "LessThanOrEqual": (False, True)}
_LATER = _LATER_FIRST | _LATER_SECOND
"""A comparison to whether its first side is the later one, and whether both may be equal."""

NOW = frozenset({"Now", "CurrentTimestamp"})
"""The expressions that are the time of the step."""


@dataclass(frozen=True, slots=True)
class TemporalCondition:
    """The condition that the time of a row is less than a period ago.

    Attributes:
        attribute: The id of the attribute with the time of a row.
        period: The period, in milliseconds.
        inclusive: Whether a row holds that is just as long ago.
        others: The other conditions of the filter; None if there are none.
    """

    attribute: int
    period: int
    inclusive: bool
    others: Expression | None


def temporal_condition(node: Node, nodes: CatalystPlan) -> TemporalCondition | None:
    """Return the first temporal condition of a filter of an analysed plan; None if it has none."""
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
    """Return an expression as another one and the microseconds that are added to it; None of other forms."""
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
