"""What may leave as far as eager processors go, and those that take as it comes: their own must be durable before anything of it is seen (design, section 2).

What is eager is never executed again once it has been seen. The release rule alone would let go what is deterministic: it could be
repeated. And of who keeps no state it has all frontiers at hand; but where one took its inputs as they came, a frontier means nothing without the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import count
from operator import and_
from typing import Any

from boatlift.dataflow import Eager
from boatlift.recovery import Kind, RecoveryGraph
from boatlift.runtime.regimes.durable import DurableFacts
from boatlift.runtime.regimes.ordered import Ordered
from boatlift.runtime.regimes.processor import Processor
from boatlift.times import AnyFrontier, all_times

__all__ = ["Leaving"]


class Leaving:
    """Gives what of each sink rests on nothing eager, and on no order, that is still on its way to the store.

    Args:
        graph: Processors and edges.
        processors: Where they are.
        durable: What is on its way.
    """

    def __init__(self, graph: RecoveryGraph, processors: Mapping[str, Processor], durable: DurableFacts) -> None:
        self._graph, self._durable = graph, durable
        self._eager = [p for p in processors.values() if isinstance(p.regime.policy, Eager)]
        self._ordered = [p for p in processors.values() if isinstance(p, Ordered) and p.stateless and p.regime.recorded]
        self._found: Mapping[str, AnyFrontier] = {}
        self._known: tuple[Any, ...] = ()

    def limit(self, sink: str) -> AnyFrontier | None:
        """Gives the times that a sink may be given; None if nothing forbids any."""
        if not (self._eager or self._ordered):
            return None
        now = (self._durable.version, *(p.done for p in (*self._eager, *self._ordered)))
        if now != self._known:
            self._known = now
            self._found = self._reached()
        return self._found[sink]

    def _reached(self) -> Mapping[str, AnyFrontier]:
        """The greatest fixed point: a time of a processor stands if what it takes does, and of an eager one its own things."""
        vertices = self._graph.vertices
        secured = self._durable.secured(p.name for p in self._eager)
        own = {p.name: p.done & secured[p.name] for p in self._eager}
        for each in self._ordered:
            chosen = self._durable.standing.chosen.get(each.name, {})
            durable = next(number for number in count(each.order.start) if number not in chosen)
            own[each.name] = own.get(each.name, each.done) & each.order.prefix(durable)
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
