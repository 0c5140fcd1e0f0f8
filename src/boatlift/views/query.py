"""Cuts Catalyst's optimised plan into stages, where the change of a result depends on rows of earlier steps.

Between two cuts the plan is linear: applied to a change of its input, it yields the change of its output. At a cut,
rows are arranged by the key of the node there. The node's result for a key depends only on the rows of that key. So its
change depends only on the rows of the affected keys, before and after the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from boatlift.errors import InvalidError
from boatlift.kernels.aggregate import Layout
from boatlift.kernels.network.rows_of_keys import Numbering
from boatlift.spark.plans.catalyst import items
from boatlift.state.arrangement.ordered import FirstRows, Order
from boatlift.views.aggregates import AggregateParts, KeptAggregates, LayoutOf, aggregate_parts, with_exact_sums
from boatlift.views.bounds import Bounds, Expires
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node
from boatlift.views.flows import Flow, Form, Leaf, Linear, SchemaOf, StageResult
from boatlift.views.joins import collated, join_form, words
from boatlift.views.loop_making import LoopBody, LoopKit, loop_body, recursion_body
from boatlift.views.normal_form import normal_form
from boatlift.views.unique_keys import unique_ids


@dataclass(frozen=True, slots=True)
class FirstInOrder:
    """The first rows of a key."""

    rows: FirstRows
    order: tuple[Expression, Order]
    """An expression over the columns of the input, and the order of its values."""
    numbering: Numbering | None = None
    """The numbers of the rows, if they choose the result; None: Spark computes it from the first rows."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A node that is applied to the rows of affected keys.

    Attributes:
        nodes: The node; for a limit the nodes down to the sort.
        keys: For each input the key by which its rows are arranged; empty: all rows have one key.
        whole: Whether the node has a row even for no input rows, as an aggregate without keys has.
        place: The stage in words, for people.
        arguments: The arguments of a linear aggregate's functions.
        layout: The aggregate's layout in the kernel.
        first: The first rows of a key, if the result depends only on them.
        grows: Whether the first input is append-only.
        condition: The condition on the pairs of an inner join, without its equality keys.
        expires: For each input the column by which its rows expire; None: they never do.
        sessions: The column with a row's session, and the bound of the rows' times: rows expire when the bound passes
            the end of their session. None without session windows, or without a bound.
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
    loop: LoopBody | None = None
    expires: tuple[Expires | None, ...] = ()
    sessions: Expires | None = None

    @property
    def children(self) -> list[Node]:
        """The nodes below, whose attributes the stage's rows have: the children, then the scalar subqueries."""
        return [*items(self.nodes[-1].children()), *items(self.nodes[-1].subqueries())]


@dataclass(frozen=True, slots=True)
class Query:
    """A query as stages."""

    stages: tuple[Stage, ...]
    result: Flow
    node: Node
    grows: bool = False
    """Whether the result is append-only."""
    bounded: int | None = None
    """The place of a result column that is never before the least watermark of the streams."""

    @property
    def only_appends(self) -> bool:
        """Whether the result consists of new rows that depend only on the step's rows."""
        return self.grows and not self.stages


_PASSED_OVER = frozenset({"WindowGroupLimit", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"})
"""Nodes that are skipped: hints, and orders that no limit reads."""

_MOST_FIRST = 1000
"""A larger limit gets the general form, because reading its rows costs as much."""

_LINEAR = frozenset({"Project", "Filter", "Generate", "Expand", "Union", "ArrowEvalPython", "BatchEvalPython"})
_STATIC = frozenset({"LocalRelation", "LogicalRelation", "OneRowRelation", "Range", "InMemoryRelation"})


@dataclass(frozen=True, slots=True)
class QueryKit:
    """The session, the streams and the options of a query that is cut."""

    nodes: CatalystPlan
    view: str
    streams: Mapping[int, str]
    """The RDD number of each empty frame that represents a stream, to the stream."""
    growing: AbstractSet[str]
    """The append-only streams."""
    bounded: Mapping[str, tuple[str, ...]]
    """Stream to its columns with the event time of its watermark."""
    schema_of: SchemaOf
    layout_of: LayoutOf
    most_iterations: int
    """WITH RECURSIVE fails with more iterations."""
    keys: Mapping[int, Sequence[frozenset[str]]]
    """The keys of each stream, by the RDD number of its empty frame; see `unique_keys`."""


def query_of(node: Node, kit: QueryKit) -> Query:
    """Return the stages of an optimised plan.

    Raises:
        InvalidError: `[NOT_INCREMENTAL]` a part of the query cannot be kept up to date.
    """
    cutting = _Cutting(kit)
    node = normal_form(node, kit.nodes, kit.view)
    result = cutting.flow(node)
    bounded = cutting.bounds.column(node)
    return Query(tuple(cutting.stages), result, node, cutting.grows(node), bounded)


def loop_of(node: Node, loop_rdd: int, most_iterations: int, keep_every: float, kit: QueryKit) -> Query:
    """Return the stages of a loop.

    Args:
        node: The optimised plan of the next iteration's rows.
        loop_rdd: The RDD number of the empty frame that represents the loop's rows.
        keep_every: The seconds between two loop checkpoints.

    Raises:
        InvalidError: `[NOT_INCREMENTAL]` a part of the loop cannot be kept up to date.
    """
    cutting = _Cutting(kit)
    node = normal_form(node, kit.nodes, kit.view)
    body = replace(loop_body(node, loop_rdd, most_iterations, cutting.loop_kit), keep_every=keep_every)
    result = cutting.loop(body, node, "a loop")
    return Query(tuple(cutting.stages), result, node)


class _Cutting:
    def __init__(self, kit: QueryKit) -> None:
        self._kit, self._nodes = kit, kit.nodes
        self._streams, self._growing, self._view, self._layout_of = kit.streams, kit.growing, kit.view, kit.layout_of
        self.bounds = Bounds(kit.nodes, kit.streams, kit.bounded)
        self.stages: list[Stage] = []

    @property
    def loop_kit(self) -> LoopKit:
        return LoopKit(self._nodes, self._view, self._kit.schema_of, self._layout_of, self.flow)

    def loop(self, body: LoopBody, node: Node, place: str) -> StageResult:
        """Add the stage of a loop, with the columns of a node."""
        inputs, keys = tuple(each.flow for each in body.inputs), ((),) * len(body.inputs)
        output = tuple(self._nodes.output(node))
        stage = Stage(len(self.stages), Form.LOOP, (node,), output, inputs, keys, whole=False, place=place, loop=body)
        self.stages.append(stage)
        return StageResult(stage.number)

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
                one_row = any(
                    frozenset() in unique_ids(child, self._nodes, self._kit.keys)
                    for child in self._nodes.children(node)
                )
                join = join_form(node, self._nodes, with_one_row=one_row)
                return self._stage((node,), join.keys, join.place, form=join.form, condition=join.condition)
            case "Window":
                keys = items(node.partitionSpec())
                place = f"OVER (PARTITION BY {words(keys) or 'nothing'})"
                limit = self._nodes.rank_limit(node)
                if limit is None:
                    return self._stage((node,), (keys,), place)
                orders = items(node.orderSpec())
                columns = items(node.windowExpressions())
                named = len(columns) == 1 and self._nodes.kind(columns[0]) == "Alias"
                numbered = named and self._nodes.is_row_number(columns[0].child())
                numbering = self._numbering(orders, node) if numbered else None
                first = FirstInOrder(FirstRows(*limit), self._nodes.sort_key(orders[0]), numbering)
                return self._first((node,), keys, place, first)
            case "GlobalLimit" | "Offset":
                return self._limit(node)
            case "UnionLoop":
                body = recursion_body(node, self._kit.most_iterations, self.loop_kit)
                return self.loop(body, node, "WITH RECURSIVE")
        raise self._refused(self._nodes.in_words(node), "write the query without it")

    def _aggregate(self, node: Node) -> Flow:
        sessions = {self._nodes.id(key.toAttribute()) for key in self._nodes.session_keys(node)}
        keys = [
            key
            for key in items(node.groupingExpressions())  # a key may be a constant
            if self._nodes.kind(key) not in ("AttributeReference", "Alias")
            or self._nodes.id(key.toAttribute()) not in sessions
        ]
        place = f"GROUP BY {words(keys) or 'nothing'}"
        if len(keys) < node.groupingExpressions().size() or collated(keys):
            return self._general_aggregate(node, keys, place, self.bounds.by_sessions(node))
        parts = aggregate_parts(node, self._nodes)
        if parts is None or not (parts.functions or keys):
            return self._general_aggregate(node, keys, place)
        if not parts.functions:
            return self._kernel_aggregate(node, parts, place, Form.DISTINCT)
        kept = self._layout_of(parts.keys, parts.functions, self.grows(node.child()))
        if kept is None:
            return self._general_aggregate(node, keys, place)
        return self._kernel_aggregate(node, parts, place, Form.AGGREGATE, kept)

    def _general_aggregate(
        self, node: Node, keys: Sequence[Expression], place: str, sessions: Expires | None = None
    ) -> Flow:
        whole = node.groupingExpressions().isEmpty()
        exact = with_exact_sums(node, self._nodes)
        if exact is None:
            return self._stage((node,), (tuple(keys),), place, whole=whole, sessions=sessions)
        result = self._stage((exact.node,), (tuple(keys),), place, whole=whole, sessions=sessions)
        return Linear(self._nodes.project(exact.results, node.child()), (result,))

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
        """Return whether a node is append-only, because its inputs are."""
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
        orders = items(nodes[-1].order())
        first = FirstInOrder(FirstRows(most), self._nodes.sort_key(orders[0]), self._numbering(orders, *nodes))
        return self._first(tuple(nodes), (), place, first)

    def _numbering(self, orders: Sequence[Expression], *nodes: Node) -> Numbering | None:
        """Return the numbering of a window or a limit; None if the kernel cannot compare the rows."""
        rows = self._nodes.output(nodes[-1].child())
        places = {self._nodes.id(each): place for place, each in enumerate(rows)}
        keys = [self._nodes.sort_key(each) for each in orders]
        emits = self._nodes.kind(nodes[0]) == "Window"
        wanted = rows if emits else self._nodes.output(nodes[0])
        columns = [*(key for key, _ in keys), *wanted]
        known = all(
            self._nodes.kind(each) == "AttributeReference" and self._nodes.id(each) in places for each in columns
        )
        if not known or not all(map(self._nodes.has_place, rows)):
            return None
        order = tuple((places[self._nodes.id(key)], direction) for key, direction in keys)
        offsets = [] if emits else [each.offsetExpr() for each in nodes if self._nodes.kind(each) == "Offset"]
        after = sum(int(each.eval(None)) for each in offsets)
        return Numbering(order, after, tuple(places[self._nodes.id(each)] for each in wanted), emits)

    def _first(self, nodes: Sequence[Node], keys: Sequence[Expression], place: str, first: FirstInOrder) -> StageResult:
        """Add a stage that needs only the first rows of a key, if the kernel supports their order."""
        if collated(keys) or not self._nodes.has_place(first.order[0]):
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
        sessions: Expires | None = None,
    ) -> StageResult:
        if any(map(collated, keys)):  # equal keys may have different bits, so all rows get one key
            keys, form, condition = ((),) * len(keys), Form.GENERAL, None
        below = [*self._nodes.children(nodes[-1]), *items(nodes[-1].subqueries())]
        inputs = tuple(map(self.flow, below))
        given = self._nodes.output(nodes[0]) if output is None else output
        grows = tuple(map(self.grows, below))
        expires = self.bounds.by_keys(below, keys)
        if form is Form.JOIN and not any(expires):
            expires = self.bounds.by_condition(nodes[0], condition, grows)
        elif form is Form.GENERAL and len(nodes) == 1 and self._nodes.kind(nodes[0]) == "Join" and not any(expires):
            expires = self.bounds.by_band(nodes[0])
        elif form is Form.NOT_IN:
            expires = (None,) * len(below)
        stage = Stage(
            len(self.stages), form, tuple(nodes), tuple(given), inputs, tuple(map(tuple, keys)), whole, place,
            tuple(arguments), layout, first, grows[0],
            condition, expires=expires, sessions=None if any(expires) else sessions,
        )  # fmt: skip
        self.stages.append(stage)
        return StageResult(stage.number)

    def _with_scalars(self, node: Node) -> Flow:
        """Add a stage for a node with scalar subqueries in its expressions; all rows have one key."""
        if not self._nodes.can_replace_subqueries(node):
            raise self._refused(f"a subquery within {self._nodes.in_words(node)}", "join with it")
        keys = ((),) * (1 + node.subqueries().size())
        whole = self._nodes.kind(node) == "Aggregate" and node.groupingExpressions().isEmpty()
        return self._stage((node,), keys, "a scalar subquery", whole=whole)

    def _refused(self, what: str, instead: str) -> InvalidError:
        return InvalidError("NOT_INCREMENTAL", f"{self._view} has {what}, which cannot be kept up to date: {instead}")
