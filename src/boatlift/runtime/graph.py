"""The dataflow as the recovery rules see it: vertices and edges only."""

from __future__ import annotations

from boatlift.dataflow import Aggregate, Plan, SinkProcessor, SourceProcessor
from boatlift.dataflow.processors import upstream_of
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex

__all__ = ["recovery_graph"]


def recovery_graph(plan: Plan) -> RecoveryGraph:
    """Gives every processor's vertex and every edge, for the solver."""
    vertices = []
    edges = []
    for name, processor in plan.processors.items():
        match processor:
            case SourceProcessor():
                kind = Kind.SOURCE
            case SinkProcessor():
                kind = Kind.SINK
            case Aggregate():
                kind = Kind.STATEFUL
            case _:
                kind = Kind.STATELESS
        vertices.append(Vertex(name, kind))
        upstream = upstream_of(processor)
        if upstream is not None:
            edges.append(Edge(f"{upstream}->{name}", upstream, name))
    return RecoveryGraph(tuple(vertices), tuple(edges))
