"""Which columns tell the rows of a query apart, as far as its plan shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from boatlift.spark.incremental.joins import collated
from boatlift.spark.incremental.nodes import Expression, Node, PlanNodes, items

__all__ = ["unique_ids", "unique_keys"]

Key = frozenset[int]
"""Ids of attributes: no two rows have equal values in all of them."""

_PASSED_ON = frozenset(
    {"Sort", "GlobalLimit", "LocalLimit", "Offset", "WindowGroupLimit", "Repartition", "RepartitionByExpression"}
)

_LEFT_ROWS = ("LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin")
"""Joins whose results are rows of the left side, with or without partners."""

_NORMALISING = frozenset({"KnownFloatingPointNormalized", "NormalizeNaNAndZero"})


def unique_keys(
    node: Node, nodes: PlanNodes, streams: Mapping[int, Sequence[frozenset[str]]]
) -> tuple[frozenset[str], ...]:
    """Return sets of columns, none of which two rows have equal values in; () if the plan shows none.

    An empty set says that there is one row at most.

    Args:
        node: The optimised plan.
        nodes: Reads nodes.
        streams: Such sets of each stream, by the number of the RDD of the frame that stands for it.
    """
    names = {nodes.id(attribute): str(attribute.name()) for attribute in nodes.output(node)}
    known = unique_ids(node, nodes, streams)
    return tuple(frozenset(names[each] for each in key) for key in known if key <= names.keys())


def unique_ids(node: Node, nodes: PlanNodes, streams: Mapping[int, Sequence[frozenset[str]]]) -> set[Key]:
    """Return the sets of `unique_keys` as ids of attributes, which the node need not give."""
    return _Reading(nodes, streams).keys(node)


class _Reading:
    def __init__(self, nodes: PlanNodes, streams: Mapping[int, Sequence[frozenset[str]]]) -> None:
        self._nodes, self._streams = nodes, streams
        self._readers: dict[str, Callable[[Node], set[Key]]] = {
            "LogicalRDD": self._stream,
            "Aggregate": self._aggregate,
            "Project": self._project,
            "Filter": self._filter,
            "Window": self._window,
            "Join": self._join,
        }

    def keys(self, node: Node) -> set[Key]:
        kind = self._nodes.kind(node)
        if kind in _PASSED_ON:
            return self.keys(node.child())
        reader = self._readers.get(kind)
        found = set() if reader is None else reader(node)
        fixed = self.fixed(node) if found else frozenset()
        return {key - fixed for key in found}

    def fixed(self, node: Node) -> Key:
        """Return the attributes that have one value in all rows."""
        kind = self._nodes.kind(node)
        below = frozenset[int]().union(*map(self.fixed, self._passing(node, kind)))
        if kind == "Filter":
            return below.union(self._fixed_by(node.condition()))
        if kind not in ("Project", "Aggregate"):
            return below
        columns = items(node.projectList() if kind == "Project" else node.aggregateExpressions())
        return frozenset(self._nodes.id(column.toAttribute()) for column in columns if self._is_fixed(column, below))

    def _passing(self, node: Node, kind: str) -> list[Node]:
        """Return the nodes below whose columns have no other values above."""
        children = self._nodes.children(node)
        if kind == "Join":
            how = self._nodes.join_type(node)
            return children if how in ("Inner", "Cross") else children[:1] if how in _LEFT_ROWS else []
        return children if kind in _PASSED_ON | {"Filter", "Project", "Aggregate", "Window"} else []

    def _is_fixed(self, column: Expression, below: Key) -> bool:
        value = self._nodes.unnamed(column)
        return bool(value.foldable()) or (
            self._nodes.kind(value) == "AttributeReference" and self._nodes.id(value) in below
        )

    def _stream(self, node: Node) -> set[Key]:
        ids = {str(each.name()): self._nodes.id(each) for each in self._nodes.output(node)}
        known = self._streams.get(int(node.rdd().id()), ())
        return {frozenset(ids[name] for name in key) for key in known if key <= ids.keys()}

    def _aggregate(self, node: Node) -> set[Key]:
        below = self.fixed(node.child())
        keys = [key for key in items(node.groupingExpressions()) if not self._is_fixed(key, below)]
        given = [self._given_by(key, items(node.aggregateExpressions())) for key in keys]
        return set() if None in given else {frozenset(each for each in given if each is not None)}

    def _given_by(self, key: Expression, columns: Iterable[Expression]) -> int | None:
        """Return the attribute that passes on an expression."""
        for column in columns:
            inner = column.child() if self._nodes.kind(column) == "Alias" else column
            if inner.semanticEquals(key):
                return self._nodes.id(column.toAttribute())
        return None

    def _project(self, node: Node) -> set[Key]:
        columns = items(node.projectList())
        below = {self._nodes.id(each): each for each in self._nodes.output(node.child())}
        passed = {number: self._given_by(each, columns) for number, each in below.items()}
        found = set()
        for key in self.keys(node.child()):
            outside = [passed.get(each) for each in key]
            if None not in outside:
                found.add(frozenset(each for each in outside if each is not None))
        return found

    def _filter(self, node: Node) -> set[Key]:
        return self.keys(node.child())

    def _fixed_by(self, condition: Expression) -> Iterable[int]:
        """Return the attributes that a condition holds to one value."""
        for part in self._nodes.conjuncts(condition):
            if self._nodes.kind(part) in ("EqualTo", "EqualNullSafe"):
                one, other = items(part.children())
                for attribute, value in ((one, other), (other, one)):
                    plain = self._nodes.kind(attribute) == "AttributeReference" and not collated([attribute])
                    if plain and value.foldable():
                        yield self._nodes.id(attribute)

    def _window(self, node: Node) -> set[Key]:
        found = self.keys(node.child())
        partition = list(map(self._compared, items(node.partitionSpec())))
        if all(self._nodes.kind(each) == "AttributeReference" for each in partition):
            for column in items(node.windowExpressions()):
                if self._nodes.kind(column) == "Alias" and self._is_row_number(column.child()):
                    found = found | {frozenset(map(self._nodes.id, [*partition, column.toAttribute()]))}
        return found

    def _is_row_number(self, column: Expression) -> bool:
        return (
            self._nodes.kind(column) == "WindowExpression" and self._nodes.kind(column.windowFunction()) == "RowNumber"
        )

    def _compared(self, key: Expression) -> Expression:
        """Return a key without what the optimiser puts around it to give equal floats equal bits."""
        while self._nodes.kind(key) in _NORMALISING:
            key = key.child()
        return key

    def _join(self, node: Node) -> set[Key]:
        left, right = self._nodes.children(node)
        how = self._nodes.join_type(node)
        if how in ("LeftSemi", "LeftAnti", "ExistenceJoin"):
            return self.keys(left)
        if how not in ("Inner", "Cross", "LeftOuter", "RightOuter"):
            return set()
        keys_left, keys_right = self.keys(left), self.keys(right)
        sides = self._nodes.equal_keys(node)
        left_on, right_on = (
            {
                self._nodes.id(each)
                for each in map(self._compared, side)
                if self._nodes.kind(each) == "AttributeReference"
            }
            for side in sides
        )
        found = {one | other for one in keys_left for other in keys_right}
        if how != "RightOuter" and any(key <= right_on for key in keys_right):
            found |= keys_left
        if how != "LeftOuter" and any(key <= left_on for key in keys_left):
            found |= keys_right
        return found
