"""Several plans as branches of one plan, so that the rows of many units go through one stage.

A *branch* leads from the rows of one task to the columns of one frame, through projections, filters, expansions and
generators over arrays. In the common plan a row has the number of its branch, and `MARK`. Its values are in
*registers*, and its results in *slots*; both are shared by branches with columns of the same type. The expressions of a
branch are computed for its rows alone, so a row raises no error of another branch, and markers (rows of no branch)
raise none at all.

Python UDFs end a branch: the sink task evaluates them, and its rows come back with the results, as those of the branch
above.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType, _parse_datatype_json_string

from boatlift.dataflow.columns import BRANCH, MARK
from boatlift.spark.plans.catalyst import analysed, frame_of, items, optimised_plan_of, plan_of
from boatlift.spark.plans.common_plan import (
    NUMBERS,
    CommonPlan,
    Expand,
    Filter,
    Generate,
    Layer,
    NotRowByRowError,
    Project,
    Way,
    alias,
    id_of,
    kind_of,
)
from boatlift.spark.plans.python_nodes import calls_of, field_of
from boatlift.tasks.inputs import INPUT
from boatlift.tasks.long_running import BranchRows, SlotPlace
from boatlift.tasks.python_calls import PythonCalls

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

_IN_PYTHON = frozenset({"PythonUDF", "PythonUDAF", "PythonUDTF"})


@dataclass(frozen=True, slots=True)
class Branch:
    """The way of rows to the columns of a frame, or to the arguments of Python functions.

    Attributes:
        leaf: The RDD number of the empty frame that stands for the rows of a task; None: the rows come from a branch.
        below: The number of the branch from which they come.
        registers: The place of each column of the rows among the registers.
        rows: The place of each column at its end among the slots.
        calls: The functions whose arguments are its last columns; None: its columns are those of the frame.
    """

    leaf: int | None
    below: int | None
    registers: tuple[int, ...]
    rows: BranchRows
    calls: PythonCalls | None = None


@dataclass(slots=True)
class _Columns:
    """Columns by type: each branch uses the first ones of each type that it needs."""

    places: dict[tuple[str, int], int] = field(default_factory=dict)
    types: list[DataType] = field(default_factory=list)

    def of(self, kind: Any, used: Counter[str]) -> int:
        text = str(kind.json())
        key = text, used[text]
        used[text] += 1
        if key not in self.places:
            self.places[key] = len(self.types)
            self.types.append(_parse_datatype_json_string(text))
        return self.places[key]


class Branches:
    """Collects branches, and makes their common plan.

    Args:
        spark: The session that compiled the frames.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._zone = spark, spark.conf.get("spark.sql.session.timeZone")
        self._registers, self._slots = _Columns(), _Columns()
        self._ways: list[tuple[Way, tuple[SlotPlace, ...], tuple[int, ...], list[Any]]] = []

    def add(self, frame: DataFrame, columns: Sequence[str], leaves: Collection[int]) -> list[Branch]:
        """Add the branches of a frame: those to its columns in the order of its rows, and those to Python functions.

        Args:
            columns: The frame's columns.
            leaves: The RDD numbers of the empty frames in it that stand for rows of tasks.

        Raises:
            NotRowByRowError: The frame has no branches.
        """
        added: list[Branch] = []

        def cut(node: Any, way: Way) -> Way:
            """Return the way of rows on which Python functions were called."""
            calls, arguments = calls_of(node, self._spark)
            given = [alias(each, f"a{place}") for place, each in enumerate(arguments)]
            passed = items(node.child().output())
            fields = [field_of(str(each.name()), each) for each in (*passed, *given)]
            below = way.then(Project((*passed, *given)))
            branch = self._added(below, [*passed, *(each.toAttribute() for each in given)], StructType(fields), calls)
            added.append(branch)
            return Way(node, branch.rows.number)

        python = any(part.kind in _IN_PYTHON for part in analysed(frame).parts())
        plan = optimised_plan_of(frame) if python else plan_of(frame)
        by_name = {str(each.name()): each for each in items(plan.output())}
        chosen, schema = [by_name[name] for name in columns], StructType([frame.schema[name] for name in columns])
        ways = _Ways(leaves, cut).to(plan)
        added.extend(self._added(way, chosen, schema, several=INPUT in columns) for way in ways)
        return added

    def _added(
        self,
        way: Way,
        columns: list[Any],
        schema: StructType,
        calls: PythonCalls | None = None,
        *,
        several: bool = False,
    ) -> Branch:
        """Add a branch.

        Args:
            several: Whether structs have the columns of each input (`tasks.inputs`), and are whole in every row.
        """
        used: Counter[str] = Counter()
        registers = tuple(self._registers.of(each.dataType(), used) for each in items(way.leaf.output()))
        used = Counter()
        slots = tuple(self._place(each, way, used, several) for each in columns)
        rows = BranchRows(len(self._ways), slots, to_arrow_schema(schema, timezone=self._zone))
        self._ways.append((way, slots, registers, columns))
        leaf = int(way.leaf.rdd().id()) if way.below is None else None
        return Branch(leaf, way.below, registers, rows, calls)

    def _place(self, column: Any, way: Way, used: Counter[str], several: bool) -> SlotPlace:
        if id_of(column) in way.nulls:
            return None
        kind = column.dataType()
        if several and kind_of(kind) == "StructType":
            return tuple(self._slots.of(each.dataType(), used) for each in kind.fields())
        return self._slots.of(kind, used)

    @property
    def registers(self) -> StructType:
        """The columns of rows that enter the plan: `MARK`, `BRANCH` and the registers."""
        kinds = self._registers.types
        return StructType([*NUMBERS, *map(StructField, map(register, range(len(kinds))), kinds)])

    @property
    def results(self) -> list[str]:
        """The names of the plan's columns: `MARK`, `BRANCH` and the slots."""
        return [MARK, BRANCH, *(f"s{place}" for place in range(len(self._slots.types)))]

    def plan(self, rows: DataFrame, spark: SparkSession) -> DataFrame:
        """Return the common plan.

        Args:
            rows: Rows with the columns `registers`.
            spark: The session of the plan.
        """
        common = CommonPlan(rows, self._slots.types)
        for number, (way, slots, registers, columns) in enumerate(self._ways):
            common.branch(number, way, registers, list(zip(columns, slots, strict=True)))
        return frame_of(spark, common.whole()).select(*self.results)


def register(place: int) -> str:
    """Return the name of a register."""
    return f"r{place}"


def is_a_stream(frame: DataFrame) -> bool:
    """Return whether a planned frame passes on each row before it asks for the next."""

    def passes_on(node: Any) -> bool:
        known = kind_of(node) in _ROW_BY_ROW and node.subqueries().isEmpty()
        return known and all(map(passes_on, items(node.children())))

    return passes_on(frame._jdf.queryExecution().executedPlan())


@dataclass(frozen=True, slots=True)
class _Ways:
    """Finds the ways to a node.

    Attributes:
        leaves: The RDD numbers of their begins.
        cut: Ends a way below a node with Python functions, and returns the way that begins there.
    """

    leaves: Collection[int]
    cut: Callable[[Any, Way], Way]

    def to(self, node: Any) -> list[Way]:
        """Return the ways from leaves to a node.

        Raises:
            NotRowByRowError: a node needs several rows.
        """
        kind = kind_of(node)
        if kind == "LogicalRDD" and int(node.rdd().id()) in self.leaves:
            return [Way(node)]
        if kind == "LogicalRDD" and int(node.rdd().getNumPartitions()) == 0:
            return []
        if not node.subqueries().isEmpty():
            raise NotRowByRowError("it has a subquery")
        if kind == "SubqueryAlias" or (kind == "Repartition" and not node.shuffle()):
            return self.to(node.child())
        if kind == "Union":
            return [way for child in items(node.children()) for way in self._renamed(node, child)]
        if kind == "Filter":
            return self._through(node, Filter(node.condition()))
        if kind == "Project":
            columns = items(node.projectList())
            may_be_null = "null" in str(node.projectList().toString()).lower()  # one call, where each needs several
            nulls = [id_of(each) for each in columns if _is_null(each)] if may_be_null else []
            return self._through(node, Project(tuple(columns)), nulls)
        if kind == "Generate" and kind_of(node.generator()) in _OF_ARRAYS:
            (values,) = items(node.generator().children())
            if kind_of(values.dataType()) == "ArrayType":
                return self._through(node, Generate(node))
        if kind == "Expand":
            hidden = set(map(id_of, items(node.output())))
            ways = self._through(node, Expand(node))
            return [replace(way, nulls=way.nulls - hidden) for way in ways]
        if kind == "ArrowEvalPython":
            return [self.cut(node, way) for way in self.to(node.child())]
        if kind == "BatchEvalPython":
            raise NotRowByRowError("it has a UDF without Arrow, as one made before the session: say useArrow=True")
        raise NotRowByRowError(f"rows do not pass {node.nodeName()} one by one")

    def _through(self, node: Any, layer: Layer, nulls: Collection[int] = ()) -> list[Way]:
        return [way.then(layer, nulls) for way in self.to(node.child())]

    def _renamed(self, union: Any, child: Any) -> list[Way]:
        pairs = list(zip(items(child.output()), items(union.output()), strict=True))
        layer, ways = Project((), tuple(pairs)), []
        for way in self.to(child):
            nulls = [id_of(other) for own, other in pairs if id_of(own) in way.nulls] if way.nulls else []
            ways.append(replace(way, layers=(*way.layers, layer), nulls=frozenset(nulls)))
        return ways


def _is_null(column: Any) -> bool:
    if kind_of(column) != "Alias" or not column.child().foldable():
        return False
    try:
        return column.child().eval(None) is None
    except (Py4JJavaError, PySparkException):  # it fails for each row, as CAST('x' AS INT)
        return False
