"""What Spark's analyser made of a DataFrame or a Column, read in one call to the JVM.

The only module that knows PySpark's private doors and the shape of a plan's JSON. A plan is printed by Catalyst as a list of
nodes, each before its children; expressions are such lists inside a node's fields.
"""

# ruff: noqa: SLF001

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from boatlift.dataflow.columns import quoted
from boatlift.errors import InternalError

__all__ = [
    "INPUT",
    "Call",
    "Tree",
    "analysed",
    "analysed_text",
    "call_of",
    "can_thread",
    "has_one_stage",
    "is_input",
    "java_settings",
    "map_in_arrow",
    "optimised",
    "python_functions",
    "subplan",
    "thread",
]

INPUT = "__boatlift_input__"
"""The alias that marks a transform's input in its plan."""

_CARRYING = frozenset({"Filter", "Generate", "Join", "SubqueryAlias"})
"""Nodes that pass on all columns of their input, so that one more passes too; a join has one side that is streamed."""

_KEEPING_NOTHING = frozenset(
    {
        "ArrowEvalPythonExec",
        "BatchEvalPythonExec",
        "CoalesceExec",
        "FilterExec",
        "GenerateExec",
        "InputAdapter",
        "MapInArrowExec",
        "ProjectExec",
        "RangeExec",
        "UnionExec",
        "WholeStageCodegenExec",
    }
)
"""Physical nodes that may be run again; an exchange would give the rows of its first run again."""

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."


@dataclass(frozen=True, slots=True)
class Tree:
    """A node of a plan, or of an expression.

    Attributes:
        kind: Its class: the simple name for a logical node, the name below `catalyst.expressions.` for an expression.
        fields: Its other fields as Catalyst prints them; expressions in them are lists.
        children: Nodes of the same sort below it.
    """

    kind: str
    fields: dict[str, Any]
    children: tuple[Tree, ...]

    def expressions(self) -> Iterator[Tree]:
        """Gives the roots of all expressions in this node's fields, in order."""
        for value in self.fields.values():
            yield from _trees(value)

    def walk(self) -> Iterator[Tree]:
        """Gives this node and all nodes below it; an expression's subquery is a field, not a child."""
        yield self
        for child in self.children:
            yield from child.walk()


def is_input(node: Tree, mark: str = INPUT) -> bool:
    """Return whether a node marks the input of a transform."""
    return node.kind == "SubqueryAlias" and node.fields["identifier"].get("name") == mark


def analysed(frame: DataFrame) -> Tree:
    """Gives the analysed plan: resolved and typed, before any optimisation."""
    return _tree(json.loads(_plan(frame).toJSON()))


def analysed_text(frame: DataFrame) -> str:
    """Gives the analysed plan as text; it shows options that its JSON leaves out."""
    verbose, suffix, all_fields, operator_id, node_id = True, False, 2**31 - 1, False, False
    return str(_plan(frame).treeString(verbose, suffix, all_fields, operator_id, node_id))


def map_in_arrow(
    frame: DataFrame,
    columns: Sequence[str],
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """As `DataFrame.mapInArrow`, which cannot be used where a column's name has a dot in it.

    Args:
        frame: What to map; `columns` are all of its columns, which it would have to ask the JVM for.
        task: What maps its batches.
        schema: Of the result.
    """
    from pyspark.sql.pandas.functions import pandas_udf
    from pyspark.util import PythonEvalType

    udf: Any = pandas_udf(task, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)  # type: ignore[call-overload]
    column = udf(*[F.col(quoted(name)) for name in columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def optimised(frame: DataFrame) -> DataFrame:
    """Makes Spark plan a frame now; it keeps what it makes, so that running the frame later only runs it."""
    frame._jdf.queryExecution().executedPlan()
    return frame


def has_one_stage(frame: DataFrame) -> bool:
    """Tells whether a planned frame runs as one stage of nodes that keep nothing from one run to the next."""

    def is_such(node: Any) -> bool:
        known = node.getClass().getSimpleName() in _KEEPING_NOTHING and node.subqueries().isEmpty()
        return known and all(map(is_such, _items(node.children())))

    return is_such(frame._jdf.queryExecution().executedPlan())


def java_settings(spark: SparkSession) -> Any:
    """Gives Java's own map of what was set in a session."""
    return cast("Any", spark)._jsparkSession.sessionState().conf().settings()


def subplan(frame: DataFrame, path: Sequence[int]) -> DataFrame:
    """Gives the DataFrame of a node of the plan, by the child to take at each level."""
    plan = _plan(frame)
    for index in path:
        plan = plan.children().apply(index)
    return _frame_of(frame.sparkSession, plan)


def thread(frame: DataFrame, source: DataFrame, column: str) -> DataFrame:
    """Carries a column of the input, which a frame was built without, through to the frame's result.

    Args:
        frame: Built, row-wise, from `source.drop(column)` with the mark.
        source: The input with the column.
        column: Its name; the name of the added last column too.

    Raises:
        InternalError: the plan holds a node that the column cannot be carried through.
    """
    output = _items(_plan(source).output())
    (carried,) = (attribute for attribute in output if attribute.name() == column)
    plan = _threaded(_plan(frame), _plan(source), carried)
    if plan is None:
        raise InternalError("INTERNAL", f"{column} cannot be carried through {analysed_text(frame)}")
    return _frame_of(frame.sparkSession, plan)


def can_thread(node: Tree) -> bool:
    """Tells whether `thread` can carry a column from the marked input to the top of a plan."""
    carries = node.kind in _CARRYING or node.kind == "Project"
    return is_input(node) or (carries and any(map(can_thread, node.children)))


def _threaded(plan: Any, source: Any, carried: Any) -> Any:
    kind = plan.getClass().getSimpleName()
    jvm = _jvm()
    if kind == "SubqueryAlias" and plan.identifier().name() == INPUT:
        return plan.withNewChildren(jvm.PythonUtils.toSeq([source]))
    if kind == "Project":
        child = _threaded(plan.child(), source, carried)
        node = jvm.org.apache.spark.sql.catalyst.plans.logical.Project
        return None if child is None else node(plan.projectList().appended(carried), child)
    if kind in _CARRYING:
        children = _items(plan.children())
        made = [_threaded(child, source, carried) for child in children]
        if any(child is not None for child in made):
            taken = [child if new is None else new for child, new in zip(children, made, strict=True)]
            return plan.withNewChildren(jvm.PythonUtils.toSeq(taken))
    return None


def python_functions(frame: DataFrame) -> list[bytes]:
    """Gives the pickled functions of all Python UDFs in a plan, in the order of the plan; none from below the mark of an input."""
    found: list[bytes] = []

    def visit_expression(expression: Any) -> None:
        if expression.getClass().getSimpleName() == "PythonUDF":
            # A Scala sequence of bytes: as text it crosses in one call.
            signed = expression.func().command().mkString(",").split(",")
            found.append(bytes(int(byte) & 0xFF for byte in signed))
        for child in _items(expression.children()):
            visit_expression(child)

    def visit(plan: Any) -> None:
        if plan.getClass().getSimpleName() == "SubqueryAlias" and plan.alias() == INPUT:
            return
        for expression in _items(plan.expressions()):
            visit_expression(expression)
        for child in _items(plan.children()):
            visit(child)

    visit(_plan(frame))
    return found


@dataclass(frozen=True, slots=True)
class Call:
    """A Column that is one function call, as the user wrote it.

    Attributes:
        function: Its name; None if the Column is anything else.
        arguments: Its arguments.
        counts_rows: Whether its one argument is `*` or a constant other than NULL, so that a count of it counts rows.
        distinct: Whether it says DISTINCT.
        name: The alias, or None.
        shape: What the Column is (`UnresolvedFunction`, `SqlExpression`, `Cast`, …), for messages.
    """

    function: str | None
    arguments: tuple[Column, ...]
    counts_rows: bool
    distinct: bool
    name: str | None
    shape: str


def call_of(column: Column) -> Call:
    """Reads a Column as a function call with an alias."""
    node: Any = cast("Any", column)._jc.node()
    name = None
    shape = node.getClass().getSimpleName()
    while shape == "Alias":
        if name is None:
            names = node.name()
            name = names.apply(0) if names.size() == 1 else None
        node = node.child()
        shape = node.getClass().getSimpleName()
    if shape != "UnresolvedFunction":
        return Call(None, (), False, False, name, shape)
    written = [(argument.getClass().getSimpleName(), argument) for argument in _items(node.arguments())]
    counts_rows = len(written) == 1 and (
        written[0][0] == "UnresolvedStar" or (written[0][0] == "Literal" and written[0][1].value() is not None)
    )
    arguments = tuple(Column(_jvm().org.apache.spark.sql.Column(argument)) for _, argument in written)
    return Call(node.functionName().lower(), arguments, counts_rows, node.isDistinct(), name, shape)


def _jvm() -> Any:
    from pyspark import SparkContext

    return SparkContext._jvm


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    dataset = getattr(getattr(_jvm(), "org.apache.spark.sql.classic.Dataset$"), "MODULE$")
    return DataFrame(dataset.ofRows(cast("Any", spark)._jsparkSession, plan), spark)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _tree(nodes: Sequence[dict[str, Any]]) -> Tree:
    rest = iter(nodes)

    def read() -> Tree:
        node = dict(next(rest))
        kind = node.pop("class")
        count = node.pop("num-children")
        is_expression = kind.startswith(_EXPRESSIONS)
        short = kind.removeprefix(_EXPRESSIONS) if is_expression or "$" in kind else kind.rpartition(".")[2]
        return Tree(short, node, tuple(read() for _ in range(count)))

    return read()


def _trees(value: Any) -> Iterator[Tree]:
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and "class" in value[0]:
            yield _tree(value)
        else:
            for item in value:
                yield from _trees(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _trees(item)
