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

__all__ = ["RecoveryNode", "edge_name", "position_of", "program_from", "program_of", "source_record"]


@dataclass(frozen=True, slots=True)
class RecoveryNode:
    """A processor as far as time and recovery go.

    Attributes:
        reads: The processors that it reads; none of a source.
        kind: What it keeps.
        policy: What it makes durable.
        ordered: True if it takes its messages in arrival order.
        batch: True if an epoch of its own covers many times of its input.
        repeats: True if executing a step again, with the same determinants, gives the same rows; of a source, if it can
            be read again.
        answers: True if it asks the outside, and the answers are recorded.
        ledger: Of a sink: True if it tells which steps it holds.
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
    """Return what the machine drives.

    Args:
        plan: The dataflow, in units.
        policies: The policies of some units, in place of their own.
    """
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
    """Return processors with their time domains, and edges with the projections that follow.

    A processor in arrival order has the times of a sequence. For its receivers they are epochs again: one for each
    message that it took. A batch has epochs of its own. For its receivers each of them is the epoch of its input with
    which it ended; a receiver in arrival order, another batch, and a sink count the epochs of the batch as they are.
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
    return Program(RecoveryGraph(vertices, edges), _regimes(nodes), orders, cuts)


def _regimes(nodes: list[RecoveryNode]) -> dict[str, Durability]:
    """Return what each processor makes durable.

    A processor that is not deterministic makes its messages durable in place of its determinants; the end of a batch's
    epoch counts once its messages are durable, or by itself if the batch keeps its inputs. The messages that come of a
    source that cannot be read again cannot be made again either. So a processor with state makes its messages durable
    with the state, because a sink commits one step after the other and may die in between. A processor without state
    makes them durable at once if several sinks come after the source, because each sink would have to wait for the
    others.
    """
    made = {node.name: node for node in nodes}

    @cache
    def behind(name: str) -> frozenset[str]:
        node = made[name]
        if not node.reads:
            return frozenset() if node.repeats else frozenset({name})
        return frozenset().union(*map(behind, node.reads))

    sinks = Counter(chain.from_iterable(behind(node.name) for node in nodes if node.kind is Kind.SINK))
    durabilities = {}
    for node in nodes:
        sources = behind(node.name)
        at_once = node.kind is Kind.STATELESS and any(sinks[source] > 1 for source in sources)
        with_state = node.kind is Kind.STATEFUL and bool(sources)
        recorded = node.repeats and (not node.batch or isinstance(node.policy, History))
        durabilities[node.name] = Durability(node.policy, recorded, at_once, with_state)
    return durabilities


def edge_name(sender: str, receiver: str) -> str:
    """Return the name of an edge."""
    return f"{sender}->{receiver}"


def source_record(position: Mapping[str, Any], clock: int, seed: int) -> dict[str, Any]:
    """Return the determinants of a source's time, which are its message too: a position, a clock reading, a seed."""
    return {"position": dict(position), "clock": clock, "seed": seed}


def position_of(outcome: Mapping[str, Any] | None) -> Any:
    """Return the position in the determinants of a source's time; None of a time for which the source had nothing."""
    return None if outcome is None else outcome["position"]
