"""A query as stages: Catalyst's optimised plan, cut where the change of a result needs rows of earlier steps.

Between the cuts a plan is linear: what it makes of a change is the change of what it makes. At a cut the rows that come
in are arranged by the key of the node there. The node's result for a key follows from the rows of that key alone, so
its change follows from the rows of the keys that the step touches, as they were and as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Any

from boatlift.errors import InvalidError
from boatlift.spark.aggregates.kernel import Layout
from boatlift.spark.incremental.aggregates import AggregateParts, KeptFunction, aggregate_parts
from boatlift.spark.incremental.nodes import Expression, Node, PlanNodes, items
from boatlift.spark.keyed.arrangement.order import Order
from boatlift.spark.keyed.arrangement.ordered import FirstRows

__all__ = ["Flow", "Form", "KeptAggregates", "Leaf", "Linear", "Query", "Stage", "StageResult", "query_of"]


class Form(Enum):
    """How a stage is computed: by a kernel, or by Spark from the rows of the touched keys."""

    JOIN = "inner join"
    OUTER = "outer join"
    SEMI = "semi, anti or existence join"
    NOT_IN = "null-aware anti join"
    DISTINCT = "distinct"
    AGGREGATE = "linear aggregate"
    FIRST = "first rows of a key"
    GENERAL = "general form"


@dataclass(frozen=True, slots=True)
class Leaf:
    """The change of a stream.

    Attributes:
        read: The stream; of a static table None.
        node: The leaf in the plan: its attributes, or the static table itself.
    """

    read: str | None
    node: Node


@dataclass(frozen=True, slots=True)
class Linear:
    """A node that is applied to changes: `Project`, `Filter`, `Generate`, `Expand`, `Union`."""

    node: Node
    inputs: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class StageResult:
    """The change of a stage's result."""

    number: int


Flow = Leaf | Linear | StageResult


@dataclass(frozen=True, slots=True)
class FirstInOrder:
    """The rows of a key that come first.

    Attributes:
        rows: Which those are.
        order: An expression over the columns of the input, and the order of its values.
    """

    rows: FirstRows
    order: tuple[Expression, Order]


@dataclass(frozen=True, slots=True)
class Stage:
    """A node that is applied to the rows of touched keys.

    Attributes:
        number: Its place among the stages of the query.
        form: How it is computed.
        nodes: The node; of a limit the nodes down to the sort.
        output: The attributes of its result.
        inputs: The changes of the node's inputs.
        keys: For each input the expressions over its columns that its rows are arranged by; none: all rows are one key.
        whole: Whether the node has a row for no rows at all, as an aggregate without keys.
        place: The stage in words, for people.
        arguments: The arguments of a linear aggregate's functions.
        layout: Its keys and functions, as the kernel takes them.
        first: If the result depends on the rows of a key that come first alone: which those are.
        grows: Whether no row of the first input ever goes.
        condition: The condition on the pairs of an inner join, beyond equal keys.
    """

    number: int
    form: Form
    nodes: tuple[Node, ...]
    output: tuple[Expression, ...]
    inputs: tuple[Flow, ...]
    keys: tuple[tuple[Expression, ...], ...]
    whole: bool
    place: str
    arguments: tuple[Expression, ...] = ()
    layout: Layout | None = None
    first: FirstInOrder | None = None
    grows: bool = False
    condition: Expression | None = None

    @property
    def children(self) -> list[Node]:
        """The nodes below, whose attributes the stage's rows have: first the children, then scalar subqueries."""
        return [*items(self.nodes[-1].children()), *items(self.nodes[-1].subqueries())]


@dataclass(frozen=True, slots=True)
class Query:
    """A query, taken apart.

    Attributes:
        stages: The stages, each after those whose results it takes.
        result: The change of the whole result.
        node: The optimised plan.
        grows: Whether no row of the result ever goes.
    """

    stages: tuple[Stage, ...]
    result: Flow
    node: Node
    grows: bool = False

    @property
    def only_appends(self) -> bool:
        """Whether the result is new rows, made of the rows of a step alone."""
        return self.grows and not self.stages


_PASSED_OVER = frozenset({"WindowGroupLimit", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"})
"""Nodes that give the rows that they take: hints, and orders that no limit reads."""

_MOST_FIRST = 1000
"""A limit of more rows has the general form: reading them costs as much."""

_JOINS = {
    "Inner": Form.JOIN,
    "LeftOuter": Form.OUTER,
    "RightOuter": Form.OUTER,
    "FullOuter": Form.OUTER,
    "LeftSemi": Form.SEMI,
    "LeftAnti": Form.SEMI,
    "ExistenceJoin": Form.SEMI,
}

_LINEAR = frozenset({"Project", "Filter", "Generate", "Expand", "Union", "ArrowEvalPython", "BatchEvalPython"})
_STATIC = frozenset({"LocalRelation", "LogicalRelation", "OneRowRelation", "Range", "InMemoryRelation"})


@dataclass(frozen=True, slots=True)
class KeptAggregates:
    """An aggregate, as the kernel keeps it.

    Attributes:
        layout: Its keys and functions.
        arguments: The arguments of the functions, each once, in the order of the layout.
    """

    layout: Layout
    arguments: tuple[Expression, ...]


LayoutOf = Callable[[Sequence[Expression], Sequence[KeptFunction], bool], KeptAggregates | None]
"""Returns keys and functions as the kernel keeps them; None if it cannot keep one of their values. See `layout_of`."""


def query_of(
    node: Node,
    streams: Mapping[int, str],
    growing: AbstractSet[str],
    nodes: PlanNodes,
    view: str,
    layout_of: LayoutOf,
) -> Query:
    """Return the stages of an optimised plan.

    Args:
        node: The plan.
        streams: The number of the RDD of each empty frame that stands for a stream, to the stream.
        growing: The streams of new rows: no row of theirs ever goes.
        nodes: Reads nodes.
        view: The view, for errors.
        layout_of: Returns the layout of an aggregate.

    Raises:
        InvalidError: `[NOT_INCREMENTAL]` a part of the query cannot be kept up to date.
    """
    cutting = _Cutting(streams, growing, nodes, view, layout_of)
    result = cutting.flow(node)
    return Query(tuple(cutting.stages), result, node, cutting.grows(node))


class _Cutting:
    def __init__(
        self,
        streams: Mapping[int, str],
        growing: AbstractSet[str],
        nodes: PlanNodes,
        view: str,
        layout_of: LayoutOf,
    ) -> None:
        self._streams, self._growing, self._nodes = streams, growing, nodes
        self._view, self._layout_of = view, layout_of
        self.stages: list[Stage] = []

    def flow(self, node: Node) -> Flow:
        kind = self._nodes.kind(node)
        if not node.subqueries().isEmpty():
            return self._with_scalars(node)
        if kind == "LogicalRDD":
            return Leaf(self._streams.get(int(node.rdd().id())), node)
        if kind in _STATIC:
            return Leaf(None, node)
        if kind in _PASSED_OVER:
            return self.flow(node.child())
        if kind in _LINEAR:
            return Linear(node, tuple(map(self.flow, self._nodes.children(node))))
        match kind:
            case "Aggregate":
                return self._aggregate(node)
            case "Join":
                return self._join(node)
            case "Window":
                keys = items(node.partitionSpec())
                place = f"OVER (PARTITION BY {_words(keys) or 'nothing'})"
                limit = self._nodes.rank_limit(node)
                if limit is None:
                    return self._stage((node,), (keys,), place)
                order = self._nodes.sort_key(items(node.orderSpec())[0])
                return self._first((node,), keys, place, FirstInOrder(FirstRows(*limit), order))
            case "GlobalLimit" | "Offset":
                return self._limit(node)
        raise self._refused(f"{kind} ({node.simpleString(100)})", "write the query without it")

    def _join(self, node: Node) -> Flow:
        """Return the stage of a join.

        A condition beyond the equality of keys filters the pairs of an inner join. In other joins it decides whether a
        row has a partner. If it reads one side alone, a row of that side for which it is not true has a NULL for a key.
        """
        values = self._nodes.not_in_values(node)
        if values is not None:
            left, right = values
            place = f"{left.sql()} NOT IN …"
            return self._stage((node,), ((left,), (right,)), place, form=Form.NOT_IN)
        left, right = self._nodes.equal_keys(node)
        kind = self._nodes.join_type(node)
        place = f"{_join(node)} on {_words(left) or 'nothing'}"
        form = _JOINS.get(kind, Form.GENERAL) if left else Form.GENERAL
        condition = self._nodes.other_condition(node)
        keys: tuple[list[Expression], ...] | None = (left, right)
        if form in (Form.OUTER, Form.SEMI) and condition is not None:
            keys = self._conditional_keys(left, right, condition, node)
        if keys is None:
            return self._stage((node,), (left, right), place)
        return self._stage((node,), keys, place, form=form, condition=condition if form is Form.JOIN else None)

    def _conditional_keys(
        self, left: list[Expression], right: list[Expression], condition: Expression, join: Node
    ) -> tuple[list[Expression], ...] | None:
        """Return the keys of a join with its condition in them; None if a part of the condition reads both sides."""
        keys = [left, right]
        for part in self._nodes.conjuncts(condition):
            side = self._nodes.side_of(part, join)
            if side is None:
                return None
            first, *others = keys[side]
            keys[side] = [self._nodes.only_if(part, first), *others]
        return keys[0], keys[1]

    def _aggregate(self, node: Node) -> Flow:
        keys = [key for key in items(node.groupingExpressions()) if not _is_session(key)]
        place = f"GROUP BY {_words(keys) or 'nothing'}"
        whole = node.groupingExpressions().isEmpty()
        if len(keys) < node.groupingExpressions().size() or _collated(keys):
            return self._stage((node,), (tuple(keys),), place, whole=whole)
        parts = aggregate_parts(node, self._nodes)
        if parts is None or not (parts.functions or keys):
            return self._stage((node,), (tuple(keys),), place, whole=whole)
        if not parts.functions:
            return self._kernel_aggregate(node, parts, place, Form.DISTINCT)
        kept = self._layout_of(parts.keys, parts.functions, self.grows(node.child()))
        if kept is None:
            return self._stage((node,), (tuple(keys),), place, whole=whole)
        return self._kernel_aggregate(node, parts, place, Form.AGGREGATE, kept)

    def _kernel_aggregate(
        self, node: Node, parts: AggregateParts, place: str, form: Form, kept: KeptAggregates | None = None
    ) -> Flow:
        result = self._stage(
            (node,),
            (parts.keys,),
            place,
            whole=node.groupingExpressions().isEmpty(),
            form=form,
            output=parts.output,
            arguments=() if kept is None else kept.arguments,
            layout=None if kept is None else kept.layout,
        )
        return Linear(self._nodes.project(parts.results, node.child()), (result,))

    def grows(self, node: Node) -> bool:
        """Return whether no row of a node ever goes, because none of its inputs' does."""
        children = self._nodes.children(node)
        match self._nodes.kind(node):
            case "LogicalRDD":
                return self._streams.get(int(node.rdd().id())) in self._growing
            case "Join":
                left, _ = self._nodes.equal_keys(node)
                grows = bool(left) and self._nodes.join_type(node) in ("Inner", "LeftSemi")
            case "Aggregate":
                grows = items(node.groupingExpressions()) == items(node.aggregateExpressions())
            case kind:
                grows = kind in _LINEAR or kind in _STATIC or kind in _PASSED_OVER
        return grows and node.subqueries().isEmpty() and all(map(self.grows, children))

    def _limit(self, node: Node) -> Flow:
        nodes = [node]
        while self._nodes.kind(nodes[-1]) in ("GlobalLimit", "LocalLimit", "Offset"):
            nodes.append(nodes[-1].child())
        if self._nodes.kind(nodes[-1]) == "Project" and self._nodes.kind(nodes[-1].child()) == "Sort":
            nodes.append(nodes[-1].child())
        if self._nodes.kind(nodes[-1]) != "Sort" and self._nodes.is_constant(nodes[-1]):
            return self._stage(tuple(nodes[:-1]), ((),), "LIMIT of equal rows")
        if self._nodes.kind(nodes[-1]) != "Sort":
            raise self._refused("LIMIT without an order", "add ORDER BY: which rows it takes would be anybody's guess")
        most = self._nodes.row_limit(nodes)
        place = "ORDER BY … LIMIT"
        if most is None or most > _MOST_FIRST:
            return self._stage(tuple(nodes), ((),), place)
        order = self._nodes.sort_key(items(nodes[-1].order())[0])
        return self._first(tuple(nodes), (), place, FirstInOrder(FirstRows(most), order))

    def _first(self, nodes: Sequence[Node], keys: Sequence[Expression], place: str, first: FirstInOrder) -> StageResult:
        """Return a stage that needs the first rows of a key alone, if the kernel knows their order."""
        if _collated(keys) or not self._nodes.has_place(first.order[0]):
            return self._stage(nodes, (keys,), place)
        return self._stage(nodes, (keys,), place, form=Form.FIRST, first=first)

    def _stage(
        self,
        nodes: Sequence[Node],
        keys: Sequence[Sequence[Expression]],
        place: str,
        *,
        whole: bool = False,
        form: Form = Form.GENERAL,
        output: Sequence[Expression] | None = None,
        arguments: Sequence[Expression] = (),
        layout: Layout | None = None,
        first: FirstInOrder | None = None,
        condition: Expression | None = None,
    ) -> StageResult:
        if any(map(_collated, keys)):  # equal keys may have different bits: all rows are one key
            keys, form, condition = ((),) * len(keys), Form.GENERAL, None
        below = [*self._nodes.children(nodes[-1]), *items(nodes[-1].subqueries())]
        inputs = tuple(map(self.flow, below))
        given = self._nodes.output(nodes[0]) if output is None else output
        stage = Stage(
            len(self.stages), form, tuple(nodes), tuple(given), inputs, tuple(map(tuple, keys)), whole, place,
            tuple(arguments), layout, first, self.grows(below[0]),
            condition,
        )  # fmt: skip
        self.stages.append(stage)
        return StageResult(stage.number)

    def _with_scalars(self, node: Node) -> Flow:
        """Return a stage for a node with scalar subqueries in its expressions: all rows are one key."""
        if not self._nodes.can_replace_subqueries(node):
            raise self._refused(f"a subquery within {self._nodes.kind(node)}", "join with it")
        keys = ((),) * (1 + node.subqueries().size())
        whole = self._nodes.kind(node) == "Aggregate" and node.groupingExpressions().isEmpty()
        return self._stage((node,), keys, "a scalar subquery", whole=whole)

    def _refused(self, what: str, instead: str) -> InvalidError:
        return InvalidError("NOT_INCREMENTAL", f"{self._view} has {what}, which cannot be kept up to date: {instead}")


def _is_session(key: Any) -> bool:
    return hasattr(key, "metadata") and "sessionWindow" in str(key.metadata().json())


def _collated(keys: Sequence[Expression]) -> bool:
    return any("collate" in str(key.dataType().catalogString()) for key in keys)


def _join(node: Node) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", PlanNodes.join_type(node)).upper().removesuffix(" JOIN") + " JOIN"


def _words(keys: Sequence[Any]) -> str:
    return ", ".join(str(key.sql()).replace("__auto_generated_subquery_name.", "") for key in keys)
