"""Rewrites nodes of Catalyst: subqueries as columns, other plans in subqueries, other orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node, holds_plan, items, plans_within


class NodeRewriting(CatalystPlan):
    """Rewrites nodes."""

    def with_plans(self, node: Node, made_of: Callable[[Node], Node]) -> Node:
        """Return a node with other plans in its subqueries."""

        def replaced(expression: Expression) -> Expression:
            made = self._over(expression, replaced)
            return made.withNewPlan(made_of(made.plan())) if holds_plan(made) else made

        return self._with_expressions(node, replaced)

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
                return self._over(expression, lambda each: replaced(each, side))
            more[side].append(self.alias(expression, "scalar"))
            return more[side][-1].toAttribute()

        if self.kind(node) == "Join":
            parts = self.conjuncts(node.condition().get())
            made = self._joined(node, self.all_of([replaced(part, self.side_of(part, node) or 0) for part in parts]))
        else:
            made = self._with_expressions(node, lambda each: replaced(each, 0))
        below = zip(self.children(node), more, strict=True)
        return self.over(made, [self.project([*self.output(each), *new], each) if new else each for each, new in below])

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

    def _over(self, expression: Expression, replaced: Callable[[Expression], Expression]) -> Expression:
        children = items(expression.children())
        return expression.withNewChildren(self._seq(map(replaced, children))) if children else expression

    def _with_expressions(self, node: Node, replaced: Callable[[Expression], Expression]) -> Node:
        """Return a node with other expressions, if its kind may contain subqueries."""
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
