"""The dataflow as the state machine drives it: sources, units and sinks, each with its time domain and durability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from boatlift.dataflow import Delivery, Ephemeral, History, Plan, Policy, Timing
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program
from boatlift.times import (
    EPOCH,
    IDENTITY,
    ArrivalOrder,
    Coarse,
    EpochBoundaries,
    Fine,
    FromSequence,
    Projection,
    Sequence,
    Then,
    ToSequence,
)


@dataclass(frozen=True, slots=True)
class RecoveryNode:
    """The properties of a processor that matter for time and recovery.

    Attributes:
        ordered: True if it takes its messages in arrival order.
        batch: True if an epoch of its own covers many times of its input.
        repeats: True if a step executed again with the same determinants yields the same rows; for a source, if it can
            be read again.
        answers: True if it asks an external system, and the answers are recorded.
        ledger: For a sink: True if it keeps a ledger of its steps.
    """

    name: str
    reads: tuple[str, ...]
    kind: Kind
    policy: Policy = Ephemeral()  # noqa: RUF009 - immutable
    ordered: bool = False
    batch: bool = False
    repeats: bool = True
    answers: bool = False
    ledger: bool = True


def program_of(plan: Plan, policies: Mapping[str, Policy] | None = None) -> Program:
    """Return the program of a plan for the machine."""
    other = policies or {}
    nodes = [RecoveryNode(name, (), Kind.SOURCE, repeats=not plan.keeps_no_rows(name, other)) for name in plan.sources]
    for name, unit in plan.units.items():
        kind = Kind.STATEFUL if unit.keeps_state else Kind.STATELESS
        arrival, batch = unit.timing is Timing.ARRIVAL, unit.timing is Timing.BATCH
        nodes.append(
            RecoveryNode(
                name,
                unit.reads,
                kind,
                other.get(name, unit.policy),
                arrival,
                batch,
                unit.deterministic,
                unit.records_answers,
            )
        )
    for name, sink in plan.sinks.items():
        ledger = sink.sink.delivery is Delivery.EXACTLY_ONCE
        nodes.append(RecoveryNode(name, (plan.unit_of_sink(name).name,), Kind.SINK, ledger=ledger))
    return program_from(nodes)


def program_from(nodes: Iterable[RecoveryNode]) -> Program:
    """Return processors with their time domains, and edges with the projections between them.

    A processor in arrival order has the times of a sequence. Its receivers see them as epochs: one for each message
    that it took. A batch has epochs of its own. Its receivers see each of them as the input epoch with which it ended;
    but a receiver in arrival order, another batch, and a sink count the batch's own epochs.
    """
    nodes = list(nodes)
    orders = {n.name: ArrivalOrder(Sequence(tuple(edge_name(r, n.name) for r in n.reads))) for n in nodes if n.ordered}
    cuts = {node.name: EpochBoundaries() for node in nodes if node.batch}

    def projection(sender: str, node: RecoveryNode) -> Projection:
        if node.ordered:
            into: Projection = ToSequence(orders[node.name].domain, edge_name(sender, node.name))
        elif node.batch:
            into = Coarse(cuts[node.name])
        else:
            into = Fine(cuts[sender]) if sender in cuts and node.kind is not Kind.SINK else IDENTITY
        if sender not in orders:
            return into
        numbered = FromSequence(orders[sender])
        return numbered if into is IDENTITY else Then(numbered, into)

    vertices = []
    for node in nodes:
        domain: Any = orders[node.name].domain if node.ordered else EPOCH
        ends_recorded = not node.batch or isinstance(node.policy, History)
        repeats = node.repeats and ends_recorded and not node.answers
        vertices.append(Vertex(node.name, node.kind, repeats, domain, coarse=node.batch, ledger=node.ledger))
    edges = [
        Edge(edge_name(sender, node.name), sender, node.name, projection(sender, node))
        for node in nodes
        for sender in node.reads
    ]
    return Program(RecoveryGraph(vertices, edges), _durabilities(nodes), orders, cuts)


def _durabilities(nodes: list[RecoveryNode]) -> dict[str, Durability]:
    """Return the durability of each processor.

    A nondeterministic processor makes its messages durable in place of its determinants; the end of a batch's epoch
    counts once its messages are durable, or by itself if the batch keeps its inputs.

    Messages downstream of a source that cannot be read again cannot be repeated either. So a stateful processor makes
    its messages durable with the state, because a sink commits one step after the other and may crash in between. A
    stateless processor makes them durable at once if several sinks are downstream of the source, because each sink
    would have to wait for the others.
    """
    by_name = {node.name: node for node in nodes}

    @cache
    def unrepeatable_sources(name: str) -> frozenset[str]:
        node = by_name[name]
        if not node.reads:
            return frozenset() if node.repeats else frozenset({name})
        return frozenset().union(*map(unrepeatable_sources, node.reads))

    sinks = Counter(chain.from_iterable(unrepeatable_sources(node.name) for node in nodes if node.kind is Kind.SINK))
    durabilities = {}
    for node in nodes:
        sources = unrepeatable_sources(node.name)
        at_once = node.kind is Kind.STATELESS and any(sinks[source] > 1 for source in sources)
        with_state = node.kind is Kind.STATEFUL and bool(sources)
        recorded = node.repeats and (not node.batch or isinstance(node.policy, History))
        durabilities[node.name] = Durability(node.policy, recorded, at_once, with_state)
    return durabilities


def edge_name(sender: str, receiver: str) -> str:
    """Return the name of an edge."""
    return f"{sender}->{receiver}"


def source_record(position: Mapping[str, Any], clock: int, seed: int) -> dict[str, Any]:
    """Return the determinants of a source's time, which are also its message: a position, a clock reading, a seed."""
    return {"position": dict(position), "clock": clock, "seed": seed}


def position_of(outcome: Mapping[str, Any] | None) -> Any:
    """Return the position in the determinants of a source's time; None for a time without input."""
    return None if outcome is None else outcome["position"]
