"""Rewrites an optimised plan into a form that can be cut into stages.

Spark's optimiser makes nodes that its analyser refuses, but a stage is analysed again at each step. For a subquery that
reads columns of the outer query, decorrelation leaves duplicate columns, and row numbers without an order instead of
LIMIT. Below a semi join without a condition, and below a LIMIT, the optimiser adds limits that change only the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from boatlift.errors import InvalidError
from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node, holds_plan, plans_within
from boatlift.views.unique_keys import unique_ids


class NodeRewriting(CatalystPlan):
    """Rewrites nodes."""

    def with_plans(self, node: Node, made_of: Callable[[Node], Node]) -> Node:
        """Return a node with other plans in its subqueries."""

        def replaced(expression: Expression) -> Expression:
            made = self.over_expression(expression, replaced)
            return made.withNewPlan(made_of(made.plan())) if holds_plan(made) else made

        return self.with_expressions(node, replaced)

    def with_scalars_as_columns(self, node: Node) -> Node | None:
        """Return a sort or a join with its scalar subqueries as further input columns; None if it has other subqueries.

        The subqueries of a condition become columns of the side that the condition reads, by default the left one.
        """
        plans = [each for root in items(node.expressions()) for each in plans_within(root)]
        if any(self.kind(each) != "ScalarSubquery" for each in plans):
            return None
        more: list[list[Expression]] = [[] for _ in self.children(node)]

        def replaced(expression: Expression, side: int) -> Expression:
            if self.kind(expression) != "ScalarSubquery":
                return self.over_expression(expression, lambda each: replaced(each, side))
            more[side].append(self.alias(expression, "scalar"))
            return more[side][-1].toAttribute()

        if self.kind(node) == "Join":
            parts = self.conjuncts(node.condition().get())
            made = self._joined(node, self.all_of([replaced(part, self.side_of(part, node) or 0) for part in parts]))
        else:
            made = self.with_expressions(node, lambda each: replaced(each, 0))
        below = zip(self.children(node), more, strict=True)
        return self.over(made, [self.project([*self.output(each), *new], each) if new else each for each, new in below])

    def with_distinct_fields(self, plan: Node) -> Node:
        """Return a subquery with a name for each field of its struct.

        The optimiser merges subqueries into one with a struct, which has a name twice if two of their columns have it.
        Fields are read by position.
        """
        columns = items(plan.projectList()) if self.kind(plan) == "Project" else []
        if len(columns) != 1 or self.kind(value := self.unnamed(columns[0])) != "CreateNamedStruct":
            return plan
        names = [str(each) for each in items(value.names())]
        if len(set(names)) == len(names):
            return plan
        made = self.struct([f"f{place}" for place in range(len(names))], items(value.valExprs()))
        return self.project([self.alias(made, columns[0].name(), columns[0].exprId())], plan.child())

    def window(
        self, columns: Iterable[Expression], partition: Iterable[Expression], order: Iterable[Expression], child: Node
    ) -> Node:
        return self._logical.Window(self._seq(columns), self._seq(partition), self._seq(order), child, self._none)

    def window_in_order(self, node: Node, order: Sequence[Expression], child: Node) -> Node:
        """Return a node's windows in an order, over another child."""
        columns = []
        for column in items(node.windowExpressions()):
            call = column.child()
            given = call.windowSpec()
            spec = self._expressions.WindowSpecDefinition(
                given.partitionSpec(), self._seq(order), given.frameSpecification()
            )
            ordered = self._expressions.WindowExpression(call.windowFunction(), spec)
            columns.append(self.alias(ordered, column.name(), column.exprId(), column.metadata()))
        return self.window(columns, items(node.partitionSpec()), order, child)

    def by_columns(self, order: Sequence[Expression]) -> tuple[list[Expression], list[Expression]]:
        """Return an order over further columns, and these columns."""
        columns = [self.alias(each.child(), "order") for each in order]
        pairs = zip(order, columns, strict=True)
        return [each.withNewChildren(self._seq([column.toAttribute()])) for each, column in pairs], columns

    def over_expression(self, expression: Expression, replaced: Callable[[Expression], Expression]) -> Expression:
        """Return an expression with each of its children replaced."""
        children = items(expression.children())
        return expression.withNewChildren(self._seq(map(replaced, children))) if children else expression

    def with_expressions(self, node: Node, replaced: Callable[[Expression], Expression]) -> Node:
        """Return a node with each of its expressions replaced, if its kind may contain subqueries."""
        match self.kind(node):
            case "Filter":
                return self.filter(replaced(node.condition()), node.child())
            case "Project":
                return self.project(map(replaced, items(node.projectList())), node.child())
            case "Aggregate":
                keys, columns = items(node.groupingExpressions()), items(node.aggregateExpressions())
                made = [self._seq(map(replaced, each)) for each in (keys, columns)]
                return self._logical.Aggregate(*made, node.child(), node.hint())
            case "Sort":
                return self.sort(node.child(), map(replaced, items(node.order())), whole=True)
            case "Join":
                return self._joined(node, replaced(node.condition().get()))
            case _:
                return node

    def _joined(self, join: Node, condition: Expression) -> Node:
        left, right = self.children(join)
        return self._logical.Join(left, right, join.joinType(), self._some(condition), join.hint())


_LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset"})
"""The nodes of a LIMIT."""


def normal_form(plan: Node, nodes: CatalystPlan, view: str) -> Node:
    """Return a plan with the same rows that the analyser accepts.

    Raises:
        InvalidError: `[NOT_INCREMENTAL]` the rows that a LIMIT takes are arbitrary.
    """
    return _Forming(nodes, view).in_places(plan)


class _Forming:
    def __init__(self, nodes: CatalystPlan, view: str) -> None:
        self._nodes, self._view = NodeRewriting(nodes.spark), view

    def in_places(self, node: Node) -> Node:
        """Return a node in normal form with all columns, because a union identifies columns by position."""
        formed, columns = self.of(node), self._nodes.output(node)
        return self._nodes.project(columns, formed) if len(self._nodes.output(formed)) < len(columns) else formed

    def of(self, node: Node) -> Node:
        """Return a node in normal form, without duplicate columns."""
        kind = self._nodes.kind(node)
        children = self._nodes.children(node)
        form = self.in_places if kind in ("Union", "UnionLoop") else self.of
        formed = []
        for child in children:
            while self._nodes.kind(child) == "LocalLimit" and kind not in _LIMITS:
                child = child.child()  # a limit per partition that belongs to no LIMIT is a hint
            formed.append(form(child))
        if any(new is not old for new, old in zip(formed, children, strict=True)):
            node = self._nodes.over(node, formed)
        if not node.subqueries().isEmpty():
            node = self._nodes.with_plans(node, lambda plan: self._nodes.with_distinct_fields(self.of(plan)))
            made = self._nodes.with_scalars_as_columns(node) if kind in ("Sort", "Join") else None
            node = node if made is None else self._nodes.project(self._nodes.output(node), made)
        match self._nodes.kind(node):
            case "Project":
                columns = items(node.projectList())
                kept = list({self._nodes.id(each): each for each in columns}.values())
                return self._nodes.project(kept, node.child()) if len(kept) < len(columns) else node
            case "Window":
                return self._window(node)
        return node

    def _window(self, node: Node) -> Node:
        """Return a window without its input's columns, and with an order for its row numbers."""
        columns = items(node.windowExpressions())
        own = [each for each in columns if self._nodes.kind(each) == "Alias"]
        if len(own) < len(columns):
            node = self._nodes.window(own, items(node.partitionSpec()), items(node.orderSpec()), node.child())
        numbers = any(self._nodes.is_row_number(each.child()) for each in own)
        return self._ordered(node) if numbers and node.orderSpec().isEmpty() else node

    def _ordered(self, node: Node) -> Node:
        """Return the row numbers of a subquery's LIMIT in the subquery's order.

        Equal rows of a partition may have any order. Otherwise a sort below gives the order, by columns that the
        subquery need not select. Without one, rows of a partition may differ: `[NOT_INCREMENTAL]`.
        """
        partition, child = items(node.partitionSpec()), node.child()
        plain = list(map(self._nodes.without_normalising, partition))
        by = {self._nodes.id(each) for each in plain if self._nodes.kind(each) == "AttributeReference"}
        one_row = any(key <= by for key in unique_ids(child, self._nodes, {}))
        if partition and (one_row or set(map(self._nodes.id, self._nodes.output(child))) <= by):
            return self._nodes.window_in_order(node, list(map(self._nodes.ascending, partition)), child)
        below = child.child() if self._nodes.kind(child) == "Project" else child
        if self._nodes.kind(below) != "Sort":
            raise InvalidError(
                "NOT_INCREMENTAL",
                f"{self._view} has LIMIT without an order in a subquery that reads columns of the query around it: "
                "add ORDER BY, or take one value of all by min, max, min_by or max_by",
            )
        columns = items(child.projectList()) if below is not child else self._nodes.output(child)
        order, named = self._nodes.by_columns(items(below.order()))
        sorted_rows = self._nodes.project([*columns, *named], below.child())
        return self._nodes.project(self._nodes.output(node), self._nodes.window_in_order(node, order, sorted_rows))
