"""Reading the graph out of a program's identity, as a store has recorded it: without the program, and without Spark.

`engine/program.py` writes the identity. It knows sources, units and sinks; transforms that are fused into a unit have
no name in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex

__all__ = ["recorded_graph"]


def recorded_graph(identity: Mapping[str, Any]) -> RecoveryGraph:
    """Gives sources, units and sinks as the recovery rules see them; an empty graph if nothing was ever claimed."""
    vertices = []
    edges = []
    sources = set()
    for key, about in identity.items():
        what, _, name = key.partition(" ")
        if what == "source":
            sources.add(name)
            vertices.append(Vertex(name, Kind.SOURCE))
        elif what == "sink":
            vertices.append(Vertex(name, Kind.SINK))
            edges.append(Edge(f"{about['reads']}->{name}", about["reads"], name))
        elif what == "processor" and name not in sources:  # a source whose rows are staged as they are is a unit too
            vertices.append(Vertex(name, Kind.STATEFUL if about["keys"] else Kind.STATELESS))
            edges.append(Edge(f"{about['reads']}->{name}", about["reads"], name))
    return RecoveryGraph(tuple(vertices), tuple(edges))
