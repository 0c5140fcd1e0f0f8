"""The release rule if fixed times do not follow from inputs alone (design, section 4, question 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from boatlift.recovery.available import Every
from boatlift.recovery.graph import Kind, RecoveryGraph
from boatlift.recovery.knowledge import Knowledge
from boatlift.recovery.solver import Solving, solve
from boatlift.times import AnyFrontier, all_times


def at_most(graph: RecoveryGraph, knowledge: Mapping[str, Knowledge]) -> Mapping[str, AnyFrontier]:
    """Return an upper bound on the releasable frontier of each sink, assuming that no other sink limits it.

    Law: `largest` lies within it, or is the frontier that the sink holds.
    """
    solving = Solving(graph, dict(knowledge), graph.vertices.keys())
    sinks = [name for name, vertex in graph.vertices.items() if vertex.kind is Kind.SINK]
    for sink in sinks:
        everything = all_times(graph.vertices[sink].domain)
        solving.available[sink] = Every(knowledge[sink].checkpoints[0], everything)
        solving.f[sink] = everything
    solving.run()
    return {sink: solving.f[sink] for sink in sinks}


def largest(
    graph: RecoveryGraph, knowledge: Mapping[str, Knowledge], sink: str, prefixes: Sequence[AnyFrontier]
) -> AnyFrontier:
    """Return the largest frontier that a sink may hold: the sink is solved for like a processor with checkpoints.

    Args:
        graph: Processors and edges.
        knowledge: Processor to knowledge.
        sink: The sink.
        prefixes: The frontier that the sink holds, and the candidates, each within the next.
    """
    chooses = replace(knowledge[sink], checkpoints=prefixes, completed=prefixes[-1])
    return solve(graph, {**knowledge, sink: chooses}, graph.vertices.keys()).frontier[sink]
