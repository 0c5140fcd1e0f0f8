"""Plans that pass markers on: rows that end a step in a long-running job, and for which nothing is computed.

A long-running job runs the same expressions as the job of one step. Markers travel with the rows: a filter keeps them,
a computed column holds a default of its type, and a generator over an array yields one row with a default. So a marker
raises no error, and the values of rows do not change.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from boatlift.dataflow.columns import MARK
from boatlift.spark.plans.catalyst import frame_of, items, jvm, plan_of

_ROW_BY_ROW = frozenset(
    {
        "FilterExec",
        "GenerateExec",
        "InputAdapter",
        "MapInArrowExec",
        "ProjectExec",
        "RangeExec",
        "WholeStageCodegenExec",
    }
)
"""Physical nodes that pass on each row before they ask for the next."""

_OF_ARRAYS = frozenset({"Explode", "Inline", "PosExplode"})
"""Generators that yield a row for each element of an array or entry of a map."""


def marked(frame: DataFrame, spark: SparkSession) -> DataFrame | None:
    """Return a frame with `MARK` as its last column, passed up from the rows of a task; None if a node prevents it.

    Args:
        frame: Its plan has one leaf: the rows of a task with `MARK`.
    """
    plan = _marked(plan_of(frame))
    return None if plan is None else frame_of(spark, plan[0])


def is_a_stream(frame: DataFrame) -> bool:
    """Return whether a planned frame passes on each row before it asks for the next."""

    def passes_on(node: Any) -> bool:
        known = _kind(node) in _ROW_BY_ROW and node.subqueries().isEmpty()
        return known and all(map(passes_on, items(node.children())))

    return passes_on(frame._jdf.queryExecution().executedPlan())


def _marked(node: Any) -> tuple[Any, Any] | None:
    """Return a logical node that passes markers on, and the attribute of `MARK`."""
    kind = _kind(node)
    if kind == "MapInArrow":
        found = [each for each in items(node.output()) if each.name() == MARK]
        return (node, found[0]) if found else None
    if kind == "Repartition" and not node.shuffle():
        return _marked(node.child())  # the rows of one task are in one partition already
    if kind == "Generate" and not _is_of_array(node.generator()):
        return None
    if kind not in ("Filter", "Generate", "Project", "SubqueryAlias"):
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
    if kind == "Generate":
        generator = _of_one_row(node.generator(), mark)
        unread, names = node.unrequiredChildIndex(), node.generatorOutput()
        return logical.Generate(generator, unread, node.outer(), node.qualifier(), names, child), mark
    columns = [_guarded(each, mark) for each in items(node.projectList())]
    if not any(each.exprId().equals(mark.exprId()) for each in columns):
        columns.append(mark)
    return logical.Project(_seq(columns), child), mark


def _is_of_array(generator: Any) -> bool:
    return _kind(generator) in _OF_ARRAYS and _kind(next(iter(items(generator.children()))).dataType()) == "ArrayType"


def _guarded(column: Any, mark: Any) -> Any:
    """Return a column of a projection that is not computed for markers."""
    if _kind(column) != "Alias":
        return column
    value = column.child()
    return column.withNewChildren(_seq([_expressions().If(_is_mark(mark), _default(value.dataType()), value)]))


def _of_one_row(generator: Any, mark: Any) -> Any:
    """Return a generator over an array that is not computed for markers, and yields one row for each."""
    (values,) = items(generator.children())
    one = _expressions().CreateArray(_seq([_default(values.dataType().elementType())]), False)
    return generator.withNewChildren(_seq([_expressions().If(_is_mark(mark), one, values)]))


def _default(kind: Any) -> Any:
    return getattr(_expressions(), "Literal$").__getattr__("MODULE$").default(kind)


def _is_mark(mark: Any) -> Any:
    literal = getattr(_expressions(), "Literal$").__getattr__("MODULE$")
    return _expressions().GreaterThan(mark, literal.apply(0))


def _expressions() -> Any:
    return jvm().org.apache.spark.sql.catalyst.expressions


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _seq(some: list[Any]) -> Any:
    return jvm().PythonUtils.toSeq(some)
