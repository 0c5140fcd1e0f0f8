"""Which columns of a query follow the watermarks of its streams, so that rows of the state can expire.

A stream with event time has a watermark after each step, and no change of a later step has an earlier time. The same
holds for columns that are computed from that time by functions that keep its order. Rows of a state expire by such a
column: no later change joins them or belongs to their key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node
from boatlift.views.shifted import ColumnPlace, shifted

_PASSING = frozenset({
    "ArrowEvalPython", "BatchEvalPython", "Filter", "Generate", "RebalancePartitions", "Repartition",
    "RepartitionByExpression", "Sort", "WindowGroupLimit",
})  # fmt: skip
"""Nodes that pass on the columns of their input."""

_LEFT_KEEPS = ("LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin")
"""Joins whose results are rows of the left side, with or without partners."""

_COMPARISONS = {
    "GreaterThanOrEqual": True,
    "GreaterThan": True,
    "LessThanOrEqual": False,
    "LessThan": False,
}
"""A comparison to whether its first operand is the later one."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound that follows watermarks: the least of some streams' watermarks, each with some microseconds added."""

    terms: frozenset[tuple[str, int]]

    def plus(self, microseconds: int) -> Bound:
        return Bound(frozenset((stream, added + microseconds) for stream, added in self.terms))

    def at(self, bounds: Mapping[str, int]) -> int | None:
        """Return the bound in milliseconds since 1970, rounded down; None if a stream has no watermark yet."""
        if not all(stream in bounds for stream, _ in self.terms):
            return None
        return min((bounds[stream] * 1000 + added) // 1000 for stream, added in self.terms)


def _least(bounds: Iterable[Bound | None]) -> Bound | None:
    terms: frozenset[tuple[str, int]] = frozenset()
    for each in bounds:
        if each is None:
            return None
        terms |= each.terms
    return Bound(terms)


@dataclass(frozen=True, slots=True)
class Expires:
    """The column by which the rows of a stage's input expire."""

    column: Expression
    """The column, over the rows of the input."""
    field: int | None
    """The place of the field with the time, if the column is a struct."""
    bound: Bound
    """A row expires when this bound passes its time."""


_BoundedColumns = Mapping[ColumnPlace, Bound]


class Bounds:
    """The bounded columns of the nodes of a plan.

    Args:
        streams: The RDD number of each empty frame that represents a stream, to the stream.
        columns: Stream to its columns with the event time.
    """

    def __init__(self, nodes: CatalystPlan, streams: Mapping[int, str], columns: Mapping[str, tuple[str, ...]]) -> None:
        self._nodes, self._streams, self._columns = nodes, streams, columns

    def of(self, node: Node) -> dict[ColumnPlace, Bound]:
        """Return the bounded columns of a node: changes of later steps have no values before the bound there.

        A NULL is before no bound.
        """
        if not self._columns or not node.subqueries().isEmpty():
            return {}
        children = self._nodes.children(node)
        match self._nodes.kind(node):
            case "LogicalRDD":
                return self._of_stream(node)
            case "Project":
                return self._of_columns(items(node.projectList()), self.of(children[0]))
            case kind if kind in _PASSING:
                return self.of(children[0])
            case "Aggregate" if not node.groupingExpressions().isEmpty():
                known = self._of_sessions(node, self.of(children[0]))
                return self._of_columns(items(node.aggregateExpressions()), known)
            case "Window":
                known = self.of(children[0])
                places = {place for key in items(node.partitionSpec()) for place in self._column(key, known)[0]}
                return {place: bound for place, bound in known.items() if place in places}
            case "Expand":
                return self._of_expand(node, self.of(children[0]))
            case "Union":
                return self._of_union(node, children)
            case "Join":
                return self._of_join(node, children)
            case _:
                return {}

    def column(self, node: Node) -> int | None:
        """Return the place of a column whose values are never before the least watermark of the streams; None: none."""
        known = self.of(node)
        for place, attribute in enumerate(self._nodes.output(node)):
            bound = known.get((self._nodes.id(attribute), None))
            is_time = str(attribute.dataType().catalogString()) == "timestamp"
            if bound is not None and is_time and all(added >= 0 for _, added in bound.terms):
                return place
        return None

    def by_keys(self, inputs: Sequence[Node], keys: Sequence[Sequence[Expression]]) -> tuple[Expires | None, ...]:
        """Return the columns by which the rows of a stage expire, if its node combines only rows of equal keys.

        One column of the key is enough, if it is bounded in every input: no later change has the key of a row before
        the least of the bounds.
        """
        known = [self.of(node) for node in inputs] if self._columns and keys and keys[0] else []
        if not all(known):
            return (None,) * len(inputs)
        for column in zip(*keys, strict=True) if known else ():
            found = [self._column(key, each)[1] for key, each in zip(column, known, strict=True)]
            for field in (1, 0, None):  # of a window, its end
                bound = _least(each.get(field) for each in found)
                if bound is not None:
                    return tuple(Expires(key, field, bound) for key in column)
        return (None,) * len(inputs)

    def by_sessions(self, aggregate: Node) -> Expires | None:
        """Return the column with the session of each row of an aggregate's input, and the bound of the rows' times.

        No later row begins before the bound, so a session that has ended before it is final. The result is None if the
        aggregate has no session, or its rows have no bound.
        """
        known = self.of(aggregate.child())
        for key in self._nodes.session_keys(aggregate):
            for column in self._nodes.output(aggregate.child()):
                bound = known.get((self._nodes.id(column), 0))
                if bound is not None and self._nodes.id(column) == self._nodes.id(key.toAttribute()):
                    return Expires(column, 1, bound)
        return None

    def by_condition(
        self, join: Node, condition: Expression | None, grows: Sequence[bool]
    ) -> tuple[Expires | None, ...]:
        """Return the columns by which rows of an inner join expire, if its condition compares times of both sides."""
        if condition is None or not self._columns:
            return (None, None)
        children = self._nodes.children(join)
        known = [self.of(child) for child in children]
        found: list[Expires | None] = [None, None]
        for early, late, added in self._comparisons(condition):
            # `late` is at least `early` + `added`: a row gets no more partners once all later rows exceed its time.
            partner, side = self._side_of(early, children), self._side_of(late, children)
            if side is None or partner is None or side == partner or found[side] is not None:
                continue
            bound, own = known[partner].get(early), known[side].get(late)
            if bound is None or (own is None and not grows[side]):
                continue
            bound = bound.plus(added)
            least = bound if grows[side] else _least((bound, own))
            assert least is not None
            found[side] = self._expires(children[side], late, least)
        return tuple(found)

    def by_band(self, join: Node) -> tuple[Expires | None, ...]:
        """Return the columns by which the rows of an outer, semi or anti join expire if its condition is a time band.

        A row without a partner is a result of its own. So a row expires before the *cut* of its side, before which no
        change affects a row. Its partners expire once no row from the cut on can match them. The join of rows before
        the cut is the same before and after a step, however many of them are left.
        """
        how = self._nodes.join_type(join)
        known_kind = how in (*_LEFT_KEEPS, "RightOuter", "FullOuter")
        if not (self._columns and known_kind and join.subqueries().isEmpty()):
            return (None, None)
        children = self._nodes.children(join)
        known = [self.of(child) for child in children]
        limits = self._limits(join, children)
        found: list[Expires | None] = [None, None]
        for (side, late, early), added in limits.items():
            cut = self._cut(known, side, late, early, added)
            back = limits.get((1 - side, early, late))
            if cut is None or (how != "FullOuter" and side != (0 if how in _LEFT_KEEPS else 1)):
                continue
            if how == "FullOuter":
                other = None if back is None else self._cut(known, 1 - side, early, late, back)
                cut = None if other is None else _least((cut, other.plus(added)))
            if cut is not None and found[side] is None:
                found[side] = self._expires(children[side], late, cut)
            if cut is not None and how != "FullOuter" and back is not None and found[1 - side] is None:
                found[1 - side] = self._expires(children[1 - side], early, cut.plus(back))
        return tuple(found)

    def _limits(self, join: Node, children: Sequence[Node]) -> dict[tuple[int, ColumnPlace, ColumnPlace], int]:
        """Return a side, a column of it and one of its partner, to how much the first is at least later."""
        condition = join.condition()
        made: dict[tuple[int, ColumnPlace, ColumnPlace], int] = {}
        for early, late, added in self._comparisons(None if condition.isEmpty() else condition.get()):
            partner, side = self._side_of(early, children), self._side_of(late, children)
            if side is not None and partner is not None and side != partner:
                made.setdefault((side, late, early), added)
        return made

    @staticmethod
    def _cut(
        known: Sequence[_BoundedColumns], side: int, late: ColumnPlace, early: ColumnPlace, added: int
    ) -> Bound | None:
        """Return the time of a side before which no change of either side affects a row; None if there is none."""
        partner = known[1 - side].get(early)
        return _least((known[side].get(late), None if partner is None else partner.plus(added)))

    def _expires(self, child: Node, place: ColumnPlace, bound: Bound) -> Expires:
        attribute = next(each for each in self._nodes.output(child) if self._nodes.id(each) == place[0])
        return Expires(attribute, place[1], bound)

    def _of_stream(self, node: Node) -> dict[ColumnPlace, Bound]:
        stream = self._streams.get(int(node.rdd().id()))
        if stream is None or stream not in self._columns:
            return {}
        bound = Bound(frozenset({(stream, 0)}))
        named = (each for each in self._nodes.output(node) if str(each.name()) in self._columns[stream])
        return {(self._nodes.id(each), None): bound for each in named}

    def _of_sessions(self, aggregate: Node, known: _BoundedColumns) -> _BoundedColumns:
        """Return the bounded columns below an aggregate, with the ends of its sessions as bounded columns.

        A row comes or goes at a time t, not before the bound B. It changes the session that it is in, those that it
        joins, and those that it leaves. A session before the row contains it only if it does not end before t, and a
        session behind the row does not begin before t. So all of them end at B or later. Their begin has no bound: an
        open session may be arbitrarily old.
        """
        sessions = {self._nodes.id(key.toAttribute()) for key in self._nodes.session_keys(aggregate)}
        made = {place: bound for place, bound in known.items() if place[0] not in sessions}
        made |= {(own, 1): known[own, 0] for own in sessions if (own, 0) in known}
        return made

    def _of_columns(self, columns: Sequence[Expression], known: _BoundedColumns) -> dict[ColumnPlace, Bound]:
        made: dict[ColumnPlace, Bound] = {}
        for column in columns:
            own = self._nodes.id(column.toAttribute())
            made |= {(own, field): bound for field, bound in self._column(column, known)[1].items()}
        return made

    def _of_expand(self, node: Node, known: _BoundedColumns) -> dict[ColumnPlace, Bound]:
        rows = [items(projection) for projection in items(node.projections())]
        made: dict[ColumnPlace, Bound] = {}
        for attribute, *values in zip(self._nodes.output(node), *rows, strict=True):
            found = [self._column(value, known)[1] for value in values]
            for field in found[0]:
                bound = _least(each.get(field) for each in found)
                if bound is not None:
                    made[self._nodes.id(attribute), field] = bound
        return made

    def _of_union(self, node: Node, children: Sequence[Node]) -> dict[ColumnPlace, Bound]:
        known = [self.of(child) for child in children]
        columns = zip(self._nodes.output(node), *map(self._nodes.output, children), strict=True)
        made = {}
        for attribute, *own in columns:
            for field in (None, 0, 1):
                places = [(self._nodes.id(each), field) for each in own]
                bound = _least(each.get(place) for each, place in zip(known, places, strict=True))
                if bound is not None:
                    made[self._nodes.id(attribute), field] = bound
        return made

    def _of_join(self, node: Node, children: Sequence[Node]) -> dict[ColumnPlace, Bound]:
        """Return the bounded columns of a join; a change of one side can produce old rows of the other."""
        known = [self.of(child) for child in children]
        for number in (0, 1):
            if not self._reads_streams(children[1 - number]):
                return known[number]
        made: dict[ColumnPlace, Bound] = {}
        keys = zip(*self._nodes.equal_keys(node), strict=True)
        for pair in keys:
            both = [shifted(key) for key in pair]
            bound = _least(None if each is None else known[n].get(each.column) for n, each in enumerate(both))
            if bound is not None and all(each is not None and each.is_column for each in both):
                made |= {each.column: bound for each in both if each is not None}
        how = self._nodes.join_type(node)
        for (side, late, early), added in self._limits(node, children).items():
            bound = self._cut(known, side, late, early, added)
            if bound is not None and (how == "Inner" or (how in _LEFT_KEEPS and side == 0)):
                made.setdefault(late, bound)
        return made

    def _reads_streams(self, node: Node) -> bool:
        static = {"LocalRelation", "LogicalRelation", "OneRowRelation", "Range", "InMemoryRelation"}
        for leaf in self._nodes.leaves(node):
            kind = self._nodes.kind(leaf)
            if int(leaf.rdd().id()) in self._streams if kind == "LogicalRDD" else kind not in static:
                return True
        return False

    def _side_of(self, place: ColumnPlace, children: Sequence[Node]) -> int | None:
        for side, child in enumerate(children):
            if place[0] in set(map(self._nodes.id, self._nodes.output(child))):
                return side
        return None

    def _comparisons(self, condition: Expression | None) -> Iterable[tuple[ColumnPlace, ColumnPlace, int]]:
        """Yield two columns and the least by which the second is later, from each comparison in a condition."""
        for part in [] if condition is None else self._nodes.conjuncts(condition):
            kind = self._nodes.kind(part)
            if kind not in _COMPARISONS:
                continue
            first, second = map(shifted, items(part.children()))
            if first is None or second is None:
                continue
            late, early = (first, second) if _COMPARISONS[kind] else (second, first)
            yield early.column, late.column, early.least - late.most

    def _column(
        self, expression: Expression, known: _BoundedColumns
    ) -> tuple[list[ColumnPlace], dict[int | None, Bound]]:
        """Return the columns that an expression consists of, and the bounds of its values or of its fields."""
        expression = self._nodes.unnamed(expression)
        if self._nodes.kind(expression) == "CreateNamedStruct":
            bounds: dict[int | None, Bound] = {}
            places = []
            for number, value in enumerate(items(expression.valExprs())):
                of, found = self._column(value, known)
                places += of
                if None in found:
                    bounds[number] = found[None]
            return places, bounds
        if self._nodes.kind(expression) == "AttributeReference":
            own = self._nodes.id(expression)
            fields = {place[1]: bound for place, bound in known.items() if place[0] == own}
            return [(own, field) for field in fields], fields
        time = shifted(expression)
        if time is None or time.column not in known:
            return [], {}
        return [time.column], {None: known[time.column].plus(time.least)}
