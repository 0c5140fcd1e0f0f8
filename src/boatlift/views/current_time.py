"""`now()` in a query: the columns of a table of one row, which changes as time passes."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.types import DateType, StructField, StructType, TimestampNTZType, TimestampType

from boatlift.dataflow.columns import quoted
from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import Expression, Node
from boatlift.views.normal_form import NodeRewriting

TIME_COLUMNS = StructType(
    [StructField("now", TimestampType()), StructField("today", DateType()), StructField("local", TimestampNTZType())]
)
"""The columns of the table."""

TIME_PLACES = {"Now": 0, "CurrentTimestamp": 0, "CurrentDate": 1, "LocalTimestamp": 2}
"""The expressions of the current time, each with the place of its column."""


def time_of_ticks(ticks: str, period: int) -> str:
    """Return the query of the table: the time of the newest tick, rounded down to a period; NULL before the first one.

    Args:
        ticks: The stream of ticks.
        period: Microseconds.
    """
    newest = f"max(unix_micros(at) DIV {period} * {period})"  # does not change within a period
    now = f"SELECT timestamp_micros({newest}) AS now FROM {quoted(ticks)}"  # noqa: S608
    return f"SELECT now, CAST(now AS DATE) AS today, CAST(now AS TIMESTAMP_NTZ) AS local FROM ({now})"  # noqa: S608


class CurrentTime(NodeRewriting):
    """Puts columns of the table in the place of `now()` and its like, in the nodes that it can rewrite.

    Such a node is over a cross join with the table, and its output is as before.

    Args:
        table: Returns the table's leaf.
    """

    def __init__(self, spark: SparkSession, table: Callable[[], Node]) -> None:
        super().__init__(spark)
        self._table = table

    def in_plan(self, node: Node) -> Node:
        """Return an analysed plan without the current time, but for nodes that it cannot rewrite."""
        children = self.children(node)
        made = [self.in_plan(child) for child in children]
        if any(new is not old for new, old in zip(made, children, strict=True)):
            node = self.over(node, made)
        if self.kind(node) not in _REWRITTEN or not any(map(_has_time, items(node.expressions()))):
            return node
        beside = self._beside_functions(node)
        if beside and node.groupingExpressions().isEmpty():
            return node  # without rows it has one, with the time
        node = self.without_synonyms(node)  # `now() - INTERVAL …` has its operands beside its children
        first, *others = self.children(node)
        table = self.frame_of(self._table().newInstance())
        joined = self.analysed(self.frame_of(first).crossJoin(table))
        columns = self.output(joined)[-len(TIME_COLUMNS) :]

        def replaced(expression: Expression) -> Expression:
            place = TIME_PLACES.get(self.kind(expression))
            return self.over_expression(expression, replaced) if place is None else columns[place]

        over = self.with_expressions(self.over(node, [joined, *others]), replaced)
        if beside:  # in each group it is one value
            keys = [*items(over.groupingExpressions()), *(columns[place] for place in beside)]
            over = self._logical.Aggregate(self._seq(keys), over.aggregateExpressions(), over.child(), over.hint())
        return over if self.kind(node) in ("Project", "Aggregate") else self.project(self.output(node), over)

    def _beside_functions(self, node: Node) -> list[int]:
        """Return the places of the columns that an aggregate has outside of its functions."""
        found: set[int] = set()

        def walk(expression: Expression) -> None:
            kind = self.kind(expression)
            if kind in TIME_PLACES:
                found.add(TIME_PLACES[kind])
            elif kind != "AggregateExpression":
                for child in items(expression.children()):
                    walk(child)

        if self.kind(node) == "Aggregate":
            for column in items(node.aggregateExpressions()):
                walk(column)
        return sorted(found)


_REWRITTEN = frozenset({"Aggregate", "Filter", "Join", "Project", "Sort"})


def _has_time(expression: Expression) -> bool:
    return NodeRewriting.kind(expression) in TIME_PLACES or any(map(_has_time, items(expression.children())))
