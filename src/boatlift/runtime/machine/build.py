"""Builds the processors of a program, fills in their recorded determinants, and refuses facts of another program.

Sources that meet in a processor have common steps (Feldera, dist-design: steps; views, "Steps of several sources"). A
step of the processor has the input of all of them, which may be none of some. So an idle source stops no other, and
new input of one source is one step of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from boatlift.errors import DataError, contradictory
from boatlift.recovery import Kind, Monitor, RecoveryGraph
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.endpoints import SinkProcessor, SourceProcessor
from boatlift.runtime.machine.kinds.gathered import Gathered
from boatlift.runtime.machine.kinds.ordered import ArrivalOrdered, EpochOrdered, Head
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.runtime.machine.program import Program
from boatlift.runtime.machine.steps import intervals_of
from boatlift.storage.records.facts import Determinant
from boatlift.storage.records.live import LiveRecords
from boatlift.times import (
    AnyFrontier,
    ArrivalOrder,
    Boundaries,
    EpochBoundaries,
    Feedback,
    GatheredBoundaries,
    Loop,
    Sequence,
    frontier_of,
    last_epoch,
)


def sources_that_meet(graph: RecoveryGraph, together: Iterable[tuple[str, ...]] = ()) -> list[frozenset[str]]:
    """Return the sets of sources with common steps: two or more each, and no source in two of them.

    Two sources have common steps if a processor takes the messages of both at their own times, if sinks behind both are
    shown together, or if they share a partner. A processor in arrival order takes each message at a time of its own:
    there, and downstream of it, sources do not meet. Nor do they where messages are gathered.

    Args:
        together: The sinks of each group that is shown together.
    """
    groups: list[frozenset[str]] = []
    above: dict[str, frozenset[str]] = {}
    for name in graph.order:
        vertex = graph.vertices[name]
        # The edge that closes a loop comes from a processor downstream, which has no other sources above it.
        senders = [above.get(edge.source, frozenset()) for edge in graph.inputs[name]]
        if vertex.kind is Kind.SOURCE:
            above[name] = frozenset({name})
        elif vertex.gathered or not vertex.notified:
            above[name] = frozenset()
        else:
            above[name] = frozenset().union(*senders)
    sinks = [frozenset().union(*map(above.__getitem__, group)) for group in together]
    for common in (each for each in (*above.values(), *sinks) if len(each) > 1):
        meeting = [group for group in groups if group & common]
        groups = [group for group in groups if not group & common]
        groups.append(common.union(*meeting))
    return groups


def refuse_unfit(program: Program, records: LiveRecords) -> None:
    """Refuse facts that this program cannot have made.

    Raises:
        DataError: `[PROGRAM_CHANGED]`.
    """
    vertices, edges, collected = program.graph.vertices, program.graph.edges, records.collected
    known = {*records.determinants, *records.ended, *records.results, *records.states, *records.taken}
    known |= {*collected.states, *collected.choices}
    strange = (known - vertices.keys()) | ({*records.sent, *collected.messages} - edges.keys())
    inputs = {name: {e.name: vertices[e.source].domain for e in program.graph.inputs[name]} for name in vertices}
    for name in vertices.keys() & known:
        domain, kept = vertices[name].domain, [*records.states.get(name, ()), *records.taken.get(name, ())]
        if kept and vertices[name].kind is not Kind.STATEFUL:
            strange.add(f"{name} with state")
        if records.ended.get(name) and not isinstance(domain, Loop):
            strange.add(f"{name} with iterations")
        times = [*records.taken.get(name, ()), *(t for f in records.states.get(name, ()) for t in f)]
        times += [*collected.states.get(name, ()), *collected.choices.get(name, ())]
        taken = records.taken.get(name, {}).values()
        times += [time for fact in taken for time in fact.frontier]
        messages = [(edge, time) for fact in taken for edge, time, _ in fact.messages]
        if not all(edge in inputs[name] and _is_time(inputs[name][edge], time) for edge, time in messages):
            strange.add(f"{name} with such inputs")
        events = [*records.determinants.get(name, ()), *records.results.get(name, ())]
        numbered = all(isinstance(n, int) if isinstance(domain, Sequence) else _is_time(domain, n) for n in events)
        if not numbered or not all(_is_time(domain, time) for time in times):
            strange.add(f"{name} with such times")
    for edge in edges.keys() & {*records.sent, *collected.messages}:
        times = [*records.sent.get(edge, ()), *collected.messages.get(edge, ())]
        if not all(_is_time(vertices[edges[edge].source].domain, time) for time in times):
            strange.add(f"{edge} with such times")
    _refuse(strange)


def refuse_unfit_sinks(program: Program, sinks: Iterable[str]) -> None:
    """Refuse sinks that this program does not have.

    Raises:
        DataError: `[PROGRAM_CHANGED]`.
    """
    known = {name for name, vertex in program.graph.vertices.items() if vertex.kind is Kind.SINK}
    _refuse({f"sink {name}" for name in sinks if name not in known})


def _refuse(strange: Iterable[str]) -> None:
    if strange:
        raise DataError(
            "PROGRAM_CHANGED",
            f"the store is of another program: this one has no {', '.join(sorted(strange))}: run that one",
        )


def _is_time(domain: Any, time: Any) -> bool:
    """Return whether a time could be one of a domain."""
    if isinstance(domain, Sequence):
        return isinstance(time, tuple) and len(time) == 2 and time[0] in domain.edges
    if isinstance(domain, Loop):
        return isinstance(time, tuple) and len(time) == domain.depth + 1 and all(isinstance(n, int) for n in time)
    return isinstance(time, int)


def monitor_of(program: Program, records: LiveRecords, held: Mapping[str, AnyFrontier]) -> Monitor:
    """Return a monitor that knows the durable facts, for a command that drives nothing.

    Args:
        program: The program; its arrival orders and epoch boundaries are filled in.
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

    Raises:
        DataError: `[PROGRAM_CHANGED]` a durable fact is of a processor or an edge that the program does not have;
            `[CORRUPT]` no execution has such determinants.
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
    for members in program.groups:
        group = tuple(p for name in members if isinstance(p := processors[name], SinkProcessor))
        for sink in group:
            sink.group = group
    for meeting in sources_that_meet(graph, program.groups):
        for name in meeting:
            sources[name].partners = [sources[other] for other in sorted(meeting - {name})]
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
    match program.cuts.get(name):
        case EpochBoundaries() as cuts:
            return BatchEpochs(vertex, durability, inputs, outputs, cuts, clock_of)
        case GatheredBoundaries() as ends:
            return Gathered(vertex, durability, inputs, outputs, ends)
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


def _fill_cuts(name: str, cuts: Boundaries, ends: Iterable[tuple[int, Any]], collected: int) -> None:
    """Fill in the recorded ends of epochs: of the last collected epoch, and of all after it.

    Raises:
        DataError: `[CORRUPT]`.
    """
    for number, end in ends:
        try:
            if number == collected:
                cuts.begin_after(number, end)
            else:
                cuts.add(end)
        except (TypeError, ValueError) as error:
            raise contradictory(name, f"{end!r} as the end of epoch {number}: {error}") from error


def _without_gap(name: str, determinants: Mapping[Any, Determinant], collected: int) -> list[int]:
    """Return the epochs with recorded determinants: the last that is collected, and all after it.

    Raises:
        DataError: `[CORRUPT]`.
    """
    numbers, first = sorted(determinants), max(collected, 0)
    if numbers != list(range(first, first + len(numbers))) or (collected >= 0 and not numbers):
        raise contradictory(name, f"it has determinants of {numbers[:3]}…, though all up to {collected} are collected")
    return numbers
