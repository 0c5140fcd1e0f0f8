"""Reads and changes Catalyst's plan of a DataFrame or a Column.

Only this module and `branches.py` use PySpark's private attributes and the JSON of a plan. The JSON is a list of nodes,
each before its children; expressions are such lists inside a node's fields.
"""

# ruff: noqa: SLF001

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from boatlift.dataflow.columns import quoted
from boatlift.errors import InternalError

INPUT = "__boatlift_input__"
"""The alias of a transform's input in its plan: the *mark* of the input."""

_CARRYING = frozenset({"Filter", "Generate", "Join", "SubqueryAlias"})
"""Nodes that pass on all columns of their input, also added ones; one side of a join is a stream."""

_EXPRESSION_ID = re.compile(r"#(\d+)")
"""As Spark prints attributes; a name with such a part adds an id, which only keeps a column that is not needed."""

_RUN_AGAIN = frozenset(
    {
        "ArrowEvalPythonExec",
        "BatchEvalPythonExec",
        "CartesianProductExec",
        "CoalesceExec",
        "ExpandExec",
        "FilterExec",
        "GenerateExec",
        "GlobalLimitExec",
        "HashAggregateExec",
        "InputAdapter",
        "LocalLimitExec",
        "LocalTableScanExec",
        "MapInArrowExec",
        "MergingSessionsExec",
        "ObjectHashAggregateExec",
        "ProjectExec",
        "RDDScanExec",
        "RangeExec",
        "SortAggregateExec",
        "SortExec",
        "SortMergeJoinExec",
        "TakeOrderedAndProjectExec",
        "UnionExec",
        "UpdatingSessionsExec",
        "WholeStageCodegenExec",
        "WindowExec",
        "WindowGroupLimitExec",
    }
)
"""Physical nodes that can run again; an exchange would return the rows of its first run."""

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_CLASS = re.compile(rf'"class":"{re.escape(_EXPRESSIONS)}([\w.]+)"')


_analysed: WeakKeyDictionary[DataFrame, Tree] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Tree:
    """A node of a logical plan or of an expression.

    Attributes:
        kind: Its class: the simple name of a logical node, or an expression's name below `catalyst.expressions.`.
        fields: Its other fields as in Catalyst's JSON; expressions in them are lists.
        children: The nodes or expressions below it.
    """

    kind: str
    fields: dict[str, Any]
    children: tuple[Tree, ...]

    def expressions(self) -> Iterator[Tree]:
        """Return the root expressions in this node's fields, in order."""
        for value in self.fields.values():
            yield from _trees(value)

    def walk(self) -> Iterator[Tree]:
        """Return this node and all nodes below it; a subquery is in a field of its expression, not below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def parts(self) -> Iterator[Tree]:
        """Return this node and all nodes and expressions in it and below it, also in subqueries."""
        yield self
        for part in (*self.expressions(), *self.children):
            yield from part.parts()


def is_input(node: Tree, mark: str = INPUT) -> bool:
    """Return whether a node marks the input of a transform."""
    return node.kind == "SubqueryAlias" and node.fields["identifier"].get("name") == mark


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a frame without rows whose emptiness the optimiser does not know.

    PySpark's `createDataFrame` makes it from an RDD of Python's, which takes ten times as long.
    """
    java = cast("Any", spark)._jsparkSession
    rows = cast("Any", spark.sparkContext)._jsc.emptyRDD().rdd()
    return DataFrame(java.internalCreateDataFrame(rows, java.parseDataType(schema.json()), False), spark)


def one_row(spark: SparkSession) -> DataFrame:
    """Return a frame of one row and one partition, of unknown size for the optimiser.

    Otherwise a join would broadcast it: by a job of its own, whose result a cached plan would keep.
    """
    one = spark.range(0, 1, 1, 1)._jdf
    rows = cast("Any", spark)._jsparkSession.internalCreateDataFrame(one.queryExecution().toRdd(), one.schema(), False)
    return DataFrame(rows, spark)


def analysed(frame: DataFrame) -> Tree:
    """Return the analysed plan, which is resolved, typed and not optimised; each frame is read once."""
    if frame not in _analysed:
        _analysed[frame] = _tree(json.loads(plan_of(frame).toJSON()))
    return _analysed[frame]


def analysed_text(frame: DataFrame) -> str:
    """Return the analysed plan as text, which shows options that the JSON lacks."""
    verbose, suffix, all_fields, operator_id, node_id = True, False, 2**31 - 1, False, False
    return str(plan_of(frame).treeString(verbose, suffix, all_fields, operator_id, node_id))


def map_in_arrow(
    frame: DataFrame,
    columns: Sequence[str],
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType,
    *,
    at_once: bool = False,
) -> DataFrame:
    """Map the batches of a frame as `DataFrame.mapInArrow` does, but also if a column's name has a dot.

    Args:
        columns: All columns of the frame; the caller knows them, and the frame would ask the JVM.
        at_once: Whether all tasks run at the same time (Spark's barrier mode).
    """
    from pyspark.sql.pandas.functions import pandas_udf
    from pyspark.util import PythonEvalType

    udf: Any = pandas_udf(task, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)  # type: ignore[call-overload]
    column = udf(*[F.col(quoted(name)) for name in columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, at_once, None), frame.sparkSession)


def optimised(frame: DataFrame) -> DataFrame:
    """Let Spark plan a frame now; the frame keeps its plan, so that a later job only runs it."""
    frame._jdf.queryExecution().executedPlan()
    return frame


def has_one_stage(frame: DataFrame) -> bool:
    """Return whether a planned frame runs as one stage of nodes that keep nothing between runs."""

    def runs_again(node: Any) -> bool:
        known = node.getClass().getSimpleName() in _RUN_AGAIN and node.subqueries().isEmpty()
        return known and all(map(runs_again, items(node.children())))

    return runs_again(frame._jdf.queryExecution().executedPlan())


def needed_columns(frame: DataFrame, reader: str, columns: Sequence[str]) -> frozenset[str]:
    """Return the columns that an optimised plan needs of the Python tasks that read a source; never too few.

    Args:
        reader: The name of the tasks' function.
        columns: All columns of such a task, in order. Tasks with the same columns count too. Without any, or if the
            plan has subqueries, all are needed.
    """
    found: set[str] = set()

    def walk(node: Any, needed: set[str] | None) -> None:
        kind = node.getClass().getSimpleName()
        if not node.subqueries().isEmpty():
            found.update(columns)
        if kind == "MapInArrow" and str(node.functionExpr().name()) == reader:
            output = {str(each.exprId().id()): each.name() for each in items(node.output())}
            if [*output.values()] == list(columns):
                found.update(name for number, name in output.items() if needed is None or number in needed)
                return
        below = None
        if kind in ("Project", "Aggregate", "MapInArrow") or (kind in ("Filter", "Repartition") and needed is not None):
            below = set(_EXPRESSION_ID.findall(node.references().toSeq().mkString(" ")))
            below |= needed or set() if kind in ("Filter", "Repartition") else set()
        for child in items(node.children()):
            walk(child, below)

    walk(optimised_plan_of(frame), None)
    return frozenset(found) or frozenset(columns)


def subplan(frame: DataFrame, path: Sequence[int]) -> DataFrame:
    """Return the DataFrame of a node of the plan; `path` has the index of the child at each level."""
    plan = plan_of(frame)
    for index in path:
        plan = plan.children().apply(index)
    return frame_of(frame.sparkSession, plan)


def bytes_of(frame: DataFrame) -> int:
    """Return Spark's estimate of a frame's size in bytes; a terabyte if it is unknown."""
    size = optimised_plan_of(frame).stats().sizeInBytes()
    return min(int(str(size)), 1 << 40)


def passed_on(frame: DataFrame, column: str) -> str | None:
    """Return the name under which a column of the marked input is in the result unchanged; None if it is not."""

    def marked(plan: Any) -> Any:
        kind = plan.getClass().getSimpleName()
        if kind == "SubqueryAlias" and plan.alias() == INPUT:
            return plan
        if kind not in _CARRYING and kind != "Project":
            return None  # a union names the columns of all inputs after the first input
        return next((found for child in items(plan.children()) if (found := marked(child)) is not None), None)

    plan = plan_of(frame)
    source = marked(plan)
    if source is None:
        return None
    wanted = {int(each.exprId().id()) for each in items(source.output()) if each.name() == column}
    same = _same_values(plan, wanted)
    return next((str(each.name()) for each in items(plan.output()) if int(each.exprId().id()) in same), None)


def _same_values(node: Any, wanted: AbstractSet[int]) -> set[int]:
    """Return the ids of the attributes that have the same values as the wanted ones, under any name."""
    kind = node.getClass().getSimpleName()
    if kind == "SubqueryAlias" and node.alias() == INPUT:
        return set(wanted)
    same = set(wanted).union(*(_same_values(child, wanted) for child in items(node.children())))
    if kind == "Project":
        for column in items(node.projectList()):
            value = column.child() if column.getClass().getSimpleName() == "Alias" else column
            if value.getClass().getSimpleName() == "AttributeReference" and int(value.exprId().id()) in same:
                same.add(int(column.exprId().id()))
    return same


def thread(frame: DataFrame, source: DataFrame, column: str) -> DataFrame:
    """Return a frame with one more column, passed through from the input.

    Args:
        frame: Built, row-wise, from `source.drop(column)` with the mark.
        column: The column of the input, which becomes the last one of the result.

    Raises:
        InternalError: a node of the plan does not pass the column on.
    """
    output = items(plan_of(source).output())
    (carried,) = (attribute for attribute in output if attribute.name() == column)
    plan = _threaded(plan_of(frame), plan_of(source), carried)
    if plan is None:
        raise InternalError("INTERNAL", f"{column} cannot be carried through {analysed_text(frame)}")
    return frame_of(frame.sparkSession, plan)


def can_thread(node: Tree) -> bool:
    """Return whether `thread` can pass a column from the marked input to the top of a plan."""
    carries = node.kind in _CARRYING or node.kind == "Project"
    return is_input(node) or (carries and any(map(can_thread, node.children)))


def _threaded(plan: Any, source: Any, carried: Any) -> Any:
    kind = plan.getClass().getSimpleName()
    java = jvm()
    if kind == "SubqueryAlias" and plan.identifier().name() == INPUT:
        return plan.withNewChildren(java.PythonUtils.toSeq([source]))
    if kind == "Project":
        child = _threaded(plan.child(), source, carried)
        node = java.org.apache.spark.sql.catalyst.plans.logical.Project
        return None if child is None else node(plan.projectList().appended(carried), child)
    if kind in _CARRYING:
        children = items(plan.children())
        threaded = [_threaded(child, source, carried) for child in children]
        if any(child is not None for child in threaded):
            chosen = [child if new is None else new for child, new in zip(children, threaded, strict=True)]
            return plan.withNewChildren(java.PythonUtils.toSeq(chosen))
    return None


def expressions_of(frame: DataFrame, *, replaced: bool = False) -> Iterator[Any]:
    """Return the JVM's expressions above the input's mark, also in subqueries, in the order of the plan.

    Args:
        replaced: Whether functions that Spark defines by others, such as `nvl`, are replaced by those.
    """

    def of_expression(expression: Any) -> Iterator[Any]:
        yield expression
        for child in items(expression.children()):
            yield from of_expression(child)

    plan = plan_of(frame)
    if replaced:
        plan = getattr(getattr(jvm(), "org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$"), "MODULE$").apply(
            plan
        )
    for node in _above_the_mark(plan):
        for expression in items(node.expressions()):
            yield from of_expression(expression)


def _above_the_mark(plan: Any) -> Iterator[Any]:
    if plan.getClass().getSimpleName() != "SubqueryAlias" or plan.alias() != INPUT:
        yield plan
        for below in (*items(plan.subqueries()), *items(plan.children())):
            yield from _above_the_mark(below)


def values_of(frame: DataFrame) -> Iterator[DataFrame]:
    """Return the expressions of each `VALUES` of a plan as columns of a frame; the plan has only their values."""
    spark, eager = frame.sparkSession, "spark.sql.parser.eagerEvalOfUnresolvedInlineTable"
    parser = getattr(getattr(jvm(), "org.apache.spark.sql.catalyst.parser.CatalystSqlParser$"), "MODULE$")
    for node in _above_the_mark(plan_of(frame)):
        if node.getClass().getSimpleName() == "LocalRelation" and (text := written(node)):
            before = str(spark.conf.get(eager))
            spark.conf.set(eager, "false")
            try:
                table = parser.parsePlan(text)
            finally:
                spark.conf.set(eager, before)
            while items(table.children()):
                table = table.child()
            rows = items(table.rows()) if table.getClass().getSimpleName() == "UnresolvedInlineTable" else []
            cells = [each for row in rows for each in items(row)]
            if cells:
                yield spark.sql(f"SELECT {', '.join(map(written, cells))}")


def written(node: Any) -> str:
    """Return the SQL text from which a node or an expression of the JVM was parsed; "" if there is none."""
    origin = node.origin()
    if origin.sqlText().isEmpty() or origin.startIndex().isEmpty() or origin.stopIndex().isEmpty():
        return ""
    return str(origin.sqlText().get())[int(origin.startIndex().get()) : int(origin.stopIndex().get()) + 1]


def python_functions(frame: DataFrame) -> list[bytes]:
    """Return the pickled functions of all Python UDFs above the input's mark, in the order of the plan."""
    udfs = [each for each in expressions_of(frame) if each.getClass().getSimpleName() == "PythonUDF"]
    return [pickled_function(each) for each in udfs]


def pickled_function(udf: Any) -> bytes:
    """Return the pickled function of a `PythonUDF`."""
    # A Scala sequence of bytes crosses to Python in one call as text.
    return bytes(int(byte) & 0xFF for byte in udf.func().command().mkString(",").split(","))


def literals(frame: DataFrame) -> list[str]:
    """Return the literals above the input's mark as SQL, which shows bytes inside values."""
    return [str(each.sql()) for each in expressions_of(frame) if each.getClass().getSimpleName() == "Literal"]


@dataclass(frozen=True, slots=True)
class Call:
    """A Column that is one function call, as the user wrote it.

    Attributes:
        function: The function's name; None if the Column is something else.
        counts_rows: Whether the one argument is `*` or a constant other than NULL, so that `count` counts rows.
        shape: The kind of the Column (`UnresolvedFunction`, `SqlExpression`, `Cast`, …), for messages.
    """

    function: str | None
    arguments: tuple[Column, ...]
    counts_rows: bool
    distinct: bool
    name: str | None
    shape: str


def call_of(column: Column) -> Call:
    """Return a Column as a function call with an alias."""
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
    written = [(argument.getClass().getSimpleName(), argument) for argument in items(node.arguments())]
    counts_rows = len(written) == 1 and (
        written[0][0] == "UnresolvedStar" or (written[0][0] == "Literal" and written[0][1].value() is not None)
    )
    arguments = tuple(Column(jvm().org.apache.spark.sql.Column(argument)) for _, argument in written)
    return Call(node.functionName().lower(), arguments, counts_rows, node.isDistinct(), name, shape)


def jvm() -> Any:
    """Return the JVM's packages."""
    from pyspark import SparkContext

    return SparkContext._jvm


def plan_of(frame: DataFrame) -> Any:
    """Return the JVM's analysed plan."""
    return frame._jdf.queryExecution().analyzed()


def optimised_plan_of(frame: DataFrame) -> Any:
    """Return the JVM's optimised plan."""
    return frame._jdf.queryExecution().optimizedPlan()


def java_session(spark: SparkSession) -> Any:
    """Return the JVM's session."""
    return cast("Any", spark)._jsparkSession


def module(name: str) -> Any:
    """Return an object of Scala's, by its full name."""
    return getattr(getattr(jvm(), f"{name}$"), "MODULE$")


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """Return the frame of a logical plan of the JVM."""
    dataset = getattr(getattr(jvm(), "org.apache.spark.sql.classic.Dataset$"), "MODULE$")
    return DataFrame(dataset.ofRows(cast("Any", spark)._jsparkSession, plan), spark)


def kinds_of_optimised(frame: DataFrame) -> set[str]:
    """Return the classes of the expressions in the optimised plan, also in subqueries."""
    return set(_CLASS.findall(str(optimised_plan_of(frame).toJSON())))


class Package:
    """A package of the JVM that caches its classes, because each look-up is a call."""

    def __init__(self, package: Any) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._package, name)
        setattr(self, name, found)
        return found


def items(sequence: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
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
