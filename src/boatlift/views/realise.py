"""The frames of a step: the plan of a query over the changes of that step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, DoubleType, FloatType, StructField, StructType

from boatlift.dataflow.columns import WEIGHT, quoted
from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node
from boatlift.views.flows import Flow, Leaf, Linear, StageResult
from boatlift.views.query import Query, Stage
from boatlift.views.view_job import ChannelInput, FrameInput, channel_name

WeightedPlan = tuple[Node, Expression]
"""A plan, and the attribute with the weights of its rows."""

_BEFORE, _AFTER = 0, 1

Tried = Callable[[Expression], Sequence[Expression]]
"""Makes the columns of an input, given the weight of a row."""


@dataclass(frozen=True, slots=True)
class StepFrames:
    """The frames of one step, or of all steps with rows from the same streams and stages."""

    query: Query
    general: frozenset[int]
    """The numbers of the stages in general form."""
    nodes: CatalystPlan
    streams: Mapping[str, DataFrame]
    """Stream to its change, with `_weight`; streams without rows are absent."""
    channels: frozenset[str]
    """The names of the channels with rows."""
    channel: Callable[[str, StructType], DataFrame]
    """Returns the frame of a channel with given columns `c0`, `c1`, … and `_weight`."""
    first: bool
    """Whether this is the view's first step, which reads the static tables."""
    divided: bool = True
    """Whether the rows are in several partitions."""

    def of(self, given: FrameInput | ChannelInput, tried: Tried | None = None) -> DataFrame | None:
        """Return the rows of an input of a job, in canonical form and with `_weight`; None if there are none.

        Columns are named by position, because columns of a join may have equal names.
        """
        if isinstance(given, ChannelInput):
            if given.name not in self.channels:
                return None
            kept = from_arrow_schema(given.whole).fields
            columns = [StructField(f"c{place}", field.dataType) for place, field in enumerate(kept)]
            chosen = (f"c{column} AS c{place}" for place, column in enumerate(given.columns))
            return self.channel(given.name, StructType(columns)).selectExpr(*chosen, WEIGHT)
        change = self._flow(given.flow)
        if change is None:
            return None
        node, weight = change
        values = given.columns if tried is None else tried(weight)
        named = [self.nodes.alias(value, f"c{place}") for place, value in enumerate(values)]
        frame = self.nodes.frame_of(self.nodes.project([*named, self.nodes.alias(weight, WEIGHT)], node))
        return frame.selectExpr(*(_canonical(field.name, field.dataType) for field in frame.schema.fields))

    def _flow(self, flow: Flow) -> WeightedPlan | None:
        match flow:
            case Leaf(read, node):
                if read is None:
                    if not self.first:
                        return None
                    one = self.nodes.alias(self.nodes.long(1), WEIGHT)
                    return self.nodes.project([*self.nodes.output(node), one], node), one.toAttribute()
                if read not in self.streams:
                    return None
                plan, (weight,) = self.nodes.renamed(self.streams[read], self.nodes.output(node), [WEIGHT])
                return plan, weight
            case Linear(node, inputs):
                return self._linear(node, [self._flow(each) for each in inputs])
            case StageResult(number):
                return self._stage(self.query.stages[number])

    def _linear(self, node: Node, inputs: Sequence[WeightedPlan | None]) -> WeightedPlan | None:
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

    def _union(self, node: Node, inputs: Sequence[WeightedPlan | None]) -> WeightedPlan:
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

    def _stage(self, stage: Stage) -> WeightedPlan | None:
        if stage.number in self.general:
            return self._difference(stage)
        name = channel_name(stage.number)
        if name not in self.channels:
            return None
        plan, (weight,) = self.nodes.renamed(self._rows_of(name, stage.output), stage.output, [WEIGHT])
        return (plan if stage.condition is None else self.nodes.filter(stage.condition, plan)), weight

    def _difference(self, stage: Stage) -> WeightedPlan | None:
        """Return the result of a stage's nodes for the affected keys after the step, minus that before it."""
        beginning = stage.whole and self.first
        names = [channel_name(stage.number, place) for place in range(2 * len(stage.inputs))]
        if not (beginning or self.channels.intersection(names)):
            return None
        sides = []
        for side, weight in ((_BEFORE, -1), (_AFTER, 1)):
            if beginning and weight < 0:
                continue  # the view has no result yet, not even the row for no rows
            node = self._applied(stage, side)
            column = self.nodes.alias(self.nodes.long(weight), WEIGHT)
            sides.append((self.nodes.project([*stage.output, column], node), column.toAttribute()))
        if len(sides) == 1:
            return sides[0]
        return self.nodes.union([side for side, _ in sides]), sides[0][1]

    def _applied(self, stage: Stage, side: int) -> Node:
        """Return the stage's nodes over the rows of the affected keys, before or after the step."""
        below = [self._rows(stage, number, side) for number in range(len(stage.inputs))]
        *upper, last = stage.nodes
        if self.nodes.kind(last) == "Window":
            below = [self._by_key(below[0], stage.keys[0], items(last.orderSpec()))]
        if self.nodes.kind(last) == "Aggregate":  # `first`, `collect_list` and sums of doubles depend on the order
            below = [self._by_key(below[0], stage.keys[0], ()), *below[1:]]
        if self.nodes.kind(last) == "Sort":
            node = self._in_order(below[0], items(last.order()), whole=True)
        elif len(below) > len(self.nodes.children(last)):
            node = self.nodes.with_subqueries(last, below[0], below[1:])
        else:
            node = self.nodes.over(last, below)
        for each in reversed(upper):
            node = self.nodes.over(each, [node])
        return node

    def _by_key(self, node: Node, keys: Sequence[Expression], order: Sequence[Expression]) -> Node:
        """Return rows with the rows of a key in one partition, consecutive and sorted."""
        child = self.nodes.divided(node, keys) if self.divided else node
        return self._in_order(child, [*map(self.nodes.ascending, keys), *order], whole=False)

    def _in_order(self, node: Node, order: Sequence[Expression], *, whole: bool) -> Node:
        """Return sorted rows; ties are broken by their columns."""
        content = [
            self.nodes.ascending(each)
            for each in self.nodes.output(node)  # maps and variants have no order
            if "map<" not in str(each.dataType().catalogString()) and str(each.dataType().typeName()) != "variant"
        ]
        return self.nodes.sort(node, [*order, *content], whole=whole)

    def _rows(self, stage: Stage, number: int, side: int) -> Node:
        """Return an input's rows of the affected keys, before or after the step, repeated by their weight."""
        child, name = stage.children[number], channel_name(stage.number, 2 * number + side)
        attributes = self.nodes.output(child)
        if name not in self.channels:
            return self.nodes.renamed(self.nodes.frame_of(child).limit(0), attributes, [])[0]
        times = F.explode(F.sequence(F.lit(1), F.col(WEIGHT).cast("int"))).alias("_n")
        columns = (f"c{place}" for place in range(len(attributes)))
        return self.nodes.renamed(self._rows_of(name, attributes).select(*columns, times), attributes, [])[0]

    def _rows_of(self, name: str, attributes: Sequence[Expression]) -> DataFrame:
        """Return the rows of a channel, with the nullability of the query's attributes.

        The nodes above refer to these attributes. If a column could be NULL and its attribute could not, the optimiser
        would change the type of a struct of it, and casts of that struct would become invalid.
        """
        return self.channel(name, StructType([self.nodes.field(f"c{n}", each) for n, each in enumerate(attributes)]))


def _canonical(name: str, kind: DataType) -> str:
    """Return a column with one zero and one NaN, so that equal values have equal bits."""
    column = quoted(name)
    if isinstance(kind, FloatType | DoubleType):
        type_name = kind.typeName()
        whole = f"if(isnan({column}), cast('NaN' AS {type_name}), {column} + cast(0 AS {type_name}))"
        return f"{whole} AS {column}"
    return column
