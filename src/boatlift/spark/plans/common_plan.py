"""The common plan of several branches (`spark.plans.branches`): one filter and one projection of CASEs, or layers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, IntegerType, StructField

from boatlift.dataflow.columns import BRANCH, MARK
from boatlift.spark.plans.catalyst import Package, items, jvm, plan_of
from boatlift.tasks.long_running import SlotPlace

LONGEST_EXPRESSIONS = 50_000
"""A branch with longer columns, in characters, has nodes of its own: a column may stand in them many times."""

NUMBERS = (StructField(MARK, IntegerType(), nullable=False), StructField(BRANCH, IntegerType(), nullable=False))
"""The first columns of all rows in the common plan."""


class NotRowByRowError(Exception):
    """A plan has a part that needs several rows; the message names it."""


class Layer(Protocol):
    """A node on the way of a branch."""

    def over(self, common: CommonPlan, number: int, plan: Any) -> Any:
        """Return the node of the common plan over a node; rows of other branches pass it once and unchanged."""


@dataclass(frozen=True, slots=True)
class Way:
    """The way of rows to the columns of a frame.

    Attributes:
        leaf: The node of the rows.
        below: The number of the branch from which the rows come; None: they are those of a task.
        layers: The nodes on the way.
        nulls: The ids of attributes that are NULL in all rows.
    """

    leaf: Any
    below: int | None = None
    layers: tuple[Layer, ...] = ()
    nulls: frozenset[int] = frozenset()

    def then(self, layer: Layer, nulls: Collection[int] = ()) -> Way:
        return Way(self.leaf, self.below, (*self.layers, layer), self.nulls | frozenset(nulls))


class CommonPlan:
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
        self._scala = Package(java.scala)
        self.none = getattr(getattr(java, "scala.None$"), "MODULE$")
        self.literal = getattr(self.expressions, "Literal$").__getattr__("MODULE$")
        collapse = getattr(java.org.apache.spark.sql.catalyst.optimizer, "CollapseProject$")
        self._collapse = getattr(collapse, "MODULE$")
        kinds = [java.org.apache.spark.sql.types.DataType.fromJson(each.json()) for each in slots]
        given = items(plan_of(rows).output())
        empty = [alias(self.literal.create(None, kind), f"s{at}") for at, kind in enumerate(kinds)]
        self._fixed = given
        self._slots = [each.toAttribute() for each in empty]
        self._values: list[list[Any]] = [[] for _ in empty]  # by slot the cases: of a branch, its value
        self._alive: list[Any] = []  # the cases of branches with a filter
        self.plan = self.logical.Project(scala_seq([*given, *empty]), plan_of(rows))

    @property
    def base(self) -> list[Any]:
        """The columns that every row has in every layer."""
        return [*self._fixed, *self._slots]

    def branch(self, number: int, way: Way, registers: Sequence[int], columns: Sequence[tuple[Any, SlotPlace]]) -> None:
        """Add a branch."""
        begin = []
        for place, attribute in zip(registers, items(way.leaf.output()), strict=True):
            register = self._fixed[len(NUMBERS) + place]
            value = register
            if not attribute.nullable():  # in rows of other branches the register is NULL
                value = self.expressions.Coalesce(scala_seq([register, self.literal.default(register.dataType())]))
            begin.append(alias(value, str(attribute.name()), attribute.exprId()))
        leaves = _leaves(self, columns)
        inlined = self._inlined(begin, way.layers, [value for value, _ in leaves])
        if inlined is not None:
            alive, values = inlined
            if alive is not None:
                self._alive.append(self._case(number, alive))
            for value, (_, slot) in zip(values, leaves, strict=True):
                self._values[slot].append(self._case(number, value))
            return
        self.plan = self.logical.Project(scala_seq([*self.base, *begin]), self.plan)
        for layer in way.layers:
            self.plan = layer.over(self, number, self.plan)
        mine, slots = self.is_of(number), list[Any](self._slots)
        for value, slot in leaves:
            slots[slot] = alias(self.expressions.If(mine, value, self._slots[slot]), f"s{slot}")
        self.plan = self.logical.Project(scala_seq([*self._fixed, *slots]), self.plan)
        self._slots = [each.toAttribute() for each in slots]

    def _inlined(
        self, begin: Sequence[Any], layers: Sequence[Layer], columns: Sequence[Any]
    ) -> tuple[Any, list[Any]] | None:
        """Return the condition and the columns of a branch as expressions of registers; the condition may be None.

        Returns:
            None if the branch needs nodes of its own, because a row becomes several, or expressions become too long.
        """
        alive, named = None, scala_seq(list(begin))
        for layer in layers:
            if isinstance(layer, Project):
                named = self._collapse.buildCleanedProjectList(scala_seq(layer.columns()), named)
                if len(str(named.toString())) > LONGEST_EXPRESSIONS:
                    return None
            elif isinstance(layer, Filter):
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
            plan = self.logical.Filter(self.expressions.CaseWhen(scala_seq(self._alive), others), plan)
        slots = [
            alias(self.expressions.CaseWhen(scala_seq(cases), self._scala.Some(slot)), f"s{at}") if cases else slot
            for at, (slot, cases) in enumerate(zip(self._slots, self._values, strict=True))
        ]
        return self.logical.Project(scala_seq([*self._fixed, *slots]), plan)

    def is_of(self, number: int) -> Any:
        """Return the condition that a row is of a branch."""
        return self.expressions.EqualTo(self._fixed[1], self.literal.apply(number))

    def guarded(self, number: int, value: Any) -> Any:
        """Return an expression that is computed for the rows of a branch alone, with its type and nullability."""
        kind = value.dataType()
        other = self.literal.create(None, kind) if value.nullable() else self.literal.default(kind)
        return self.expressions.If(self.is_of(number), value, other)


def alias(value: Any, name: str, own_id: Any = None) -> Any:
    """Return an expression as a column, with an id of its own if none is given."""
    made, named, none, nothing = _naming(jvm())
    return made(value, name, named.newExprId() if own_id is None else own_id, nothing, none, nothing)


@lru_cache(1)
def _naming(java: Any) -> tuple[Any, Any, Any, Any]:
    expressions = java.org.apache.spark.sql.catalyst.expressions
    named, none = getattr(expressions, "NamedExpression$"), getattr(java, "scala.None$")
    return expressions.Alias, getattr(named, "MODULE$"), getattr(none, "MODULE$"), scala_seq([])


def _leaves(common: CommonPlan, columns: Sequence[tuple[Any, SlotPlace]]) -> list[tuple[Any, int]]:
    found: list[tuple[Any, int]] = []
    for column, place in columns:
        if isinstance(place, int):
            found.append((column, place))
        elif place is not None:
            fields = [common.expressions.GetStructField(column, at, common.none) for at in range(len(place))]
            found += _leaves(common, list(zip(fields, place, strict=True)))
    return found


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter."""

    condition: Any

    def over(self, common: CommonPlan, number: int, plan: Any) -> Any:
        others = common.expressions.Not(common.is_of(number))
        return common.logical.Filter(common.expressions.Or(others, self.condition), plan)


@dataclass(frozen=True, slots=True)
class Project:
    """A projection.

    Attributes:
        named: Its columns.
        renamed: Attributes, each with the attribute that names it above; they follow the columns.
    """

    named: tuple[Any, ...]
    renamed: tuple[tuple[Any, Any], ...] = ()
    _made: list[Any] = field(default_factory=list)  # the ways from the leaves below share a node

    def columns(self) -> list[Any]:
        if not self._made:
            renamed = (alias(own, str(other.name()), other.exprId()) for own, other in self.renamed)
            self._made.extend([*self.named, *renamed])
        return self._made

    def over(self, common: CommonPlan, number: int, plan: Any) -> Any:
        made = [
            each.withNewChildren(scala_seq([common.guarded(number, each.child())]))
            if kind_of(each) == "Alias"
            else each
            for each in self.columns()
        ]
        base = {id_of(each) for each in common.base}
        return common.logical.Project(
            scala_seq([*common.base, *(each for each in made if id_of(each) not in base)]), plan
        )


@dataclass(frozen=True, slots=True)
class Expand:
    """A node of which each row becomes several, by several projections."""

    node: Any

    def over(self, common: CommonPlan, number: int, plan: Any) -> Any:
        """Return a generator over an array with a struct for each of the rows that a row becomes."""
        output = items(self.node.output())
        names = [common.literal.apply(f"c{place}") for place in range(len(output))]
        structs = [
            common.expressions.CreateNamedStruct(
                scala_seq([part for pair in zip(names, each, strict=True) for part in pair])
            )
            for each in map(items, items(self.node.projections()))
        ]
        array = common.expressions.CreateArray(scala_seq(structs))
        # A column that one projection leaves NULL may be NULL in the array, and not in the first projection.
        row = alias(common.literal.default(array.dataType().elementType()), "row").toAttribute()
        explode = common.expressions.Explode(_one_for_others(common, number, array))
        rows = common.logical.Generate(explode, scala_seq([]), False, common.none, scala_seq([row]), plan)
        fields = [
            alias(common.expressions.GetStructField(row, place, common.none), str(each.name()), each.exprId())
            for place, each in enumerate(output)
        ]
        return common.logical.Project(scala_seq([*common.base, *fields]), rows)


@dataclass(frozen=True, slots=True)
class Generate:
    """A node of which each row becomes one for each element of an array."""

    node: Any

    def over(self, common: CommonPlan, number: int, plan: Any) -> Any:
        """Return a generator over an array that yields one row for each row of other branches."""
        node = self.node
        (values,) = items(node.generator().children())
        generator = node.generator().withNewChildren(scala_seq([_one_for_others(common, number, values)]))
        return common.logical.Generate(
            generator, scala_seq([]), node.outer(), node.qualifier(), node.generatorOutput(), plan
        )


def _one_for_others(common: CommonPlan, number: int, values: Any) -> Any:
    """Return an array that has one value for each row of other branches."""
    default = common.literal.default(values.dataType().elementType())
    one = common.expressions.CreateArray(scala_seq([default]), False)
    return common.expressions.If(common.is_of(number), values, one)


def id_of(attribute: Any) -> int:
    """Return the number of an attribute, unique in a session."""
    return int(attribute.exprId().id())


def kind_of(node: Any) -> str:
    """Return the class of an object of the JVM."""
    return str(node.getClass().getSimpleName())


def scala_seq(some: list[Any]) -> Any:
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
