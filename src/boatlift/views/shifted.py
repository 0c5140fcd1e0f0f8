"""Expressions that equal a time in a column, give or take a known distance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import CatalystPlan, Expression

SECOND, DAY = 10**6, 86_400 * 10**6
_ZONE_SHIFT = 2 * 3600 * SECOND
"""The most by which a calendar day differs from 24 hours, in a time zone that shifts its clocks."""

_COARSEST = {
    "SECOND": SECOND,
    "MINUTE": 60 * SECOND,
    "HOUR": 7200 * SECOND,
    "DAY": 2 * DAY,
    "DD": 2 * DAY,
    "WEEK": 9 * DAY,
    "MONTH": 33 * DAY,
    "MON": 33 * DAY,
    "MM": 33 * DAY,
    "QUARTER": 94 * DAY,
    "YEAR": 368 * DAY,
    "YYYY": 368 * DAY,
    "YY": 368 * DAY,
}
"""The unit of `date_trunc` to an upper limit of the microseconds that it removes, including shifts of time zones."""

_AS_IT_IS = frozenset({"Alias", "KnownNullable", "KnownNotNull", "PreciseTimestampConversion"})
_FIXED_ZONES = frozenset({"UTC", "Z", "GMT", "Etc/UTC", "Etc/GMT"})

ColumnPlace = tuple[int, int | None]
"""A column: the id of its attribute, and for a field of a struct also its place."""


@dataclass(frozen=True, slots=True)
class Shifted:
    """A value near the time in a column.

    Attributes:
        least, most: The range of the value minus the column's time, in microseconds.
    """

    column: ColumnPlace
    least: int = 0
    most: int = 0

    @property
    def is_column(self) -> bool:
        return not self.least and not self.most

    def plus(self, least: int, most: int) -> Shifted:
        """Return a value that is later by a range of microseconds."""
        return replace(self, least=self.least + least, most=self.most + most)


def shifted(expression: Expression) -> Shifted | None:
    """Return an expression as a shifted column; None if it does not keep the order of a column."""
    children = items(expression.children())
    match CatalystPlan.kind(expression):
        case "AttributeReference":
            return Shifted((CatalystPlan.id(expression), None))
        case "GetStructField" if CatalystPlan.kind(children[0]) == "AttributeReference":
            return Shifted((CatalystPlan.id(children[0]), int(expression.ordinal())))
        case "Cast" if str(expression.dataType().catalogString()) == "date":
            return _plus(children[0], -2 * DAY, DAY)
        case "TruncTimestamp":
            unit = _literal(children[0])
            return _plus(children[1], -_COARSEST[unit], 0) if unit in _COARSEST else None
        case "TimestampAddInterval":
            added = interval_in(expression)
            if added is None:
                return None
            slack = _ZONE_SHIFT if has_calendar_days(expression, added) else 0
            return _plus(children[0], added - slack, added + slack)
        case "Add" | "Subtract" as kind:
            return _sum(kind, *children)
        case kind if kind in _AS_IT_IS:
            return shifted(children[0])
        case _:
            return None


def interval_in(expression: Expression) -> int | None:
    """Return the microseconds that a `TimestampAddInterval` adds; None for months, and if they differ by row."""
    interval = items(expression.children())[1]
    added = interval.eval(None) if interval.foldable() else None
    return added if isinstance(added, int) else None


def has_calendar_days(expression: Expression, added: int) -> bool:
    """Return whether a `TimestampAddInterval` adds calendar days in a time zone that shifts its clocks."""
    zone = expression.timeZoneId()
    return abs(added) >= DAY and (zone.isEmpty() or str(zone.get()) not in _FIXED_ZONES)


def _sum(kind: str, first: Expression, second: Expression) -> Shifted | None:
    """Return a sum within a window: Spark computes the begin of a window as a time minus a remainder."""
    if str(first.dataType().catalogString()) != "bigint":
        return None
    if CatalystPlan.kind(second) == "CaseWhen" and kind == "Subtract":
        remainder = _first(second, "Remainder")
        length = None if remainder is None else _literal(remainder.right())
        return _plus(first, -length, 0) if isinstance(length, int) else None
    value = _literal(second)
    if not isinstance(value, int):
        return None
    added = -value if kind == "Subtract" else value
    return _plus(first, added, added)


def _plus(expression: Expression, least: int, most: int) -> Shifted | None:
    found = shifted(expression)
    return None if found is None else found.plus(least, most)


def _literal(expression: Expression) -> Any:
    """Return the value of a literal, texts in capitals; None for NULL and for other expressions."""
    if CatalystPlan.kind(expression) != "Literal":
        return None
    value = expression.value()
    return value if isinstance(value, int) or value is None else str(value.toString()).upper()


def _first(expression: Expression, kind: str) -> Expression | None:
    """Return the first expression of a kind within an expression."""
    if CatalystPlan.kind(expression) == kind:
        return expression
    found = (_first(child, kind) for child in items(expression.children()))
    return next((each for each in found if each is not None), None)
