"""Which columns of a query are ends of one window: its start decides its end, and its end its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node, items
from boatlift.views.shifted import ColumnPlace

Moment = tuple[int, int]
"""The number of a time, whatever it is in a row, and what is added to it: one number, and one decides the other."""

_AS_IT_IS = frozenset({"KnownNullable", "KnownNotNull", "PreciseTimestampConversion"})
"""Expressions whose value decides that of their child; the last one is in windows alone."""

_PASSING = frozenset({
    "ArrowEvalPython", "BatchEvalPython", "Filter", "Generate", "GlobalLimit", "LocalLimit", "Offset",
    "RebalancePartitions", "Repartition", "RepartitionByExpression", "Sort", "Window", "WindowGroupLimit",
})  # fmt: skip
"""Nodes that pass on the columns that they take."""


class WindowEnds:
    """Reads out of a plan which columns, and fields of structs, are a common time with a constant added.

    Fixed windows are computed so: the end is the start and the length. Where a row has several windows, or a union has
    windows of several queries, both ends must be as far apart in all of them. An outer join has NULL for both or none.
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
        """Return what is known of a value, and of its fields."""
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
        """Return the expression that a value is, and the constant that is added to it."""
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
        """Return what holds of rows each of which is made in one of several ways."""
        numbers: dict[object, int] = {}
        made: dict[ColumnPlace, Moment] = {}
        for place, (_, added) in ways[0].items():
            if all(place in way for way in ways):
                # Two places are as far apart in all ways if, from the first way to each other, both move as far.
                moved = tuple((way[place][0], way[place][1] - added) for way in ways)
                made[place] = numbers.setdefault(moved, next(self._numbers)), added
        return made
