"""Which columns identify the rows of a query, as far as its plan shows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count, islice, product

from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node
from boatlift.views.joins import collated
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


Key = frozenset[ColumnPlace]
"""Columns, and fields of structs: no two rows have equal values in all of them."""

_PASSED_ON = frozenset({
    "ArrowEvalPython", "BatchEvalPython", "GlobalLimit", "LocalLimit", "Offset", "RebalancePartitions", "Repartition",
    "RepartitionByExpression", "Sort", "WindowGroupLimit",
})  # fmt: skip

_LEFT_ROWS = ("LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin")
"""Joins whose results are rows of the left side, with or without partners."""

_EXACT = re.compile(
    r"(tinyint|smallint|int|bigint)>(smallint|int|bigint|decimal\(.*\)|string)|(tinyint|smallint)>float"
    r"|(tinyint|smallint|int|float)>double|decimal\(.*\)>decimal\(.*\)|(boolean|date)>string"
)
"""Injective casts, if nothing overflows; a cast of a time depends on its zone."""

_MOST_KEYS = 64
"""The largest number of keys of a node that are considered."""

_MOST_PAIRS = 4
"""The largest number of equal column pairs of a join that are exchanged in keys."""


def unique_keys(
    node: Node, nodes: CatalystPlan, streams: Mapping[int, Sequence[frozenset[str]]]
) -> tuple[frozenset[str], ...]:
    """Return sets of columns in which no two rows are equal; () if the plan shows none.

    An empty set means that there is at most one row.

    Args:
        streams: Such sets of each stream, by the RDD number of the frame that represents it.
    """
    names = {nodes.id(attribute): str(attribute.name()) for attribute in nodes.output(node)}
    known = sorted(unique_ids(node, nodes, streams), key=lambda key: (len(key), sorted(key)))
    return tuple(frozenset(names[each] for each in key) for key in known if key <= names.keys())


def unique_ids(node: Node, nodes: CatalystPlan, streams: Mapping[int, Sequence[frozenset[str]]]) -> set[frozenset[int]]:
    """Return the sets of `unique_keys` as attribute ids, which need not be in the node's output."""
    found = _Reading(nodes, streams).keys(node)
    return {frozenset(each for each, _ in key) for key in found if all(field is None for _, field in key)}


class _Reading:
    def __init__(self, nodes: CatalystPlan, streams: Mapping[int, Sequence[frozenset[str]]]) -> None:
        self._nodes, self._streams = nodes, streams
        self._ends = WindowEnds(nodes)
        self._readers: dict[str, Callable[[Node], Iterable[Key]]] = {
            "LogicalRDD": self._stream,
            "Aggregate": self._aggregate,
            "Project": self._project,
            "Filter": lambda node: self.keys(node.child()),
            "Window": self._window,
            "Join": self._join,
        }

    def keys(self, node: Node) -> set[Key]:
        kind = self._nodes.kind(node)
        if kind in _PASSED_ON:
            return self.keys(node.child())
        reader = self._readers.get(kind)
        found = set() if reader is None else set(islice(reader(node), _MOST_KEYS))
        fixed = self.fixed(node) if found else frozenset()
        made = {frozenset(each for each in key if each[0] not in fixed) for key in found}
        return {key for key in made if not any(other < key for other in made)}

    def fixed(self, node: Node) -> frozenset[int]:
        """Return the attributes with one value in all rows."""
        kind = self._nodes.kind(node)
        below = frozenset[int]().union(*map(self.fixed, self._passing(node, kind)))
        if kind == "Filter":
            return below.union(self._fixed_by(node.condition()))
        if kind not in ("Project", "Aggregate"):
            return below
        columns = items(node.projectList() if kind == "Project" else node.aggregateExpressions())
        return frozenset(self._nodes.id(column.toAttribute()) for column in columns if self._is_fixed(column, below))

    def _passing(self, node: Node, kind: str) -> list[Node]:
        """Return the children whose columns keep their values in the node's output."""
        children = self._nodes.children(node)
        if kind == "Join":
            how = self._nodes.join_type(node)
            return children if how in ("Inner", "Cross") else children[:1] if how in _LEFT_ROWS else []
        return children if kind in _PASSED_ON | {"Filter", "Project", "Aggregate", "Window"} else []

    def _is_fixed(self, column: Expression, below: frozenset[int]) -> bool:
        value = self._nodes.unnamed(column)
        return bool(value.foldable()) or (
            self._nodes.kind(value) == "AttributeReference" and self._nodes.id(value) in below
        )

    def _stream(self, node: Node) -> set[Key]:
        ids = {str(each.name()): self._nodes.id(each) for each in self._nodes.output(node)}
        known = self._streams.get(int(node.rdd().id()), ())
        return {frozenset((ids[name], None) for name in key) for key in known if key <= ids.keys()}

    def _aggregate(self, node: Node) -> Iterable[Key]:
        """Yield keys from the grouping keys; each end of a fixed window implies the other, but not of a session."""
        below, columns = self.fixed(node.child()), items(node.aggregateExpressions())
        grouping = [key for key in items(node.groupingExpressions()) if not self._is_fixed(key, below)]
        sessions = {self._nodes.id(key.toAttribute()) for key in self._nodes.session_keys(node)}
        types = [str(key.dataType().catalogString()) for key in grouping]
        may_be_time = any(map(self._is_pair, grouping)) or any(each.startswith("timestamp") for each in types)
        moments = self._ends.of(node.child()) if may_be_time else {}
        passed = self._passed(columns)
        given: dict[object, set[ColumnPlace]] = defaultdict(set)
        for place, key in enumerate(grouping):
            if self._nodes.kind(key) != "AttributeReference":
                equal = (column for column in columns if self._nodes.unnamed(column).semanticEquals(key))
                given[place, None] |= {(self._nodes.id(column.toAttribute()), None) for column in equal}
                continue
            own = self._nodes.id(key)
            number, *ends = (moments.get((own, field), (None, 0))[0] for field in (None, 0, 1))
            if self._is_pair(key) and (own in sessions or (ends[0] is not None and ends[0] == ends[1])):
                number = ends[0] if own not in sessions else None
                given_here = {each for field in (None, 0, 1) for each in _outside((own, field), passed)}
            else:
                given_here = set(_outside((own, None), passed))
            given[(place, None) if number is None else number] |= given_here
        yield from map(frozenset, product(*given.values()))
        whole = {(self._nodes.id(key), None) for key in grouping if self._nodes.kind(key) == "AttributeReference"}
        for known in self.keys(node.child()) if whole and not sessions else ():
            if known <= whole:  # each row is a group of its own
                yield from map(frozenset, product(*(_outside(place, passed) for place in known)))

    def _is_pair(self, key: Expression) -> bool:
        return self._nodes.kind(key.dataType()) == "StructType" and int(key.dataType().length()) == 2

    def _passed(self, columns: Iterable[Expression]) -> Mapping[ColumnPlace, Sequence[int]]:
        """Return the places whose values some columns pass on injectively, to the ids of these columns."""
        passed = defaultdict(list)
        for column in columns:
            place = self._place(self._nodes.unnamed(column))
            if place is not None:
                passed[place].append(self._nodes.id(column.toAttribute()))
        return passed

    def _place(self, value: Expression) -> ColumnPlace | None:
        """Return the column, or field of a struct, of which a value is an injective function; None if there is none."""
        value = self._nodes.without_normalising(value)
        while self._nodes.kind(value) == "Cast":
            types = f"{value.child().dataType().catalogString()}>{value.dataType().catalogString()}"
            if not (_EXACT.fullmatch(types) and self._nodes.can_up_cast(value)):
                return None
            value = value.child()
        if self._nodes.kind(value) == "AttributeReference":
            return self._nodes.id(value), None
        if self._nodes.kind(value) == "GetStructField" and self._nodes.kind(value.child()) == "AttributeReference":
            return self._nodes.id(value.child()), int(value.ordinal())
        return None

    def _project(self, node: Node) -> Iterable[Key]:
        passed = self._passed(items(node.projectList()))
        for key in self.keys(node.child()):
            yield from map(frozenset, product(*(_outside(place, passed) for place in key)))

    def _fixed_by(self, condition: Expression) -> Iterable[int]:
        """Yield the attributes that a condition fixes to one value."""
        for part in self._nodes.conjuncts(condition):
            if self._nodes.kind(part) in ("EqualTo", "EqualNullSafe"):
                one, other = items(part.children())
                for attribute, value in ((one, other), (other, one)):
                    plain = self._nodes.kind(attribute) == "AttributeReference" and not collated([attribute])
                    if plain and value.foldable():
                        yield self._nodes.id(attribute)

    def _window(self, node: Node) -> set[Key]:
        found = self.keys(node.child())
        partition = list(map(self._nodes.without_normalising, items(node.partitionSpec())))
        if all(self._nodes.kind(each) == "AttributeReference" for each in partition):
            for column in items(node.windowExpressions()):
                if self._nodes.kind(column) == "Alias" and self._nodes.is_row_number(column.child()):
                    ids = map(self._nodes.id, [*partition, column.toAttribute()])
                    found = found | {frozenset((each, None) for each in ids)}
        return found

    def _join(self, node: Node) -> set[Key]:
        left, right = self._nodes.children(node)
        how = self._nodes.join_type(node)
        if how in ("LeftSemi", "LeftAnti", "ExistenceJoin"):
            return self.keys(left)
        if how not in ("Inner", "Cross", "LeftOuter", "RightOuter"):
            return set()
        keys_left, keys_right = self.keys(left), self.keys(right)
        sides = zip(*self._nodes.equal_keys(node), strict=True)
        pairs = [tuple(map(self._place, pair)) for pair in sides if not collated(pair)]
        left_on, right_on = ({pair[side] for pair in pairs} for side in (0, 1))
        found = {one | other for one in keys_left for other in keys_right}
        if how != "RightOuter" and any(key <= right_on for key in keys_right):
            found |= keys_left
        if how != "LeftOuter" and any(key <= left_on for key in keys_left):
            found |= keys_right
        return self._exchanged(found, pairs) if how == "Inner" else found

    def _exchanged(self, keys: set[Key], pairs: Iterable[Sequence[ColumnPlace | None]]) -> set[Key]:
        """Return keys, and also these keys with a column replaced by its equal of the other side."""
        both = [(one, other) for one, other in pairs if one is not None and other is not None]
        for one, other in both[:_MOST_PAIRS]:
            for here, there in ((one, other), (other, one)):
                keys = keys | {key - {here} | {there} for key in keys if here in key}
        return keys


def _outside(place: ColumnPlace, passed: Mapping[ColumnPlace, Collection[int]]) -> list[ColumnPlace]:
    """Return the output columns, and fields of structs, that have the values of a place."""
    column, field = place
    whole = [(own, field) for own in passed.get((column, None), ())]
    return whole if field is None else [*whole, *((own, None) for own in passed.get(place, ()))]
