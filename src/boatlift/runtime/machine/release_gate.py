"""The release gate.

Messages and states of eager processors are durable before a sink shows anything of them (design, section 2).

So a step of an eager processor is never executed again once it has been seen. The release rule alone would let a
deterministic step go: the step could be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any

from boatlift.dataflow import Eager
from boatlift.recovery import Kind, RecoveryGraph
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.times import AnyFrontier, all_times

__all__ = ["ReleaseGate"]


class ReleaseGate:
    """The times of each sink without those that rest on an eager processor's message or state on its way to the store.

    Args:
        graph: Processors and edges.
        processors: All processors.
        durable: The facts on their way.
    """

    def __init__(self, graph: RecoveryGraph, processors: Mapping[str, MachineProcessor], durable: DurableFacts) -> None:
        self._graph, self._durable = graph, durable
        self._eager = [p for p in processors.values() if isinstance(p.durability.policy, Eager)]
        self._found: Mapping[str, AnyFrontier] = {}
        self._known: tuple[Any, ...] = ()

    def limit(self, sink: str) -> AnyFrontier | None:
        """Return the times that may leave to a sink; None if the program has no eager processor."""
        if not self._eager:
            return None
        now = (self._durable.version, *(p.done for p in self._eager))
        if now != self._known:
            self._known = now
            self._found = self._reached()
        return self._found[sink]

    def _reached(self) -> Mapping[str, AnyFrontier]:
        """Return the greatest fixed point.

        A time passes if its inputs do and, of an eager processor, its own messages and state are durable.
        """
        vertices = self._graph.vertices
        secured = self._durable.secured(p.name for p in self._eager)
        own = {p.name: p.done & secured[p.name] for p in self._eager}
        reached: dict[str, AnyFrontier] = {p: all_times(vertex.domain) for p, vertex in vertices.items()}
        changed = True
        while changed:
            changed = False
            for p in self._graph.order:
                if vertices[p].kind is Kind.SOURCE:
                    continue
                inputs = [edge.projection(reached[edge.source]) for edge in self._graph.inputs[p]]
                now = reduce(and_, inputs, own.get(p, reached[p]))
                if now != reached[p]:
                    reached[p], changed = now & reached[p], self._graph.cyclic
        return reached
