"""Temporal filters of a query: `WHERE at > now() - INTERVAL 1 HOUR`, which rows leave as time passes."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.spark.incremental.nodes import Expression, Node, PlanNodes, items

__all__ = ["NOW", "TemporalFilter", "temporal_filter"]

_LATER_FIRST = {"GreaterThan": (True, False), "GreaterThanOrEqual": (True, True)}
_LATER_SECOND = {"LessThan": (False, False), "LessThanOrEqual": (False, True)}
_COMPARISONS = _LATER_FIRST | _LATER_SECOND
"""A comparison to whether its first side is the later one, and whether both may be equal."""

NOW = frozenset({"Now", "CurrentTimestamp"})


@dataclass(frozen=True, slots=True)
class TemporalFilter:
    """The rows whose time is less than a period ago.

    Attributes:
        column: The column with the time of a row.
        period: The period, in milliseconds.
        inclusive: Whether a row holds that is just as long ago.
    """

    column: str
    period: int
    inclusive: bool


def temporal_filter(node: Node, nodes: PlanNodes) -> tuple[TemporalFilter, Expression | None] | None:
    """Return the first temporal filter of a filter of an analysed plan, and its other conditions; None if it has none.

    Args:
        node: The filter.
        nodes: Reads nodes.
    """
    parts = nodes.conjuncts(node.condition())
    for number, part in enumerate(parts):
        kind = nodes.kind(part)
        if kind not in _COMPARISONS:
            continue
        later_first, inclusive = _COMPARISONS[kind]
        first, second = items(part.children())
        later, earlier = (first, second) if later_first else (second, first)
        column, now = _plus(later, nodes), _plus(earlier, nodes)
        if column is None or now is None or nodes.kind(now[0]) not in NOW:
            continue
        microseconds = column[1] - now[1]
        if nodes.kind(column[0]) != "AttributeReference" or microseconds % 1000:
            continue
        others = [each for place, each in enumerate(parts) if place != number]
        return TemporalFilter(str(column[0].name()), microseconds // 1000, inclusive), nodes.all_of(others)
    return None


def _plus(expression: Expression, nodes: PlanNodes) -> tuple[Expression, int] | None:
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
        case "TimestampAddInterval" if children[1].foldable():
            added = children[1].eval(None)
            below = _plus(children[0], nodes)
            return None if below is None or not isinstance(added, int) else (below[0], below[1] + added)
        case _:
            return None
