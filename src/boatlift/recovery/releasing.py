"""Which outputs may leave, where that does not follow from inputs alone (design, section 4, question 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from boatlift.recovery.available import Every
from boatlift.recovery.graph import Kind, RecoveryGraph
from boatlift.recovery.knowledge import Knowledge
from boatlift.recovery.solver import Solving, solve
from boatlift.times import AnyFrontier, all_times

__all__ = ["at_most", "largest"]


def at_most(graph: RecoveryGraph, knowledge: Mapping[str, Knowledge]) -> Mapping[str, AnyFrontier]:
    """Gives, for each sink, a bound on what it may be given: what it could hold if all held whatever suits the others.

    Law: `largest` lies within it, or is what the sink holds.
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
    """Gives the largest that a sink may hold: it is one more processor that chooses, and everything fails.

    Args:
        graph: Processors and edges.
        knowledge: What is known of each.
        sink: Which.
        prefixes: What it holds, and what it could be given besides, each within the next.
    """
    chooses = replace(knowledge[sink], checkpoints=prefixes, completed=prefixes[-1])
    return solve(graph, {**knowledge, sink: chooses}, graph.vertices.keys()).frontier[sink]
