"""Which node of a network computes a stage, and the columns that it takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from boatlift.spark.incremental.nodes import Expression, Nodes, items
from boatlift.spark.incremental.nodes import Node as PlanNode
from boatlift.spark.incremental.query import Stage
from boatlift.spark.keyed.arrangement.codec import ArrangementCodec
from boatlift.spark.keyed.arrangement.join import Side
from boatlift.spark.keyed.network.distinct import DistinctNode
from boatlift.spark.keyed.network.join import JoinNode
from boatlift.spark.keyed.network.node import Node
from boatlift.spark.keyed.network.touched import TouchedNode

__all__ = ["StageNode", "stage_node"]

SchemaOf = Callable[[PlanNode, Sequence[Expression]], pa.Schema]
"""Returns the schema of columns over a node, as tasks see them, named by their place."""


@dataclass(frozen=True, slots=True)
class StageNode:
    """The node of a stage.

    Attributes:
        node: The node.
        general: Whether the node gives the rows of touched keys, from which Spark computes the change of the result;
            else it gives the change itself.
        columns: For each input the expressions that are its columns: those of the rows, then those of the key.
        schemas: For each input the schema of these.
    """

    node: Node
    general: bool
    columns: tuple[tuple[Expression, ...], ...]
    schemas: tuple[pa.Schema, ...]


def stage_node(stage: Stage, nodes: Nodes, view: str, schema_of: SchemaOf) -> StageNode:
    """Return the node of a stage: a kernel if there is one, else that of the general form."""
    rows = [nodes.output(child) for child in stage.children]
    if _is_distinct(stage, nodes):
        columns = (stage.keys[0],)
        schemas = (schema_of(stage.children[0], stage.keys[0]),)
        return StageNode(DistinctNode(view, stage.place, schemas[0]), general=False, columns=columns, schemas=schemas)
    columns = tuple((*own, *keys) for own, keys in zip(rows, stage.keys, strict=True))
    schemas = tuple(schema_of(child, each) for child, each in zip(stage.children, columns, strict=True))
    if _is_inner_join(stage, nodes):
        left, right = (
            Side(ArrangementCodec(schema), tuple(range(len(own), len(schema))), tuple(range(len(own))))
            for schema, own in zip(schemas, rows, strict=True)
        )
        return StageNode(JoinNode(view, left, right), general=False, columns=columns, schemas=schemas)
    kept = tuple(pa.schema(list(schema)[: len(own)]) for schema, own in zip(schemas, rows, strict=True))
    node = TouchedNode(view, stage.place, kept, len(stage.keys[0]))
    return StageNode(node, general=True, columns=columns, schemas=schemas)


def _is_inner_join(stage: Stage, nodes: Nodes) -> bool:
    node = stage.nodes[0]
    return nodes.kind(node) == "Join" and str(node.joinType().toString()) == "Inner" and bool(stage.keys[0])


def _is_distinct(stage: Stage, nodes: Nodes) -> bool:
    """Return whether a stage is an aggregate that gives its keys, and nothing else, in their order."""
    node = stage.nodes[0]
    if nodes.kind(node) != "Aggregate" or not stage.keys[0] or not node.subqueries().isEmpty():
        return False
    keys, columns = items(node.groupingExpressions()), items(node.aggregateExpressions())
    return len(keys) == len(columns) == len(stage.keys[0]) and all(
        _same(key, column, nodes) for key, column in zip(keys, columns, strict=True)
    )


def _same(key: Expression, column: Expression, nodes: Nodes) -> bool:
    inner = column.child() if nodes.kind(column) == "Alias" else column
    return bool(key.semanticEquals(inner))
