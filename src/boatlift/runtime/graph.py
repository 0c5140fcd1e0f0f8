"""The dataflow as the recovery rules see it: vertices and edges, and what the log and the sinks hold of each."""

from __future__ import annotations

from collections.abc import Mapping

from boatlift.dataflow import Aggregate, Plan, SinkProcessor, SourceProcessor
from boatlift.dataflow.processors import upstream_of
from boatlift.recovery import Edge, Kind, Monitor, RecoveryGraph, Vertex
from boatlift.storage.history import History
from boatlift.times import Frontier

__all__ = ["monitor_of", "recovery_graph"]


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


def monitor_of(graph: RecoveryGraph, history: History, held: Mapping[str, int]) -> Monitor:
    """Gives a monitor that knows all that is durable.

    Args:
        graph: The dataflow.
        history: What the log says.
        held: Sink to the last time it holds, -1 for none.
    """
    monitor = Monitor(graph)
    for name, vertex in graph.vertices.items():
        if vertex.kind is Kind.SOURCE:
            monitor.durable_input_below(name, Frontier.up_to(history.cursors.get(name, (-1, {}))[0]))
            for time in history.inputs.get(name, {}):
                monitor.durable_input(name, time)
    for unit, checkpoints in history.checkpoints.items():
        for time in checkpoints:
            monitor.durable_checkpoint(unit, Frontier.up_to(time))
    for sink, time in held.items():
        monitor.committed(sink, Frontier.up_to(time))
    return monitor
