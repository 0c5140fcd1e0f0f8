"""Builds the processors of a program, and fills in their recorded choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from boatlift.errors import contradictory
from boatlift.recovery import Kind, Monitor
from boatlift.runtime.machine.common_steps import sources_that_meet
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.in_flight import intervals_of
from boatlift.runtime.machine.kinds.arrival import ArrivalOrdered
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.epochs import EpochOrdered, Head
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.runtime.machine.kinds.sink import SinkProcessor
from boatlift.runtime.machine.kinds.source import SourceProcessor
from boatlift.runtime.machine.program import Program
from boatlift.runtime.machine.program_check import refuse_unfit, refuse_unfit_sinks
from boatlift.storage.records.facts import Determinant
from boatlift.storage.records.live import LiveRecords
from boatlift.times import AnyFrontier, ArrivalOrder, EpochBoundaries, Feedback, frontier_of, last_epoch

__all__ = ["build", "monitor_of"]


def monitor_of(program: Program, records: LiveRecords, held: Mapping[str, AnyFrontier]) -> Monitor:
    """Return a monitor that knows the durable facts, for a command that drives nothing.

    Args:
        program: The program; the records of choices in it are filled in.
        records: The durable facts.
        held: Sink to the times that it holds.

    Raises:
        DataError: `[PROGRAM_CHANGED]`, `[CORRUPT]`.
    """
    build(program, records)
    refuse_unfit_sinks(program, held)
    monitor = Monitor(program.graph, program.orders)
    DurableFacts(program.graph, monitor, records)
    for sink, frontier in held.items():
        monitor.committed(sink, frontier)
    return monitor


def build(
    program: Program,
    records: LiveRecords,
    clock_of: Callable[[Any], int | None] = lambda _payload: None,
    size_of: Callable[[Any], int] = lambda _payload: 0,
) -> dict[str, MachineProcessor]:
    """Return all processors with their neighbours.

    Senders come before receivers, except along the edges that close a cycle.

    Args:
        program: The program.
        records: The durable facts.
        clock_of, size_of: As `StateMachine` has them.

    Raises:
        DataError: `[PROGRAM_CHANGED]` a durable fact is of a processor or an edge that the program does not have;
            `[CORRUPT]` no execution makes such choices.
    """
    graph = program.graph
    refuse_unfit(program, records)
    for name, order in program.orders.items():
        order.begin_after(frontier_of(order.domain, records.collected.choices.get(name, ())))
        _fill_order(name, order, records.determinants.get(name, {}), records.states.get(name, ()))
    for name in (name for name, vertex in graph.vertices.items() if vertex.divides):
        determinants, collected = (
            records.determinants.get(name, {}),
            last_epoch(records.collected.choices.get(name, ())),
        )
        known = _without_gap(name, determinants, collected)
        if name in program.cuts:
            _fill_cuts(name, program.cuts[name], [(number, determinants[number].taken) for number in known], collected)
    processors = {name: _processor(program, name, clock_of) for name in graph.order}
    for p in processors.values():
        p.count_bytes(size_of)
    intervals = intervals_of(program)
    for edge in graph.edges.values():
        if program.logs(edge):
            processors[edge.source].logged.add(edge.name)
        processors[edge.source].intervals[edge.name] = intervals[edge.name]
        processors[edge.target].senders.append((edge, processors[edge.source]))
        processors[edge.source].receivers.append((edge, processors[edge.target]))
    sources = {name: p for name, p in processors.items() if isinstance(p, SourceProcessor)}
    for group in sources_that_meet(graph):
        for name in group:
            sources[name].partners = [sources[other] for other in sorted(group - {name})]
    return processors


def _processor(program: Program, name: str, clock_of: Callable[[Any], int | None]) -> MachineProcessor:
    graph, durability = program.graph, program.durability(name)
    vertex, inputs, outputs = graph.vertices[name], graph.inputs[name], graph.outputs[name]
    if vertex.kind is Kind.SOURCE:
        return SourceProcessor(vertex, durability, outputs)
    if vertex.kind is Kind.SINK:
        return SinkProcessor(vertex, durability, inputs)
    if name in program.orders:
        return ArrivalOrdered(vertex, durability, inputs, outputs, program.orders[name])
    if name in program.cuts:
        return BatchEpochs(vertex, durability, inputs, outputs, program.cuts[name], clock_of)
    head = any(isinstance(edge.projection, Feedback) for edge in inputs)
    return (Head if head else EpochOrdered)(vertex, durability, inputs, outputs)


def _fill_order(
    name: str, order: ArrivalOrder, determinants: Mapping[Any, Determinant], points: Iterable[Iterable[Any]]
) -> None:
    """Fill in the recorded order, after its part that is collected; it must reach the last checkpoint.

    Raises:
        DataError: `[CORRUPT]`.
    """
    while (fact := determinants.get(len(order))) is not None:
        if fact.taken not in order.domain.edges:
            raise contradictory(name, f"event {len(order)} took from {fact.taken!r}")
        order.take(str(fact.taken))
    for point in points:
        events = sum(n + 1 for _, n in point)
        if events > len(order) or (events >= order.start and order.prefix(events) != frontier_of(order.domain, point)):
            raise contradictory(name, f"a state at {point}, though it took {order.prefix(len(order))}")


def _fill_cuts(name: str, cuts: EpochBoundaries, ends: Iterable[tuple[int, Any]], collected: int) -> None:
    """Fill in the recorded ends of epochs: that of the last epoch that is collected, and all after it.

    Raises:
        DataError: `[CORRUPT]`.
    """
    for number, end in ends:
        before = -1 if number == collected else cuts.end(number - 1)
        if not isinstance(end, int) or end <= before:
            raise contradictory(name, f"{end!r} as the end of epoch {number}, after {before}")
        if number == collected:
            cuts.begin_after(number, end)
        else:
            cuts.add(end)


def _without_gap(name: str, determinants: Mapping[Any, Determinant], collected: int) -> list[int]:
    """Return the epochs whose choices are recorded: the last that is collected, and all after it.

    Raises:
        DataError: `[CORRUPT]`.
    """
    numbers, first = sorted(determinants), max(collected, 0)
    if numbers != list(range(first, first + len(numbers))) or (collected >= 0 and not numbers):
        raise contradictory(name, f"it chose at {numbers[:3]}…, though everything up to {collected} is collected")
    return numbers
