"""Several plans as branches of one plan, so that the rows of many units go through one stage.

A *branch* leads from the rows of one task to the columns of one frame, through projections, filters, expansions and
generators over arrays. In the common plan a row has the number of its branch, and `MARK`. Its values are in
*registers*, and its results in *slots*; both are shared by branches with columns of the same type. The expressions of a
branch are computed for its rows alone, so a row raises no error of another branch, and markers (rows of no branch)
raise none at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, IntegerType, StructField, StructType, _parse_datatype_json_string

from boatlift.dataflow.columns import BRANCH, MARK
from boatlift.spark.plans.catalyst import Package, analysed, frame_of, items, jvm, plan_of
from boatlift.spark.tasks.inputs import INPUT
from boatlift.spark.tasks.long_running import BranchRows, SlotPlace

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

LONGEST_EXPRESSIONS = 50_000
"""A branch with longer columns, in characters, has nodes of its own: a column may stand in them many times."""

_IN_PYTHON = frozenset({"PythonUDF", "PythonUDAF", "PythonUDTF"})


class NotRowByRowError(Exception):
    """A plan has a part that needs several rows, or Python; the message names it."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The way of a task's rows to the columns of a frame.

    Attributes:
        leaf: The RDD number of the empty frame that stands for the task's rows.
        registers: The place of each column of the task's rows among the registers.
        rows: The place of each column of the frame among the slots.
    """

    leaf: int
    registers: tuple[int, ...]
    rows: BranchRows


class _Layer(Protocol):
    """A node on the way of a branch."""

    def over(self, common: _Common, number: int, plan: Any) -> Any:
        """Return the node of the common plan over a node; rows of other branches pass it once and unchanged."""


@dataclass(frozen=True, slots=True)
class _Way:
    leaf: Any
    layers: tuple[_Layer, ...] = ()
    nulls: frozenset[int] = frozenset()

    def then(self, layer: _Layer, nulls: Collection[int] = ()) -> _Way:
        return _Way(self.leaf, (*self.layers, layer), self.nulls | frozenset(nulls))


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
        self._zone = spark.conf.get("spark.sql.session.timeZone")
        self._registers, self._slots = _Columns(), _Columns()
        self._ways: list[tuple[_Way, tuple[SlotPlace, ...], tuple[int, ...], list[Any]]] = []

    def add(self, frame: DataFrame, columns: Sequence[str], leaves: Collection[int]) -> list[Branch]:
        """Add the branches of a frame, in the order of its rows.

        Args:
            columns: The frame's columns.
            leaves: The RDD numbers of the empty frames in it that stand for rows of tasks.

        Raises:
            NotRowByRowError: The frame has no branches.
        """
        for part in analysed(frame).parts():
            if part.kind in _IN_PYTHON:
                raise NotRowByRowError("it has a function in Python")
        plan = plan_of(frame)
        ways = _ways(plan, leaves)
        output = items(plan.output())
        schema = to_arrow_schema(StructType([frame.schema[name] for name in columns]), timezone=self._zone)
        by_name = {str(each.name()): each for each in output}
        chosen = [by_name[name] for name in columns]
        several = INPUT in columns  # structs with the columns of each input (`tasks.inputs`), whole in every row
        added = []
        for way in ways:
            used: Counter[str] = Counter()
            registers = tuple(self._registers.of(each.dataType(), used) for each in items(way.leaf.output()))
            used = Counter()
            slots = tuple(self._place(each, way, used, several) for each in chosen)
            rows = BranchRows(len(self._ways), slots, schema)
            added.append(Branch(int(way.leaf.rdd().id()), registers, rows))
            self._ways.append((way, slots, registers, chosen))
        return added

    def _place(self, column: Any, way: _Way, used: Counter[str], several: bool) -> SlotPlace:
        if _id(column) in way.nulls:
            return None
        kind = column.dataType()
        if several and _kind(kind) == "StructType":
            return tuple(self._slots.of(each.dataType(), used) for each in kind.fields())
        return self._slots.of(kind, used)

    @property
    def registers(self) -> StructType:
        """The columns of rows that enter the plan: `MARK`, `BRANCH` and the registers."""
        return StructType([*_NUMBERS, *(StructField(f"r{at}", each) for at, each in enumerate(self._registers.types))])

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
        common = _Common(rows, self._slots.types)
        for number, (way, slots, registers, columns) in enumerate(self._ways):
            common.branch(number, way, registers, list(zip(columns, slots, strict=True)))
        return frame_of(spark, common.whole()).select(*self.results)


_NUMBERS = (StructField(MARK, IntegerType(), nullable=False), StructField(BRANCH, IntegerType(), nullable=False))


def is_a_stream(frame: DataFrame) -> bool:
    """Return whether a planned frame passes on each row before it asks for the next."""

    def passes_on(node: Any) -> bool:
        known = _kind(node) in _ROW_BY_ROW and node.subqueries().isEmpty()
        return known and all(map(passes_on, items(node.children())))

    return passes_on(frame._jdf.queryExecution().executedPlan())


class _Common:
    """The common plan, as branch after branch is added.

    A branch of projections and filters becomes expressions of its registers. All such branches share one filter and one
    projection, in which a slot is the CASE of their values. Any other branch has nodes of its own, below these: each
    row of each branch passes them.

    Attributes:
        plan: The nodes of branches of their own; its columns are `MARK`, `BRANCH`, the registers and the slots.
    """

    def __init__(self, rows: DataFrame, slots: Sequence[DataType]) -> None:
        java = jvm()
        self.expressions = Package(java.org.apache.spark.sql.catalyst.expressions)
        self.logical = Package(java.org.apache.spark.sql.catalyst.plans.logical)
        self._alias = self.expressions.Alias
        self._nothing = _seq([])
        self._scala = Package(java.scala)
        self.none = getattr(getattr(java, "scala.None$"), "MODULE$")
        self._named = getattr(getattr(java.org.apache.spark.sql.catalyst.expressions, "NamedExpression$"), "MODULE$")
        self.literal = getattr(self.expressions, "Literal$").__getattr__("MODULE$")
        collapse = getattr(java.org.apache.spark.sql.catalyst.optimizer, "CollapseProject$")
        self._collapse = getattr(collapse, "MODULE$")
        kinds = [java.org.apache.spark.sql.types.DataType.fromJson(each.json()) for each in slots]
        given = items(plan_of(rows).output())
        empty = [self.alias(self.literal.create(None, kind), f"s{at}") for at, kind in enumerate(kinds)]
        self._fixed = given
        self._slots = [each.toAttribute() for each in empty]
        self._values: list[list[Any]] = [[] for _ in empty]  # by slot the cases: of a branch, its value
        self._alive: list[Any] = []  # the cases of branches with a filter
        self.plan = self.logical.Project(_seq([*given, *empty]), plan_of(rows))

    @property
    def base(self) -> list[Any]:
        """The columns that every row has in every layer."""
        return [*self._fixed, *self._slots]

    def branch(
        self, number: int, way: _Way, registers: Sequence[int], columns: Sequence[tuple[Any, SlotPlace]]
    ) -> None:
        """Add a branch."""
        begin = []
        for place, attribute in zip(registers, items(way.leaf.output()), strict=True):
            register = self._fixed[len(_NUMBERS) + place]
            value = register
            if not attribute.nullable():  # in rows of other branches the register is NULL
                value = self.expressions.Coalesce(_seq([register, self.literal.default(register.dataType())]))
            begin.append(self.alias(value, str(attribute.name()), attribute.exprId()))
        leaves = _leaves(self, columns)
        inlined = self._inlined(begin, way.layers, [value for value, _ in leaves])
        if inlined is not None:
            alive, values = inlined
            if alive is not None:
                self._alive.append(self._case(number, alive))
            for value, (_, slot) in zip(values, leaves, strict=True):
                self._values[slot].append(self._case(number, value))
            return
        self.plan = self.logical.Project(_seq([*self.base, *begin]), self.plan)
        for layer in way.layers:
            self.plan = layer.over(self, number, self.plan)
        mine, slots = self.is_of(number), list[Any](self._slots)
        for value, slot in leaves:
            slots[slot] = self.alias(self.expressions.If(mine, value, self._slots[slot]), f"s{slot}")
        self.plan = self.logical.Project(_seq([*self._fixed, *slots]), self.plan)
        self._slots = [each.toAttribute() for each in slots]

    def _inlined(
        self, begin: Sequence[Any], layers: Sequence[_Layer], columns: Sequence[Any]
    ) -> tuple[Any, list[Any]] | None:
        """Return the condition and the columns of a branch as expressions of registers; the condition may be None.

        Returns:
            None if the branch needs nodes of its own, because a row becomes several, or expressions become too long.
        """
        alive, named = None, _seq(list(begin))
        for layer in layers:
            if isinstance(layer, _Project):
                named = self._collapse.buildCleanedProjectList(_seq(layer.columns(self)), named)
                if len(str(named.toString())) > LONGEST_EXPRESSIONS:
                    return None
            elif isinstance(layer, _Filter):
                condition = self._collapse.replaceAlias(layer.condition, self._collapse.getAliasMap(named))
                false = self.literal.apply(False)
                # The second condition may fail for a row for which the first one is NULL.
                alive = condition if alive is None else self.expressions.If(alive, condition, false)
            else:
                return None
        of = self._collapse.getAliasMap(named)
        return alive, [self._collapse.replaceAlias(each, of) for each in columns]

    def _case(self, number: int, value: Any) -> Any:
        return self._scala.Tuple2(self.is_of(number), value)

    def whole(self) -> Any:
        """Return the plan of all branches."""
        plan = self.plan
        if self._alive:
            others = self._scala.Some(self.literal.apply(True))
            plan = self.logical.Filter(self.expressions.CaseWhen(_seq(self._alive), others), plan)
        slots = [
            self.alias(self.expressions.CaseWhen(_seq(cases), self._scala.Some(slot)), f"s{at}") if cases else slot
            for at, (slot, cases) in enumerate(zip(self._slots, self._values, strict=True))
        ]
        return self.logical.Project(_seq([*self._fixed, *slots]), plan)

    def is_of(self, number: int) -> Any:
        """Return the condition that a row is of a branch."""
        return self.expressions.EqualTo(self._fixed[1], self.literal.apply(number))

    def alias(self, value: Any, name: str, own_id: Any = None) -> Any:
        chosen = self._named.newExprId() if own_id is None else own_id
        return self._alias(value, name, chosen, self._nothing, self.none, self._nothing)

    def guarded(self, number: int, value: Any) -> Any:
        """Return an expression that is computed for the rows of a branch alone, with its type and nullability."""
        kind = value.dataType()
        other = self.literal.create(None, kind) if value.nullable() else self.literal.default(kind)
        return self.expressions.If(self.is_of(number), value, other)


def _leaves(common: _Common, columns: Sequence[tuple[Any, SlotPlace]]) -> list[tuple[Any, int]]:
    found: list[tuple[Any, int]] = []
    for column, place in columns:
        if isinstance(place, int):
            found.append((column, place))
        elif place is not None:
            fields = [common.expressions.GetStructField(column, at, common.none) for at in range(len(place))]
            found += _leaves(common, list(zip(fields, place, strict=True)))
    return found


def _ways(node: Any, leaves: Collection[int]) -> list[_Way]:
    """Return the ways from leaves to a node.

    Raises:
        NotRowByRowError: a node needs several rows.
    """
    kind = _kind(node)
    if kind == "LogicalRDD" and int(node.rdd().id()) in leaves:
        return [_Way(node)]
    if kind == "LogicalRDD" and int(node.rdd().getNumPartitions()) == 0:
        return []
    if not node.subqueries().isEmpty():
        raise NotRowByRowError("it has a subquery")
    if kind == "SubqueryAlias" or (kind == "Repartition" and not node.shuffle()):
        return _ways(node.child(), leaves)
    if kind == "Union":
        return [way for child in items(node.children()) for way in _renamed(node, child, leaves)]
    if kind == "Filter":
        return [way.then(_Filter(node.condition())) for way in _ways(node.child(), leaves)]
    if kind == "Project":
        columns = items(node.projectList())
        may_be_null = "null" in str(node.projectList().toString()).lower()  # one call, where each column needs several
        nulls = [_id(each) for each in columns if _is_null(each)] if may_be_null else []
        layer = _Project(tuple(columns))
        return [way.then(layer, nulls) for way in _ways(node.child(), leaves)]
    if kind == "Generate" and _kind(node.generator()) in _OF_ARRAYS:
        (values,) = items(node.generator().children())
        if _kind(values.dataType()) == "ArrayType":
            return [way.then(_Generate(node)) for way in _ways(node.child(), leaves)]
    if kind == "Expand":
        return [_expanded(node, way) for way in _ways(node.child(), leaves)]
    raise NotRowByRowError(f"rows do not pass {node.nodeName()} one by one")


def _expanded(node: Any, way: _Way) -> _Way:
    output = items(node.output())
    nulls = way.nulls.difference(map(_id, output))
    return _Way(way.leaf, (*way.layers, _Expand(node)), nulls)


def _renamed(union: Any, child: Any, leaves: Collection[int]) -> list[_Way]:
    pairs = list(zip(items(child.output()), items(union.output()), strict=True))
    layer, ways = _Project((), tuple(pairs)), []
    for way in _ways(child, leaves):
        nulls = [_id(other) for own, other in pairs if _id(own) in way.nulls] if way.nulls else []
        ways.append(_Way(way.leaf, (*way.layers, layer), frozenset(nulls)))
    return ways


@dataclass(frozen=True, slots=True)
class _Filter:
    condition: Any

    def over(self, common: _Common, number: int, plan: Any) -> Any:
        others = common.expressions.Not(common.is_of(number))
        return common.logical.Filter(common.expressions.Or(others, self.condition), plan)


@dataclass(frozen=True, slots=True)
class _Project:
    """A projection.

    Attributes:
        named: Its columns.
        renamed: Attributes, each with the attribute that names it above; they follow the columns.
    """

    named: tuple[Any, ...]
    renamed: tuple[tuple[Any, Any], ...] = ()
    _made: list[Any] = field(default_factory=list)  # the ways from the leaves below share a node

    def columns(self, common: _Common) -> list[Any]:
        if not self._made:
            renamed = (common.alias(own, str(other.name()), other.exprId()) for own, other in self.renamed)
            self._made.extend([*self.named, *renamed])
        return self._made

    def over(self, common: _Common, number: int, plan: Any) -> Any:
        made = [
            each.withNewChildren(_seq([common.guarded(number, each.child())])) if _kind(each) == "Alias" else each
            for each in self.columns(common)
        ]
        base = {_id(each) for each in common.base}
        return common.logical.Project(_seq([*common.base, *(each for each in made if _id(each) not in base)]), plan)


@dataclass(frozen=True, slots=True)
class _Expand:
    node: Any

    def over(self, common: _Common, number: int, plan: Any) -> Any:
        """Return a generator over an array with a struct for each of the rows that a row becomes."""
        output = items(self.node.output())
        names = [common.literal.apply(f"c{place}") for place in range(len(output))]
        structs = [
            common.expressions.CreateNamedStruct(
                _seq([part for pair in zip(names, each, strict=True) for part in pair])
            )
            for each in map(items, items(self.node.projections()))
        ]
        array = common.expressions.CreateArray(_seq(structs))
        # A column that one projection leaves NULL may be NULL in the array, and not in the first projection.
        row = common.alias(common.literal.default(array.dataType().elementType()), "row").toAttribute()
        explode = common.expressions.Explode(_one_for_others(common, number, array))
        rows = common.logical.Generate(explode, _seq([]), False, common.none, _seq([row]), plan)
        fields = [
            common.alias(common.expressions.GetStructField(row, place, common.none), str(each.name()), each.exprId())
            for place, each in enumerate(output)
        ]
        return common.logical.Project(_seq([*common.base, *fields]), rows)


@dataclass(frozen=True, slots=True)
class _Generate:
    node: Any

    def over(self, common: _Common, number: int, plan: Any) -> Any:
        """Return a generator over an array that yields one row for each row of other branches."""
        node = self.node
        (values,) = items(node.generator().children())
        generator = node.generator().withNewChildren(_seq([_one_for_others(common, number, values)]))
        return common.logical.Generate(
            generator, _seq([]), node.outer(), node.qualifier(), node.generatorOutput(), plan
        )


def _one_for_others(common: _Common, number: int, values: Any) -> Any:
    """Return an array that has one value for each row of other branches."""
    default = common.literal.default(values.dataType().elementType())
    one = common.expressions.CreateArray(_seq([default]), False)
    return common.expressions.If(common.is_of(number), values, one)


def _is_null(column: Any) -> bool:
    if _kind(column) != "Alias" or not column.child().foldable():
        return False
    try:
        return column.child().eval(None) is None
    except (Py4JJavaError, PySparkException):  # it fails for each row, as CAST('x' AS INT)
        return False


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _seq(some: list[Any]) -> Any:
    """Return a Scala sequence, ten items a call: PySpark's own conversion takes a call for each."""
    lists, to_seq = _lists(jvm())
    made = lists.ArrayList()
    for begin in range(0, len(some), _ITEMS):
        made.addAll(lists.List.of(*some[begin : begin + _ITEMS]))
    return to_seq(made)


_ITEMS = 10
"""The largest number of items for which Java's `List.of` is no function of an array."""


@lru_cache(1)
def _lists(java: Any) -> tuple[Any, Any]:
    return Package(java.java.util), java.PythonUtils.toSeq
