"""The dataflow as the state machine takes it: sources, units and sinks, and the regime of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.dataflow import Plan
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.regimes import Program, Regime
from boatlift.storage.facts import last_epoch
from boatlift.storage.history import History

__all__ = ["edge_name", "last_closed", "program_of", "source_record"]


def program_of(plan: Plan) -> Program:
    """Gives what the machine drives."""
    vertices = [Vertex(name, Kind.SOURCE) for name in plan.sources]
    vertices += [
        Vertex(name, Kind.STATELESS if unit.aggregate is None else Kind.STATEFUL) for name, unit in plan.units.items()
    ]
    vertices += [Vertex(name, Kind.SINK) for name in plan.sinks]
    edges = [_edge(unit.root, name) for name, unit in plan.units.items()]
    edges += [_edge(name, sink.name) for name, unit in plan.units.items() for sink in unit.sinks]
    regimes = {name: Regime(unit.policy) for name, unit in plan.units.items()}
    return Program(RecoveryGraph(tuple(vertices), tuple(edges)), regimes)


def edge_name(sender: str, receiver: str) -> str:
    """Names an edge."""
    return f"{sender}->{receiver}"


def source_record(position: Mapping[str, Any], clock: int, seed: int) -> dict[str, Any]:
    """Gives what a source chooses at a time, and sends: its position, and the clock and seed of whoever executes it."""
    return {"position": dict(position), "clock": clock, "seed": seed}


def last_closed(history: History, source: str) -> int:
    """Gives the last time that a source has closed, -1 if it has closed none."""
    chosen = history.standing.chosen.get(source, {})
    return max(last_epoch(chosen), history.cursors.get(source, (-1, {}))[0])


def _edge(sender: str, receiver: str) -> Edge:
    return Edge(edge_name(sender, receiver), sender, receiver)
