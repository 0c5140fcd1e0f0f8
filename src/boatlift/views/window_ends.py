"""Which columns of a query are the two ends of a window, so that each determines the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node, items
from boatlift.views.shifted import ColumnPlace

Moment = tuple[int, int]
"""A number for a time that rows have, and a constant that is added to it: two equal numbers differ by a constant."""

_AS_IT_IS = frozenset({"KnownNullable", "KnownNotNull", "PreciseTimestampConversion"})
"""Expressions that keep the value of their child; the last one occurs only in windows."""

_PASSING = frozenset({
    "ArrowEvalPython", "BatchEvalPython", "Filter", "Generate", "GlobalLimit", "LocalLimit", "Offset",
    "RebalancePartitions", "Repartition", "RepartitionByExpression", "Sort", "Window", "WindowGroupLimit",
})  # fmt: skip
"""Nodes that pass on the columns of their input."""


class WindowEnds:
    """Finds the columns, and fields of structs, that are a common time plus a constant.

    The end of a fixed window is its start plus its length. If a row has several windows, or a union has windows of
    several queries, the distance must be the same in all of them. In an outer join both ends are NULL or none is.
    """

    def __init__(self, nodes: CatalystPlan) -> None:
        self._nodes = nodes
        self._numbers = count()

    def of(self, node: Node) -> dict[ColumnPlace, Moment]:
        """Return the columns of a node that are such times."""
        children = self._nodes.children(node)
        match self._nodes.kind(node):
            case "Project":
                return self._of_columns(items(node.projectList()), self.of(children[0]))
            case "Aggregate":
                sessions = {self._nodes.id(key.toAttribute()) for key in self._nodes.session_keys(node)}
                below = {place: each for place, each in self.of(children[0]).items() if place[0] not in sessions}
                return self._of_columns(items(node.aggregateExpressions()), below)
            case "Expand":
                below, given = self.of(children[0]), self._nodes.output(node)
                return self._common([self._of_values(given, items(each), below) for each in items(node.projections())])
            case "Union":
                given = self._nodes.output(node)
                return self._common([
                    self._of_values(given, self._nodes.output(each), self.of(each)) for each in children
                ])  # fmt: skip
            case "Join":
                return {place: each for child in children for place, each in self.of(child).items()}
            case kind if kind in _PASSING:
                return self.of(children[0])
            case _:
                return {}

    def _of_columns(
        self, columns: Sequence[Expression], known: Mapping[ColumnPlace, Moment]
    ) -> dict[ColumnPlace, Moment]:
        attributes = [column.toAttribute() for column in columns]
        return self._of_values(attributes, [self._nodes.unnamed(column) for column in columns], known)

    def _of_values(
        self, attributes: Sequence[Expression], values: Sequence[Expression], known: Mapping[ColumnPlace, Moment]
    ) -> dict[ColumnPlace, Moment]:
        seen: list[tuple[Expression, int]] = []
        return {
            (self._nodes.id(attribute), field): moment
            for attribute, value in zip(attributes, values, strict=True)
            for field, moment in self._moments(value, known, seen).items()
        }

    def _moments(
        self, value: Expression, known: Mapping[ColumnPlace, Moment], seen: list[tuple[Expression, int]]
    ) -> dict[int | None, Moment]:
        """Return the moments of a value, and of its fields."""
        match self._nodes.kind(value):
            case "AttributeReference":
                return {place[1]: each for place, each in known.items() if place[0] == self._nodes.id(value)}
            case "GetStructField" if self._nodes.kind(value.child()) == "AttributeReference":
                found = known.get((self._nodes.id(value.child()), int(value.ordinal())))
                return {} if found is None else {None: found}
            case "CreateNamedStruct":
                fields = [self._moments(each, known, seen).get(None) for each in items(value.valExprs())]
                return {place: each for place, each in enumerate(fields) if each is not None}
            case kind if kind in _AS_IT_IS:
                time, added = self._sum(value)
                return {None: (self._number(time, seen), added)}
            case _:
                return {}

    def _sum(self, value: Expression) -> tuple[Expression, int]:
        """Return a value as an expression plus a constant."""
        kind, children = self._nodes.kind(value), items(value.children())
        if kind in _AS_IT_IS:
            return self._sum(children[0])
        if kind in ("Add", "Subtract") and self._nodes.kind(children[1]) == "Literal":
            constant = children[1].value()
            if str(value.dataType().catalogString()) == "bigint" and isinstance(constant, int):
                time, added = self._sum(children[0])
                return time, added + (constant if kind == "Add" else -constant)
        return value, 0

    def _number(self, time: Expression, seen: list[tuple[Expression, int]]) -> int:
        for other, number in seen:
            if time.semanticEquals(other):
                return number
        seen.append((time, next(self._numbers)))
        return seen[-1][1]

    def _common(self, ways: Sequence[Mapping[ColumnPlace, Moment]]) -> dict[ColumnPlace, Moment]:
        """Return the moments that are common to rows that are made in one of several ways."""
        numbers: dict[object, int] = {}
        made: dict[ColumnPlace, Moment] = {}
        for place, (_, added) in ways[0].items():
            if all(place in way for way in ways):
                # Two places have the same distance in all ways if they move by the same amount from way to way.
                moved = tuple((way[place][0], way[place][1] - added) for way in ways)
                made[place] = numbers.setdefault(moved, next(self._numbers)), added
        return made
