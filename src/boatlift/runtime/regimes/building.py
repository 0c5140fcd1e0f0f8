"""Makes the processors of a program, and fills in the choices that are known of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from boatlift.errors import DataError
from boatlift.recovery import Kind
from boatlift.runtime.regimes.coarse import CoarseEpochs
from boatlift.runtime.regimes.ends import SinkEnd, SourceEnd
from boatlift.runtime.regimes.ordered import Ordered
from boatlift.runtime.regimes.processor import Processor
from boatlift.runtime.regimes.program import Program
from boatlift.runtime.regimes.structured import Head, Structured
from boatlift.storage.facts import Chosen
from boatlift.storage.standing import Standing
from boatlift.times import Cuts, Feedback, Order, frontier_of

__all__ = ["build"]


def build(program: Program, standing: Standing) -> dict[str, Processor]:
    """Gives all processors, senders before receivers as far as there is no cycle, with their neighbours.

    Raises:
        DataError: `[PROGRAM_CHANGED]` something durable is of a processor or an edge that the program has not.
    """
    graph = program.graph
    _refuse_unknown(program, standing)
    for name, order in program.orders.items():
        order.begin_after(frontier_of(order.domain, standing.collected.choices.get(name, ())))
        _fill_order(order, standing.chosen.get(name, {}), standing.states.get(name, ()))
    for name, cuts in program.cuts.items():
        _fill_cuts(cuts, standing.chosen.get(name, {}))
    processors = {name: _made(program, name) for name in graph.order}
    for edge in graph.edges.values():
        processors[edge.target].senders.append((edge, processors[edge.source]))
        processors[edge.source].receivers.append((edge, processors[edge.target]))
    return processors


def _made(program: Program, name: str) -> Processor:
    graph, regime = program.graph, program.regime(name)
    vertex, inputs, outputs = graph.vertices[name], graph.inputs[name], graph.outputs[name]
    if vertex.kind is Kind.SOURCE:
        return SourceEnd(vertex, regime, outputs)
    if vertex.kind is Kind.SINK:
        return SinkEnd(vertex, regime, inputs)
    if name in program.orders:
        return Ordered(vertex, regime, inputs, outputs, program.orders[name])
    if name in program.cuts:
        return CoarseEpochs(vertex, regime, inputs, outputs, program.cuts[name])
    head = any(isinstance(edge.projection, Feedback) for edge in inputs)
    return (Head if head else Structured)(vertex, regime, inputs, outputs)


def _refuse_unknown(program: Program, standing: Standing) -> None:
    known = {*standing.chosen, *standing.ended, *standing.results, *standing.states, *standing.taken}
    unknown = sorted((known - program.graph.vertices.keys()) | (standing.sent.keys() - program.graph.edges.keys()))
    if unknown:
        raise DataError(
            "PROGRAM_CHANGED",
            f"what is durable is of another program: this one has no {', '.join(unknown)}: run that one",
        )


def _fill_order(order: Order, chosen: Mapping[Any, Chosen], points: Iterable[Iterable[Any]]) -> None:
    """Takes what was taken; where that is no longer known, in any order that has the same counts at the points that are."""
    counts = dict.fromkeys(order.domain.edges, 0)
    counts.update((edge, n + 1) for edge, n in order.prefix(len(order)).maximal)
    reached = sorted(({edge: n + 1 for edge, n in point} for point in points), key=lambda point: sum(point.values()))
    for point in reached:
        events = range(len(order), sum(point.values()))
        known = [str(chosen[n].taken) for n in events if n in chosen]
        unknown = [edge for edge, count in point.items() for _ in range(count - counts[edge] - known.count(edge))]
        for n in events:
            order.take(str(chosen[n].taken) if n in chosen else unknown.pop())
        counts.update(point)
    while len(order) in chosen:
        order.take(str(chosen[len(order)].taken))


def _fill_cuts(cuts: Cuts, chosen: Mapping[Any, Chosen]) -> None:
    """Takes the ends that are known; those before them were somewhere."""
    for number in sorted(chosen):
        end = int(chosen[number].taken or 0)
        if not cuts.ends:
            for before in range(number):
                cuts.add(end - number + before)
        cuts.add(end)
