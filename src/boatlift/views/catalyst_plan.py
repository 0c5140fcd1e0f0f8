"""Reads and makes Catalyst's logical nodes, which are Java objects.

No other module knows their constructors. The ids of attributes connect the nodes of a plan: a node that replaces
another has attributes with the same ids.
"""

# ruff: noqa: SLF001

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType, _parse_datatype_json_string

from boatlift.spark.plans.catalyst import Package, empty_frame, items, optimised_plan_of
from boatlift.state.arrangement.ordered import Order

_WITH_PLACE = re.compile(
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(.*\)|string|binary|date|timestamp|timestamp_ntz"
)

_WORDS = {
    "Generate": "a function that gives a table",
    "GlobalLimit": "LIMIT",
    "Join": "the condition of a join",
    "LocalLimit": "LIMIT",
    "Sort": "ORDER BY",
    "Window": "OVER (…)",
}
"""Words of SQL for nodes whose name is none."""

Node = Any
"""A logical plan of Catalyst."""

Expression = Any
"""An expression of Catalyst."""


def plans_within(expression: Any) -> list[Any]:
    """Return the expressions with plans within an expression, including itself."""
    own = [expression] if holds_plan(expression) else []
    return own + [found for child in items(expression.children()) for found in plans_within(child)]


def holds_plan(expression: Any) -> bool:
    """Return whether an expression is a subquery."""
    return str(expression.getClass().getSuperclass().getSimpleName()).endswith("SubqueryExpression")


class CatalystPlan:
    """Reads and makes the nodes of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm: Any = cast("Any", spark)._jvm
        self._expressions = Package(self._jvm.org.apache.spark.sql.catalyst.expressions)
        self._logical = Package(self._jvm.org.apache.spark.sql.catalyst.plans.logical)
        self._modules: dict[str, Any] = {}
        self._some = self._jvm.scala.Some
        self._none = getattr(getattr(self._jvm, "scala.None$"), "MODULE$")
        self._dataset = getattr(getattr(self._jvm, "org.apache.spark.sql.classic.Dataset$"), "MODULE$")
        self._alias = self._expressions.Alias
        self._named = self._module("expressions.NamedExpression")
        self._to_seq = self._jvm.PythonUtils.toSeq
        self._nothing = self._to_seq([])

    def optimised(self, frame: DataFrame) -> Node:
        return optimised_plan_of(frame)

    def analysed(self, frame: DataFrame) -> Node:
        return frame._jdf.queryExecution().analyzed()

    def frame_of(self, node: Node) -> DataFrame:
        return DataFrame(self._dataset.ofRows(cast("Any", self.spark)._jsparkSession, node), self.spark)

    def says_watermark(self, text: str) -> bool:
        """Return whether a query text has WATERMARK; Spark raises `ParseException` for a text that is no query."""
        parsed = cast("Any", self.spark)._jsparkSession.sessionState().sqlParser().parseQuery(text)
        return "EventTimeWatermark" in str(parsed.toString())

    def has_temporary_view(self, name: str) -> bool:
        catalog = cast("Any", self.spark)._jsparkSession.sessionState().catalog()
        return not catalog.getTempView(name).isEmpty()

    def empty(self, schema: StructType) -> DataFrame:
        """Return an empty frame whose emptiness the optimiser does not know."""
        return empty_frame(self.spark, schema)

    def rdd_of(self, frame: DataFrame) -> int:
        """Return the RDD number of such a frame, which identifies its leaves in a plan."""
        return int(self.optimised(frame).rdd().id())

    @staticmethod
    def kind(node: Node) -> str:
        return str(node.getClass().getSimpleName())

    @staticmethod
    def in_words(node: Node) -> str:
        """Return a description of a node for people, without ids."""
        kind = CatalystPlan.kind(node)
        return _WORDS.get(kind) or f"{kind} ({re.sub(r'#[0-9]+L?', '', str(node.simpleString(100)))})"

    @staticmethod
    def children(node: Node) -> list[Node]:
        return items(node.children())

    @staticmethod
    def output(node: Node) -> list[Expression]:
        return items(node.output())

    def leaves(self, node: Node) -> list[Node]:
        """Return the leaves of a plan, also in its subqueries."""
        below = [*self.children(node), *items(node.subqueries())]
        return [leaf for each in below for leaf in self.leaves(each)] if below else [node]

    def without_ctes(self, node: Node) -> Node:
        """Return an analysed plan with each common table expression inlined."""
        if "CTERelationRef" not in str(node.toString()):
            return node
        inline = self._jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE  # always, dangling ones, keep them
        return inline(True, False, False).apply(node)

    def without_synonyms(self, node: Node) -> Node:
        """Return an analysed node with the expressions that functions such as `nvl` stand for."""
        return self._module("optimizer.ReplaceExpressions").apply(node)

    def over(self, node: Node, children: Iterable[Node]) -> Node:
        return node.withNewChildren(self._seq(children))

    def project(self, columns: Iterable[Expression], child: Node) -> Node:
        return self._logical.Project(self._seq(columns), child)

    def appended(self, projection: Node, child: Node, column: Expression) -> Node:
        """Return a projection over another child, with one more column."""
        return self._logical.Project(projection.projectList().appended(column), child)

    def expanded(self, expand: Node, child: Node, column: Expression) -> tuple[Node, Expression]:
        """Return an Expand over another child, with one more column that each of its projections passes on."""
        projections = self._seq([projection.appended(column) for projection in items(expand.projections())])
        passed = column.newInstance()
        return self._logical.Expand(projections, expand.output().appended(passed), child), passed

    def union(self, children: Iterable[Node]) -> Node:
        """Return the union of plans with equal columns; its attributes are those of the first plan."""
        return self._logical.Union(self._seq(children), False, False)

    def sort(self, child: Node, order: Iterable[Expression], *, whole: bool) -> Node:
        """Return a plan with its rows sorted: all of them, or within each partition."""
        return self._logical.Sort(self._seq(order), whole, child, self._none)

    def divided(self, child: Node, keys: Sequence[Expression]) -> Node:
        """Return a plan with the rows of equal keys in one partition; without keys, with all rows in one."""
        if not keys:
            return self._logical.Repartition(1, True, child)
        by = self._module("plans.logical.RepartitionByExpression")
        return by.apply(self._seq(keys), child, self._none, self._none)

    def ascending(self, column: Expression) -> Expression:
        ascending = self._module("expressions.Ascending")
        return self._module("expressions.SortOrder").apply(column, ascending, self._nothing)

    @staticmethod
    def has_place(column: Expression) -> bool:
        """Return whether `order_codes` supports a column's type."""
        return _WITH_PLACE.fullmatch(str(column.dataType().catalogString())) is not None

    def renamed(
        self, frame: DataFrame, attributes: Sequence[Expression], more: Sequence[str]
    ) -> tuple[Node, list[Any]]:
        """Return a frame's plan with the ids of a node's attributes, assigned by position.

        Args:
            frame: Its first columns are those of the node, in order.
            more: Names of the frame's further columns to keep.

        Returns:
            The plan, and the attributes of the further columns.
        """
        plan = self.analysed(frame)
        own = self.output(plan)
        named = [
            self.alias(column, attribute.name(), attribute.exprId(), attribute.metadata())
            for column, attribute in zip(own, attributes, strict=False)
        ]
        further = [self.alias(column, column.name()) for column in own[len(attributes) :] if column.name() in more]
        return self.project([*named, *further], plan), [alias.toAttribute() for alias in further]

    def alias(self, column: Expression, name: str, own_id: Any = None, metadata: Any = None) -> Expression:
        """Return an expression under a name, and under an id if one is given."""
        chosen = self._named.newExprId() if own_id is None else own_id
        given = self._none if metadata is None else self._some(metadata)
        return self._alias(column, name, chosen, self._nothing, given, self._nothing)

    def long(self, value: int) -> Expression:
        parser = cast("Any", self.spark)._jsparkSession.sessionState().sqlParser()
        return parser.parseExpression(f"{value}L")

    @staticmethod
    def is_constant(node: Node) -> bool:
        """Return whether the form of a node shows that all of its rows are equal."""
        return node.getClass().getSimpleName() == "Project" and all(
            column.getClass().getSimpleName() == "Alias" and column.child().foldable()
            for column in items(node.projectList())
        )

    def can_replace_subqueries(self, node: Node) -> bool:
        """Return whether `with_subqueries` supports a node, and all of its subqueries are scalar."""
        plans = [each for root in items(node.expressions()) for each in plans_within(root)]
        scalar = all(self.kind(each) == "ScalarSubquery" for each in plans)
        return scalar and self.kind(node) in ("Filter", "Project", "Aggregate")

    def with_subqueries(self, node: Node, child: Node, plans: Sequence[Node]) -> Node:
        """Return a node over another child, with other plans in its scalar subqueries, in the order of `subqueries`."""
        left = iter(plans)

        def replaced(expression: Expression) -> Expression:
            if expression.getClass().getSimpleName() == "ScalarSubquery":
                return expression.withNewPlan(next(left))
            below = items(expression.children())
            return expression.withNewChildren(self._seq(map(replaced, below))) if below else expression

        match self.kind(node):
            case "Filter":
                return self._logical.Filter(replaced(node.condition()), child)
            case "Project":
                return self.project(map(replaced, items(node.projectList())), child)
            case _:
                keys = [replaced(each) for each in items(node.groupingExpressions())]
                columns = [replaced(each) for each in items(node.aggregateExpressions())]
                return self._logical.Aggregate(self._seq(keys), self._seq(columns), child, node.hint())

    def equal_keys(self, join: Node) -> tuple[list[Expression], list[Expression]]:
        """Return the equality keys of a join, by side; empty if it has none."""
        found = self._module("planning.ExtractEquiJoinKeys").unapply(join)
        if found.isEmpty():
            return [], []
        keys = found.get()
        return items(keys._2()), items(keys._3())

    def not_in_values(self, join: Node) -> tuple[Expression, Expression] | None:
        """Return the value of each side of a NOT IN over one column; None for another join."""
        found = self._module("planning.ExtractSingleColumnNullAwareAntiJoin").unapply(join)
        if found.isEmpty():
            return None
        (left,), (right,) = items(found.get()._1()), items(found.get()._2())
        return left, right

    def other_condition(self, node: Node) -> Expression | None:
        """Return the condition of a join without its equality keys; None if there is none, or the node is no join."""
        if self.kind(node) != "Join":
            return None
        found = self._module("planning.ExtractEquiJoinKeys").unapply(node)
        condition = None if found.isEmpty() else found.get()._4()
        return None if condition is None or condition.isEmpty() else condition.get()

    @staticmethod
    def join_type(join: Node) -> str:
        """Return the type of a join, such as `LeftSemi`."""
        return str(join.joinType().toString()).partition("(")[0]

    def conjuncts(self, condition: Expression) -> list[Expression]:
        if self.kind(condition) != "And":
            return [condition]
        return [each for part in items(condition.children()) for each in self.conjuncts(part)]

    def side_of(self, condition: Expression, join: Node) -> int | None:
        """Return the only side of a join that a condition reads; None if it reads both."""
        wanted = self.references(condition)
        for side, child in enumerate(self.children(join)):
            if wanted <= set(map(self.id, self.output(child))):
                return side
        return None

    def only_if(self, condition: Expression, value: Expression) -> Expression:
        """Return an expression that is NULL unless a condition is true."""
        nothing = self._module("expressions.Literal").create(None, value.dataType())
        return self._expressions.If(condition, value, nothing)

    def if_negative(self, number: Expression, value: Expression, other: Expression) -> Expression:
        return self._expressions.If(self._expressions.LessThan(number, self.long(0)), value, other)

    def tried(self, values: Sequence[Expression]) -> Expression:
        """Return a struct of values that is NULL if one of them fails."""
        return self._expressions.TryEval(self.struct([f"c{place}" for place in range(len(values))], values))

    def aggregation(self, node: Node) -> tuple[list[Expression], list[Any], list[Expression]] | None:
        """Return the keys of an aggregate, its function calls, and its columns over the results of both.

        The result is None if Catalyst cannot split the aggregate.
        """
        found = self._module("planning.PhysicalAggregation").unapply(node)
        if found.isEmpty():
            return None
        return items(found.get()._1()), items(found.get()._2()), items(found.get()._3())

    def aggregate(self, keys: Sequence[Expression], columns: Iterable[Expression], like: Node) -> Node:
        """Return an aggregate over the rows of another one, with the functions in its columns resolved."""
        named = [key for key in keys if self.kind(key) == "Alias"]
        child = self.project([*self.output(like.child()), *named], like.child()) if named else like.child()
        keys = [key.toAttribute() for key in keys]
        made = self._logical.Aggregate(self._seq(keys), self._seq([*keys, *columns]), child, like.hint())
        return self.analysed(self.frame_of(made))

    def collected(self, values: Expression, *, distinct: bool) -> Expression:
        """Return an unresolved call that collects values as doubles into a list."""
        unresolved = self._module("analysis.UnresolvedFunction")
        double = unresolved.apply("double", self._seq([values]), False)
        return unresolved.apply("collect_list", self._seq([double]), distinct)

    @classmethod
    def session_keys(cls, aggregate: Node) -> list[Expression]:
        """Return the grouping keys of an aggregate that are session windows; only attributes have metadata."""
        keys = items(aggregate.groupingExpressions())
        named = [key for key in keys if cls.kind(key) in ("AttributeReference", "Alias")]
        return [key for key in named if "sessionWindow" in str(key.metadata().json())]

    def fields(self, struct: Expression) -> list[Expression] | None:
        """Return the fields of a struct; None for another type."""
        if self.kind(struct.dataType()) != "StructType":
            return None
        places = range(struct.dataType().length())
        return [self._expressions.GetStructField(struct, place, self._none) for place in places]

    def struct(self, names: Sequence[str], values: Sequence[Expression]) -> Expression:
        literal = self._module("expressions.Literal")
        pairs = [each for name, value in zip(names, values, strict=True) for each in (literal.apply(name), value)]
        return self._expressions.CreateNamedStruct(self._seq(pairs))

    def is_null(self, value: Expression) -> Expression:
        return self._expressions.IsNull(value)

    def negated(self, condition: Expression) -> Expression:
        return self._expressions.Not(condition)

    @staticmethod
    def unnamed(column: Expression) -> Expression:
        """Return an expression without its alias."""
        return column.child() if column.getClass().getSimpleName() == "Alias" else column

    def without_normalising(self, key: Expression) -> Expression:
        """Return a key without Spark's one zero and one NaN, which all rows of a view have."""
        while self.kind(key) in ("KnownFloatingPointNormalized", "NormalizeNaNAndZero"):
            key = key.child()
        return key

    def named_as(self, column: Expression, expression: Expression) -> Expression:
        """Return an expression under the name and the id of a column."""
        if self.kind(expression) in ("Alias", "AttributeReference"):
            return expression
        return self.alias(expression, column.name(), column.exprId(), column.metadata())

    def rank_limit(self, window: Node) -> tuple[int, bool] | None:
        """Return the number of rows per partition that a query takes from a window; None if it may take all.

        Returns:
            The number, and whether it counts distinct ranks, as `dense_rank()` does.
        """
        below = window.child()
        if self.kind(below) != "WindowGroupLimit":
            return None
        mine, limited = [[*items(each.partitionSpec()), *items(each.orderSpec())] for each in (window, below)]
        if len(mine) != len(limited) or not all(a.semanticEquals(b) for a, b in zip(mine, limited, strict=True)):
            return None
        return int(below.limit()), self.kind(below.rankLikeFunction()) == "DenseRank"

    def is_row_number(self, column: Expression) -> bool:
        return self.kind(column) == "WindowExpression" and self.kind(column.windowFunction()) == "RowNumber"

    def row_limit(self, limits: Sequence[Node]) -> int | None:
        """Return the number of rows that LIMIT and OFFSET nodes take, given the uppermost first; None: all."""
        most: int | None = None
        for node in limits:
            match self.kind(node):
                case "GlobalLimit" | "LocalLimit":
                    count = int(node.limitExpr().eval(None))
                    most = count if most is None else min(most, count)
                case "Offset" if most is not None:
                    most += int(node.offsetExpr().eval(None))
        return most

    @staticmethod
    def sort_key(order: Expression) -> tuple[Expression, Order]:
        """Return the expression of a sort order, and the order of its values."""
        descending = str(order.direction().sql()) == "DESC"
        return order.child(), Order(descending, str(order.nullOrdering().sql()) == "NULLS FIRST")

    @staticmethod
    def type_of(expression: Expression) -> DataType:
        return _parse_datatype_json_string(expression.dataType().json())

    @classmethod
    def field(cls, name: str, expression: Expression) -> StructField:
        return StructField(name, cls.type_of(expression), bool(expression.nullable()))

    def can_up_cast(self, cast: Expression) -> bool:
        """Return whether a cast has a lossless result for every value."""
        return bool(self._expressions.Cast.canUpCast(cast.child().dataType(), cast.dataType()))

    @staticmethod
    def name_of(column: Expression) -> str:
        """Return the name of an attribute, or the text of another expression."""
        return str(column.name() if CatalystPlan.kind(column) == "AttributeReference" else column.sql())

    @staticmethod
    def id(attribute: Expression) -> int:
        return int(attribute.exprId().id())

    @classmethod
    def references(cls, expression: Expression) -> set[int]:
        """Return the ids of the attributes in an expression."""
        if expression.getClass().getSimpleName() == "AttributeReference":
            return {cls.id(expression)}
        return set().union(*map(cls.references, items(expression.children())))

    def replaced(self, expression: Expression, values: Mapping[int, Expression]) -> Expression:
        """Return an expression with attributes replaced, by id."""
        if expression.getClass().getSimpleName() == "AttributeReference":
            return values.get(self.id(expression), expression)
        children = [self.replaced(each, values) for each in items(expression.children())]
        if self.kind(expression) == "GetStructField" and self.kind(children[0]) == "CreateNamedStruct":
            return children[0].valExprs().apply(expression.ordinal())
        return expression.withNewChildren(self._seq(children)) if children else expression

    def columns_of(self, projection: Node) -> dict[int, Expression]:
        """Return the expression of each column of a projection, by the id of its attribute."""
        return {
            self.id(column.toAttribute()): CatalystPlan.unnamed(column) for column in items(projection.projectList())
        }

    def all_of(self, conditions: Sequence[Expression]) -> Expression | None:
        """Return the conjunction of conditions; None if there are none."""
        return reduce(self._expressions.And, conditions) if conditions else None

    def in_place_of(self, node: Node, frame: DataFrame) -> Node:
        """Return a frame's plan that can replace a node: its columns have the node's names, ids and qualifiers."""
        plan = self.analysed(frame)
        columns = [
            self._alias(own, each.name(), each.exprId(), each.qualifier(), self._some(each.metadata()), self._nothing)
            for own, each in zip(self.output(plan), self.output(node), strict=True)
        ]
        return self.project(columns, plan)

    def filter(self, condition: Expression, child: Node) -> Node:
        return self._logical.Filter(condition, child)

    def _module(self, name: str) -> Any:
        if name not in self._modules:
            self._modules[name] = getattr(getattr(self._jvm, f"org.apache.spark.sql.catalyst.{name}$"), "MODULE$")
        return self._modules[name]

    def _seq(self, values: Iterable[Any]) -> Any:
        return self._to_seq(list(values))
