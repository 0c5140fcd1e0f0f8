"""The frames of a step: the plan of a query over the changes of that step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.spark.incremental.nodes import Expression, Node, Nodes, items
from boatlift.spark.incremental.query import Flow, Leaf, Linear, Query, Stage, StageResult
from boatlift.spark.incremental.stage_nodes import StageNode

__all__ = ["StepFrames", "after_name", "before_name"]

Change = tuple[Node, Expression]
"""A plan, and the attribute with the weights of its rows."""


def before_name(stage: int, number: int) -> str:
    """Return the name of the channel with the rows of touched keys of a stage's input before the step."""
    return f"{stage}.{number}.before"


def after_name(stage: int, number: int) -> str:
    """Return the name of the channel with the rows of touched keys of a stage's input after the step."""
    return f"{stage}.{number}.after"


@dataclass(frozen=True, slots=True)
class StepFrames:
    """The frames of one step, or of all steps to which the same streams and stages bring something.

    Attributes:
        query: The query.
        stages: The node of each stage.
        nodes: Makes nodes.
        streams: Stream to the change of it, with `_weight`; a stream that brings nothing is left out.
        channels: The names of the channels that have rows.
        channel: Returns the frame of a channel: its columns, and `_weight`.
        first: Whether this is the first step that the view executes: static tables come now.
    """

    query: Query
    stages: Sequence[StageNode]
    nodes: Nodes
    streams: Mapping[str, DataFrame]
    channels: frozenset[str]
    channel: Callable[[str], DataFrame]
    first: bool

    def input(self, stage: Stage, number: int) -> DataFrame | None:
        """Return the change of a stage's input, with the columns that its node takes; None if there is none."""
        change = self._flow(stage.inputs[number])
        return None if change is None else self._columns(change, self.stages[stage.number].columns[number])

    def result(self) -> DataFrame | None:
        """Return the change of the whole result; None if there is none."""
        change = self._flow(self.query.result)
        return None if change is None else self._columns(change, self.nodes.output(self.query.node))

    def _columns(self, change: Change, columns: Sequence[Expression]) -> DataFrame:
        """Return columns, named by their place and in canonical form, and `_weight`.

        They are named so because the columns of a join may have equal names.
        """
        node, weight = change
        named = [self.nodes.alias(column, f"c{place}") for place, column in enumerate(columns)]
        frame = self.nodes.frame_of(self.nodes.project([*named, self.nodes.alias(weight, WEIGHT)], node))
        return frame.selectExpr(*(_canonical(field.name, field.dataType) for field in frame.schema.fields))

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
        """Return the change of a stage's result."""
        if self.stages[stage.number].general:
            return self._difference(stage)
        name = str(stage.number)
        if name not in self.channels:
            return None
        plan, (weight,) = self.nodes.renamed(self.channel(name), self.nodes.output(stage.nodes[0]), [WEIGHT])
        condition = self.nodes.other_condition(stage.nodes[0])
        return (plan if condition is None else self.nodes.filter(condition, plan)), weight

    def _difference(self, stage: Stage) -> Change | None:
        """Return what a stage's nodes give for the touched keys now, less what they gave."""
        beginning = stage.whole and self.first
        names = [name(stage.number, n) for n in range(len(stage.inputs)) for name in (before_name, after_name)]
        if not (beginning or self.channels.intersection(names)):
            return None
        sides = []
        for side, weight in ((before_name, -1), (after_name, 1)):
            if beginning and weight < 0:
                continue  # nothing was given yet, not even the row of no rows
            node = self._applied(stage, side)
            column = self.nodes.alias(self.nodes.long(weight), WEIGHT)
            sides.append((self.nodes.project([*self.nodes.output(stage.nodes[0]), column], node), column.toAttribute()))
        if len(sides) == 1:
            return sides[0]
        return self.nodes.union([side for side, _ in sides]), sides[0][1]

    def _applied(self, stage: Stage, side: Callable[[int, int], str]) -> Node:
        """Return the stage's nodes over the rows of the touched keys at one side of the step."""
        below = [self._rows(stage, number, side(stage.number, number)) for number in range(len(stage.inputs))]
        *upper, last = stage.nodes
        if self.nodes.kind(last) == "Window":
            order = [*map(self.nodes.ascending, stage.keys[0]), *items(last.orderSpec())]
            below = [self._in_order(below[0], order, whole=False)]
        if self.nodes.kind(last) == "Sort":
            node = self._in_order(below[0], items(last.order()), whole=True)
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

    def _rows(self, stage: Stage, number: int, name: str) -> Node:
        """Return the rows of a channel, each as often as its weight says."""
        child = stage.children[number]
        attributes = self.nodes.output(child)
        if name not in self.channels:
            return self.nodes.renamed(self.nodes.frame_of(child).limit(0), attributes, [])[0]
        times = F.explode(F.sequence(F.lit(1), F.col(WEIGHT).cast("int"))).alias("_n")
        repeated = self.channel(name).select(*(f"c{place}" for place in range(len(attributes))), times)
        return self.nodes.renamed(repeated, attributes, [])[0]


def _canonical(name: str, kind: DataType) -> str:
    """Return a column with one zero and one NaN, so that equal values have equal bits."""
    column = quoted(name)
    if isinstance(kind, FloatType | DoubleType):
        type_name = kind.typeName()
        whole = f"if(isnan({column}), cast('NaN' AS {type_name}), {column} + cast(0 AS {type_name}))"
        return f"{whole} AS {column}"
    return column
