"""Makes the circuit of a loop's body, whose operators one task runs iteration by iteration.

Rows that do not depend on the loop are inputs of the circuit: Spark and other stages of the query compute them once per
step. Rows that depend on it are computed in the task. So the body may use only operators and expressions that tasks
support; others are refused by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from boatlift.errors import InvalidError
from boatlift.kernels.aggregate import AggregateNode
from boatlift.kernels.aggregate.node import DistinctNode
from boatlift.kernels.loop.expressions import Both, Constant, FirstTrue, FunctionCall, InTask, Place
from boatlift.kernels.loop.node import Apply, Circuit, KeyedOperation, Operation, Result, Sum
from boatlift.kernels.network.join import JoinNode, OuterJoinNode, SemiJoinNode
from boatlift.kernels.network.node import Node as KeyedNode
from boatlift.spark.plans.catalyst import items
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.arrangement.join import Side
from boatlift.views.aggregates import LayoutOf, aggregate_parts
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node
from boatlift.views.flows import Flow, Form, SchemaOf, named_schema
from boatlift.views.joins import JOIN_GIVES, SIDES_ALONE, JoinForm, collated, join_form

_COMPARISONS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "EqualNullSafe": "<=>",
}
_ARITHMETIC = {"Add": "+", "Subtract": "-", "Multiply": "*"}
_PLAIN = {"Not": "not", "IsNull": "is null", "IsNotNull": "is not null"}
_SAME = frozenset({"Alias", "KnownNotNull", "KnownNullable", "KnownFloatingPointNormalized", "NormalizeNaNAndZero"})


@dataclass(frozen=True, slots=True)
class InTaskExpressions:
    """Translates expressions."""

    nodes: CatalystPlan
    type_of: Callable[[Expression], pa.DataType]

    def of(self, expression: Expression, places: Mapping[int, int]) -> InTask | None:
        """Return the translated expression, given columns' places by the ids of their attributes.

        The result is None if tasks do not support the expression.
        """
        kind = self.nodes.kind(expression)
        if kind == "AttributeReference":
            return Place(places[self.nodes.id(expression)])
        if kind == "Literal":
            return self._of_value(expression.value(), self.type_of(expression))
        if kind in _SAME:
            return self.of(expression.child(), places)
        children = [self.of(each, places) for each in items(expression.children())]
        known = [each for each in children if each is not None]
        if len(known) < len(children) or not children or collated(items(expression.children())):
            return None
        return self._made(kind, expression, known)

    def _made(self, kind: str, expression: Expression, children: list[InTask]) -> InTask | None:
        result = self.type_of(expression)
        arguments = [self.type_of(each) for each in items(expression.children())]
        call: str | None = None
        if kind in _COMPARISONS and _comparable(arguments[0]):
            call = _COMPARISONS[kind]
        elif kind in _ARITHMETIC:
            call = _arithmetic(_ARITHMETIC[kind], expression, result)
        elif kind in _PLAIN:
            call = _PLAIN[kind]
        elif kind in ("Least", "Greatest") and _whole(result):
            call = kind.lower()
        elif kind == "Concat" and (pa.types.is_string(result) or pa.types.is_large_string(result)):
            call = "concat"
        elif kind == "Concat" and pa.types.is_list(result):
            call = "concat lists"
        elif kind == "CreateArray":
            call = "list"
        elif kind == "ArrayContains" and _comparable(arguments[1]):
            call = "contains"
        elif kind == "Cast" and _castable(arguments[0], result) and str(expression.evalMode().toString()) != "TRY":
            call = "cast"
        if kind == "InSet":
            within = [self._of_value(each, arguments[0]) for each in items(expression.hset().toSeq())]
            found = [each for each in within if each is not None]
            return self._choice("In", [*children, *found], arguments[0], result) if len(found) == len(within) else None
        if call is not None:
            return FunctionCall(call, tuple(children), result)
        return self._choice(kind, children, arguments[0], result)

    @staticmethod
    def _choice(kind: str, children: list[InTask], argument: pa.DataType, result: pa.DataType) -> InTask | None:
        """Return an expression that evaluates some of its operands only for some rows."""
        match kind, children:
            case "And", [first, second]:
                return Both(first, second)
            case "Or", [first, second]:  # a OR b is NOT (NOT a AND NOT b)
                return _opposite(Both(_opposite(first), _opposite(second)))
            case "If", [condition, value, other]:
                return FirstTrue(((condition, value),), other, result)
            case "CaseWhen", _:
                pairs = tuple(zip(children[0::2], children[1::2], strict=False))
                return FirstTrue(pairs, children[-1] if len(children) % 2 else None, result)
            case "Coalesce", [*values, last]:
                there = tuple((FunctionCall("is not null", (value,), pa.bool_()), value) for value in values)
                return FirstTrue(there, last, result)
            case "In", [value, *others] if others and _comparable(argument):
                equal = [FunctionCall("=", (value, other), pa.bool_()) for other in others]
                either: InTask = equal[0]
                for each in equal[1:]:
                    either = FunctionCall("or", (either, each), pa.bool_())
                return either
            case _:
                return None

    @staticmethod
    def _of_value(value: Any, kind: pa.DataType) -> Constant | None:
        """Return a value of Spark as a constant; None if tasks do not support its type."""
        if value is None:
            return Constant(None, kind)
        if _whole(kind) and not pa.types.is_integer(kind):  # Spark stores times as numbers
            number = pa.scalar(int(value), pa.int32() if pa.types.is_date32(kind) else pa.int64())
            return Constant(number.cast(kind), kind)
        if pa.types.is_decimal(kind):
            return Constant(Decimal(str(value.toString())), kind)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return Constant(str(value.toString() if hasattr(value, "toString") else value), kind)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            return Constant(value, kind)
        return None


def _opposite(condition: InTask) -> InTask:
    return FunctionCall("not", (condition,), pa.bool_())


def _whole(kind: pa.DataType) -> bool:
    types: Any = pa.types
    return bool(types.is_signed_integer(kind) or types.is_date32(kind) or types.is_timestamp(kind))


def _comparable(kind: pa.DataType) -> bool:
    types: Any = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    return bool(_whole(kind) or text or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def _arithmetic(function: str, expression: Expression, result: pa.DataType) -> str | None:
    mode = str(expression.evalMode().toString())
    if pa.types.is_floating(result):
        return f"wrapping {function}"
    if not pa.types.is_signed_integer(result) or mode == "TRY":
        return None
    return function if mode == "ANSI" else f"wrapping {function}"


def _castable(given: pa.DataType, result: pa.DataType) -> bool:
    """Return whether a cast is unambiguous: from whole numbers to wider ones, to floating point and to text."""
    if not pa.types.is_signed_integer(given):
        return bool(given == result)
    wider = pa.types.is_signed_integer(result) and result.bit_width >= given.bit_width
    text = pa.types.is_string(result) or pa.types.is_large_string(result)
    return bool(wider or text or pa.types.is_floating(result))


_PASSED_OVER = frozenset({"Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"})
_LOOP = 0


@dataclass(frozen=True, slots=True)
class LoopInput:
    """An input of a loop."""

    flow: Flow
    columns: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class LoopBody:
    """The body of a loop."""

    circuit: Circuit
    inputs: tuple[LoopInput, ...]
    result: Result
    most_iterations: int
    """A step with more iterations fails."""
    keep_every: float = 10.0
    """The seconds between two loop checkpoints of a step."""


@dataclass(frozen=True, slots=True)
class LoopKit:
    """The query around a loop's body."""

    nodes: CatalystPlan
    view: str
    schema_of: SchemaOf
    layout_of: LayoutOf
    flow: Callable[[Node], Flow]
    """Returns the flow of a node outside of the loop."""


def loop_body(plan: Node, loop_rdd: int, most_iterations: int, kit: LoopKit) -> LoopBody:
    """Return the body of a loop whose plan computes the rows of the next iteration.

    Args:
        loop_rdd: The RDD number of the empty frame that represents the loop's rows.

    Raises:
        InvalidError: `[NOT_INCREMENTAL]` a part of the plan cannot be computed iteration by iteration.
    """

    def is_loop(node: Node) -> bool:
        return kit.nodes.kind(node) == "LogicalRDD" and int(node.rdd().id()) == loop_rdd

    making = _BodyMaking(kit, is_loop)
    result = making.of(plan)
    return making.body(result, kit.nodes.output(plan), Result.FIXED_POINT, most_iterations)


def recursion_body(union_loop: Node, most_iterations: int, kit: LoopKit) -> LoopBody:
    """Return the body of WITH RECURSIVE: each iteration reads the rows of the last one, and the result has all rows.

    Args:
        most_iterations: A step with more iterations fails, unless the query has a limit of its own.

    Raises:
        InvalidError: `[NOT_INCREMENTAL]` a part of the query cannot be computed iteration by iteration.
    """
    number = int(union_loop.id())

    def is_loop(node: Node) -> bool:
        return kit.nodes.kind(node) == "UnionLoopRef" and int(node.loopId()) == number

    making = _BodyMaking(kit, is_loop)
    anchor, recursion = making.input(union_loop.anchor(), once=True), making.of(union_loop.recursion())
    own = union_loop.maxDepth()
    limit = int(own.get()) if not own.isEmpty() else most_iterations
    most = sys.maxsize if limit < 0 else limit + 1  # Spark counts a last level without rows, but not the anchor
    result = making.added(Sum((anchor.number, recursion.number)), union_loop)
    return making.body(result, kit.nodes.output(union_loop), Result.ALL_ITERATIONS, most)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A place of the circuit under construction: 0 is the loop, negative ones are inputs, positive ones operations."""

    number: int
    columns: tuple[Expression, ...]


class _BodyMaking:
    def __init__(self, kit: LoopKit, is_loop: Callable[[Node], bool]) -> None:
        self._kit, self._nodes, self._is_loop = kit, kit.nodes, is_loop
        self._expressions = InTaskExpressions(kit.nodes, lambda each: kit.schema_of([each]).field(0).type)
        self._named = partial(named_schema, schema_of=kit.schema_of)
        self._inputs: list[LoopInput] = []
        self._once: set[int] = set()
        self._operations: list[Operation] = []

    def body(self, result: _Placed, loop: Sequence[Expression], which: Result, most_iterations: int) -> LoopBody:
        def numbered(place: int) -> int:
            return -1 - place if place < 0 else len(self._inputs) + place

        def renumbered(operation: Operation) -> Operation:
            if isinstance(operation, Apply):
                return replace(operation, source=numbered(operation.source))
            return replace(operation, sources=tuple(map(numbered, operation.sources)))

        inputs = tuple(self._kit.schema_of(each.columns) for each in self._inputs)
        circuit = Circuit(
            inputs,
            frozenset(self._once),
            self._named(loop),
            tuple(map(renumbered, self._operations)),
            numbered(result.number),
        )
        return LoopBody(circuit, tuple(self._inputs), which, most_iterations)

    def of(self, node: Node) -> _Placed:
        if self._is_loop(node):
            return _Placed(_LOOP, tuple(self._nodes.output(node)))
        if not any(map(self._is_loop, items(node.collectLeaves()))):
            return self.input(node)
        if not node.subqueries().isEmpty():
            raise self._refused("a subquery", "join with it")
        kind = self._nodes.kind(node)
        if kind in _PASSED_OVER:
            return self.of(node.child())
        match kind:
            case "Project":
                return self._applied(self.of(node.child()), items(node.projectList()), node)
            case "Filter":
                below = self.of(node.child())
                condition = self._expression(node.condition(), below)
                every = tuple(map(Place, range(len(below.columns))))
                return self.added(Apply(below.number, every, condition), node)
            case "Union":
                return self.added(Sum(tuple(self.of(each).number for each in self._nodes.children(node))), node)
            case "Join":
                return self._join(node)
            case "Aggregate":
                return self._aggregate(node)
        raise self._refused(self._nodes.in_words(node), "write the loop without it")

    def input(self, node: Node, *, once: bool = False) -> _Placed:
        """Return the place of rows that do not depend on the loop; with `once`, only iteration 0 has them."""
        columns = tuple(self._nodes.output(node))
        if once:
            self._once.add(len(self._inputs))
        self._inputs.append(LoopInput(self._kit.flow(node), columns))
        return _Placed(-len(self._inputs), columns)

    def added(self, operation: Operation, node: Node) -> _Placed:
        return self._placed(operation, self._nodes.output(node))

    def _placed(self, operation: Operation, columns: Sequence[Expression]) -> _Placed:
        self._operations.append(operation)
        return _Placed(len(self._operations), tuple(columns))

    def _keyed(self, node: KeyedNode, sources: Sequence[_Placed], columns: Sequence[Expression]) -> _Placed:
        name = str(sum(isinstance(each, KeyedOperation) for each in self._operations))
        return self._placed(KeyedOperation(name, node, tuple(each.number for each in sources)), columns)

    def _applied(self, below: _Placed, columns: Sequence[Expression], node: Node | None = None) -> _Placed:
        """Return the place of columns over those of another place."""
        made = tuple(self._expression(each, below) for each in columns)
        output = columns if node is None else self._nodes.output(node)
        if made == tuple(map(Place, range(len(below.columns)))):
            return _Placed(below.number, tuple(output))
        return self._placed(Apply(below.number, made), output)

    def _expression(self, expression: Expression, below: _Placed) -> InTask:
        places = {self._nodes.id(each): place for place, each in enumerate(below.columns)}
        made = self._expressions.of(expression, places)
        if made is None:
            raise self._refused(f"the expression {expression.sql()}", "compute it before the loop, or behind it")
        return made

    def _join(self, node: Node) -> _Placed:
        join = join_form(node, self._nodes, of_all_rows=True)
        if join.form not in (Form.JOIN, Form.OUTER, Form.SEMI) or any(map(collated, join.keys)):
            raise self._refused(f"the {join.place}", "join with equal columns")
        below = [self.of(each) for each in self._nodes.children(node)]
        if join.form is Form.SEMI:
            return self._semi(node, join, below)
        sides, feeds = [], []
        for each, keys in zip(below, join.keys, strict=True):
            feed, places = self._with_keys(each, keys)
            feeds.append(feed)
            codec = ArrangementCodec(self._named(feed.columns))
            sides.append(Side(codec, places, tuple(range(len(each.columns)))))
        left, right = sides
        alone = SIDES_ALONE[self._nodes.join_type(node)]
        keyed: KeyedNode = JoinNode(self._kit.view, join.place, left, right)
        if any(alone):
            keyed = OuterJoinNode(self._kit.view, join.place, (left, right), alone)
        columns = [*below[0].columns, *below[1].columns]
        placed = self._keyed(keyed, feeds, columns)
        if join.condition is None:
            return replace(placed, columns=tuple(self._nodes.output(node)))
        every = tuple(map(Place, range(len(columns))))
        return self.added(Apply(placed.number, every, self._expression(join.condition, placed)), node)

    def _semi(self, node: Node, join: JoinForm, below: Sequence[_Placed]) -> _Placed:
        feed, places = self._with_keys(below[0], join.keys[0])
        left = Side(ArrangementCodec(self._named(feed.columns)), places, tuple(range(len(below[0].columns))))
        partners = self._applied(below[1], join.keys[1])
        gives = JOIN_GIVES[self._nodes.join_type(node)]
        keyed = SemiJoinNode(self._kit.view, join.place, left, self._named(join.keys[1]), gives)
        return self._keyed(keyed, (feed, partners), self._nodes.output(node))

    def _with_keys(self, below: _Placed, keys: Sequence[Expression]) -> tuple[_Placed, tuple[int, ...]]:
        """Return the place of rows to which missing key columns are appended, and the places of the key."""
        columns = list(below.columns)
        places = []
        for key in keys:
            found = next((place for place, each in enumerate(columns) if each.semanticEquals(key)), None)
            if found is None:
                found = len(columns)
                columns.append(key)
            places.append(found)
        return self._applied(below, columns), tuple(places)

    def _aggregate(self, node: Node) -> _Placed:
        parts = aggregate_parts(node, self._nodes)
        if parts is None or not parts.keys or collated(parts.keys):
            raise self._refused(
                f"the {self._nodes.in_words(node)}",
                "group by columns, with DISTINCT, count, sum, avg, min, max or variances",
            )
        below = self.of(node.child())
        if not parts.functions:
            feed = self._applied(below, parts.keys)
            distinct = DistinctNode(self._kit.view, "DISTINCT", self._named(parts.keys))
            return self._applied(self._keyed(distinct, (feed,), parts.output), parts.results, node)
        kept = self._kit.layout_of(parts.keys, parts.functions, False)
        if kept is None:
            raise self._refused(f"the {self._nodes.in_words(node)}", "cast its columns to other types")
        feed = self._applied(below, [*parts.keys, *kept.arguments])
        names = tuple(self._named(parts.keys).names)
        keyed = AggregateNode(self._kit.view, kept.layout, names)
        return self._applied(self._keyed(keyed, (feed,), parts.output), parts.results, node)

    def _refused(self, what: str, instead: str) -> InvalidError:
        return InvalidError(
            "NOT_INCREMENTAL",
            f"{self._kit.view} has {what} over the rows of its loop, which cannot be computed iteration by iteration: "
            f"{instead}",
        )
