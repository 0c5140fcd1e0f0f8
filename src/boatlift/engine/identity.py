"""Reading the graph out of a program's identity, as a store has recorded it: without the program, and without Spark.

`engine/program.py` writes the identity. It knows sources, units and sinks; transforms that are fused into a unit have
no name in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.dataflow import Lazy
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.regimes import Program, Regime

__all__ = ["recorded_program"]


def recorded_program(identity: Mapping[str, Any]) -> Program:
    """Gives sources, units and sinks as the machine takes them; an empty program if nothing was ever claimed."""
    vertices = []
    edges = []
    regimes: dict[str, Regime] = {}
    for key, about in identity.items():
        what, _, name = key.partition(" ")
        if what == "source":
            vertices.append(Vertex(name, Kind.SOURCE))
            continue
        kind = Kind.SINK if what == "sink" else Kind.STATEFUL if about["keys"] else Kind.STATELESS
        vertices.append(Vertex(name, kind))
        regimes |= {name: Regime(Lazy())} if kind is Kind.STATEFUL else {}
        edges.append(Edge(f"{about['reads']}->{name}", about["reads"], name))
    return Program(RecoveryGraph(tuple(vertices), tuple(edges)), regimes)
