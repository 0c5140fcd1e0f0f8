"""A plan through which marks pass: rows that say where a step ends, and with which nothing is computed.

A job that lives for many steps runs the same expressions as a job a step does. Marks go with the rows: a condition lets
them pass, and a computed column has a value of its type that nothing is computed for. So a mark raises no error, and a
row has the value that it has without marks.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from boatlift.dataflow.columns import MARK
from boatlift.spark.plans.catalyst import frame_of, items, jvm, plan_of

__all__ = ["is_a_stream", "marked"]

_ROW_BY_ROW = frozenset(
    {"FilterExec", "InputAdapter", "MapInArrowExec", "ProjectExec", "RangeExec", "WholeStageCodegenExec"}
)
"""Physical nodes that hand on each row before they ask for the next."""


def marked(frame: DataFrame, spark: SparkSession) -> DataFrame | None:
    """Return a frame with `MARK` as its last column, carried up from the rows of a task; None if marks cannot pass.

    Args:
        frame: Its plan has one leaf: the rows of a task with `MARK`.
        spark: The session of the result.
    """
    plan = _marked(plan_of(frame))
    return None if plan is None else frame_of(spark, plan[0])


def is_a_stream(frame: DataFrame) -> bool:
    """Return whether a planned frame hands on each row before it asks for the next."""

    def hands_on(node: Any) -> bool:
        known = _kind(node) in _ROW_BY_ROW and node.subqueries().isEmpty()
        return known and all(map(hands_on, items(node.children())))

    return hands_on(frame._jdf.queryExecution().executedPlan())


def _marked(node: Any) -> tuple[Any, Any] | None:
    """Return a logical node that passes marks on, and the attribute of `MARK`."""
    kind = _kind(node)
    if kind == "MapInArrow":
        found = [each for each in items(node.output()) if each.name() == MARK]
        return (node, found[0]) if found else None
    if kind == "Repartition" and not node.shuffle():
        return _marked(node.child())  # the rows of one task are in one partition already
    if kind not in ("Filter", "Project", "SubqueryAlias"):
        return None
    below = _marked(node.child())
    if below is None:
        return None
    child, mark = below
    logical = jvm().org.apache.spark.sql.catalyst.plans.logical
    if kind == "SubqueryAlias":
        return node.withNewChildren(_seq([child])), mark
    if kind == "Filter":
        return logical.Filter(_expressions().Or(_is_mark(mark), node.condition()), child), mark
    columns = [_guarded(each, mark) for each in items(node.projectList())]
    if not any(each.exprId().equals(mark.exprId()) for each in columns):
        columns.append(mark)
    return logical.Project(_seq(columns), child), mark


def _guarded(column: Any, mark: Any) -> Any:
    """Return a column of a projection that computes nothing with a mark."""
    if _kind(column) != "Alias":
        return column
    value = column.child()
    literal = getattr(_expressions(), "Literal$").__getattr__("MODULE$")
    nothing = literal.default(value.dataType())
    return column.withNewChildren(_seq([_expressions().If(_is_mark(mark), nothing, value)]))


def _is_mark(mark: Any) -> Any:
    literal = getattr(_expressions(), "Literal$").__getattr__("MODULE$")
    return _expressions().GreaterThan(mark, literal.apply(0))


def _expressions() -> Any:
    return jvm().org.apache.spark.sql.catalyst.expressions


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _seq(some: list[Any]) -> Any:
    return jvm().PythonUtils.toSeq(some)
