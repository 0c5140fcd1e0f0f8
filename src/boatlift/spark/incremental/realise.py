"""The frames of a step: the plan of a query over the changes of that step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StructType

from boatlift.dataflow.columns import HASH, WEIGHT, quoted
from boatlift.spark.incremental.nodes import Expression, Node, Nodes
from boatlift.spark.incremental.query import Flow, Leaf, Linear, Query, Stage, StageResult
from boatlift.spark.keyed.arrangement.codec import IDENTITY
from boatlift.spark.keyed.arrangement.touched import AFTER, BEFORE, INPUT_NUMBER
from boatlift.spark.keyed.key_groups import key_hash

__all__ = ["StepFrames"]

Change = tuple[Node, Expression]
"""A plan, and the attribute with the weights of its rows."""


@dataclass(frozen=True, slots=True)
class StepFrames:
    """The frames of one step.

    Attributes:
        query: The query.
        nodes: Makes nodes.
        streams: Stream to the change of it, with `_weight`; a stream that brings nothing is left out.
        touched: Stage to the rows of the keys that it touches; a stage that touches none is left out.
        first: Whether this is the first step that the view executes: static tables come now.
    """

    query: Query
    nodes: Nodes
    streams: Mapping[str, DataFrame]
    touched: Mapping[int, DataFrame]
    first: bool

    def input(self, stage: Stage, number: int) -> DataFrame | None:
        """Return the change of a stage's input, with identities and the hash of its key; None if there is none.

        The columns are `c0`, `c1`, …, because those of a join may have equal names.
        """
        change = self._flow(stage.inputs[number])
        if change is None:
            return None
        node, weight = change
        output = self.nodes.output(stage.children[number]) or [self.nodes.long(0)]
        columns = [self.nodes.alias(each, f"c{n}") for n, each in enumerate(output)]
        keys = [self.nodes.alias(key, f"k{n}") for n, key in enumerate(stage.keys[number])]
        frame = self.nodes.frame_of(self.nodes.project([*columns, *keys, self.nodes.alias(weight, WEIGHT)], node))
        return hashed(frame, [f"c{n}" for n in range(len(columns))], [f"k{n}" for n in range(len(keys))], number)

    def result(self, names: Sequence[str]) -> DataFrame | None:
        """Return the change of the whole result, with identities; None if there is none."""
        change = self._flow(self.query.result)
        if change is None:
            return None
        node, weight = change
        output = self.nodes.output(self.query.node)
        columns = [self.nodes.alias(each, name) for each, name in zip(output, names, strict=True)]
        frame = self.nodes.frame_of(self.nodes.project([*columns, self.nodes.alias(weight, WEIGHT)], node))
        return hashed(frame, names, None)

    def _flow(self, flow: Flow) -> Change | None:
        match flow:
            case Leaf(read, node):
                return self._leaf(read, node)
            case Linear(node, inputs):
                return self._linear(node, [self._flow(each) for each in inputs])
            case StageResult(number):
                return self._stage(self.query.stages[number])

    def _leaf(self, read: str | None, node: Node) -> Change | None:
        if read is None:
            if not self.first:
                return None
            weight = self.nodes.alias(self.nodes.long(1), WEIGHT)
            return self.nodes.project([*self.nodes.output(node), weight], node), weight.toAttribute()
        if read not in self.streams:
            return None
        plan, (weight,) = self.nodes.renamed(self.streams[read], self.nodes.output(node), [WEIGHT])
        return plan, weight

    def _linear(self, node: Node, inputs: Sequence[Change | None]) -> Change | None:
        there = [each for each in inputs if each is not None]
        if not there:
            return None
        child, weight = there[0]
        match self.nodes.kind(node):
            case "Project":
                return self.nodes.appended(node, child, weight), weight
            case "Expand":
                return self.nodes.expanded(node, child, weight)
            case "Union":
                return self._union(node, inputs)
            case _:
                return self.nodes.over(node, [child]), weight

    def _union(self, node: Node, inputs: Sequence[Change | None]) -> Change:
        """Return the union of the inputs that are there, with the attributes of the node."""
        output = self.nodes.output(node)
        children = []
        for each, below in zip(inputs, self.nodes.children(node), strict=True):
            if each is not None:
                columns = zip(self.nodes.output(below), output, strict=True)
                named = [self.nodes.alias(column, out.name(), out.exprId()) for column, out in columns]
                weight = self.nodes.alias(each[1], WEIGHT)
                children.append((self.nodes.project([*named, weight], each[0]), weight.toAttribute()))
        if len(children) == 1:
            return children[0]
        return self.nodes.union([child for child, _ in children]), children[0][1]

    def _stage(self, stage: Stage) -> Change | None:
        """Return the change of a stage's result: what the node gives for the touched keys now, less what it gave."""
        if stage.number not in self.touched and not (stage.whole and self.first):
            return None
        sides = []
        for name, weight in ((BEFORE, -1), (AFTER, 1)):
            if stage.whole and self.first and name == BEFORE:
                continue  # nothing was given yet, not even the row of no rows
            node = self._applied(stage, name)
            column = self.nodes.alias(self.nodes.long(weight), WEIGHT)
            sides.append((self.nodes.project([*self.nodes.output(stage.nodes[0]), column], node), column.toAttribute()))
        if len(sides) == 1:
            return sides[0]
        return self.nodes.union([side for side, _ in sides]), sides[0][1]

    def _applied(self, stage: Stage, side: str) -> Node:
        """Return the stage's nodes over the rows of the touched keys at one side of the step."""
        below = [self._rows(stage, number, side) for number in range(len(stage.inputs))]
        *upper, last = stage.nodes
        if self.nodes.kind(last) == "Window":
            order = [*map(self.nodes.ascending, stage.keys[0]), *_items(last.orderSpec())]
            below = [self._in_order(below[0], order, whole=False)]
        if self.nodes.kind(last) == "Sort":
            node = self._in_order(below[0], _items(last.order()), whole=True)
        elif len(below) > len(self.nodes.children(last)):
            node = self.nodes.with_subqueries(last, below[0], below[1:])
        else:
            node = self.nodes.over(last, below)
        for each in reversed(upper):
            node = self.nodes.over(each, [node])
        return node

    def _in_order(self, node: Node, order: Sequence[Expression], *, whole: bool) -> Node:
        """Return rows in an order; rows that it leaves tied go by their columns."""
        content = [self.nodes.ascending(each) for each in self.nodes.output(node) if self.nodes.has_order(each)]
        return self.nodes.sort(node, [*order, *content], whole=whole)

    def _rows(self, stage: Stage, number: int, side: str) -> Node:
        attributes = self.nodes.output(stage.children[number])
        frame = self.touched.get(stage.number)
        if frame is None:
            empty = self.nodes.frame_of(stage.children[number]).limit(0)
            return self.nodes.renamed(empty, attributes, [])[0]
        own = frame.where((F.col(INPUT_NUMBER) == number) & (F.col(side) > 0))
        repeated = own.select(
            F.col(f"i{number}.*"), F.explode(F.sequence(F.lit(1), F.col(side).cast("int"))).alias("_n")
        )
        return self.nodes.renamed(repeated, attributes, [])[0]


def hashed(frame: DataFrame, names: Sequence[str], keys: Sequence[str] | None, number: int = 0) -> DataFrame:
    """Return rows in canonical form, with their identity, and the hash of their key.

    Args:
        frame: The rows, with their keys and `_weight`.
        names: The columns.
        keys: The columns of the key; none: all rows have one key. None: each row is its own key.
        number: The number of the input: equal rows of two inputs are different rows.
    """
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    canonical = [_canonical(quoted(name), kinds[name]) + f" AS {quoted(name)}" for name in (*names, *(keys or ()))]
    rows = frame.selectExpr(*canonical, WEIGHT)
    parts = ", ".join(_hash_parts(quoted(name), kinds[name]) for name in names) or "0"
    identity = [f"xxhash64({seed}, {number}, {parts}) AS {name}" for seed, name in enumerate(IDENTITY, 1)]
    identified = rows.selectExpr("*", *identity)
    own = [quoted(name) for name in names]
    return identified.selectExpr(*own, WEIGHT, *IDENTITY, f"{key_hash(IDENTITY if keys is None else keys)} AS {HASH}")


def _canonical(column: str, kind: DataType) -> str:
    """Return a column with one zero and one NaN, so that equal values have equal bits."""
    if isinstance(kind, FloatType | DoubleType):
        name = kind.typeName()
        return f"if(isnan({column}), cast('NaN' AS {name}), {column} + cast(0 AS {name}))"
    return column


def _hash_parts(column: str, kind: DataType) -> str:
    """Return what of a value is hashed: also which of its parts are NULL, because Spark's hash skips these."""
    if isinstance(kind, ArrayType):
        each = _hash_parts("x", kind.elementType)
        folded = f"aggregate({column}, 0L, (acc, x) -> xxhash64(acc, {each}))"
        return f"isnull({column}), size({column}), {folded}"
    if isinstance(kind, StructType):
        fields = ", ".join(_hash_parts(f"{column}.{quoted(field.name)}", field.dataType) for field in kind.fields)
        return f"isnull({column}), {fields}" if fields else f"isnull({column})"
    return f"isnull({column}), {column}"


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
