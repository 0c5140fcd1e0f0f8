"""The dataflow as the state machine takes it: sources, units and sinks, each in its time domain, and the regime of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from boatlift.dataflow import Ephemeral, Plan, Policy, Timing
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

__all__ = ["GraphNode", "edge_name", "program_from", "program_of", "source_record"]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A processor as far as time and recovery go.

    Attributes:
        reads: Whom it takes from; nobody: a source.
        kind: What it keeps.
        ordered: Whether it takes its inputs as they come.
        batch: Whether an epoch of its own covers many of its input's.
        repeats: Whether executing it again, with the same choices, gives the same; of a source, whether it can be read again.
    """

    name: str
    reads: tuple[str, ...]
    kind: Kind
    policy: Policy = Ephemeral()  # noqa: RUF009 - immutable
    ordered: bool = False
    batch: bool = False
    repeats: bool = True


def program_of(plan: Plan, policies: Mapping[str, Policy] | None = None) -> Program:
    """Gives what the machine drives.

    Args:
        plan: The dataflow, in units.
        policies: Of some units, in place of their own.
    """
    other = policies or {}
    nodes = [GraphNode(name, (), Kind.SOURCE, repeats=not plan.forgets(name)) for name in plan.sources]
    for name, unit in plan.units.items():
        kind = Kind.STATEFUL if unit.keeps_state else Kind.STATELESS
        arrival, batch = unit.timing is Timing.ARRIVAL, unit.timing is Timing.BATCH
        nodes.append(
            GraphNode(name, unit.reads, kind, other.get(name, unit.policy), arrival, batch, unit.deterministic)
        )
    nodes += [GraphNode(name, (plan.unit_of_sink(name).name,), Kind.SINK) for name in plan.sinks]
    return program_from(nodes)


def program_from(nodes: Iterable[GraphNode]) -> Program:
    """Gives processors their domains, and edges the projections that follow.

    The times of what takes its inputs as they come are those of a sequence; for who takes from it they are epochs again, one for each
    message that it took. A batch has epochs of its own; for who takes from it they are those of its input with which they ended, but
    what takes its inputs as they come, and another batch, count them as they are.
    """
    nodes = list(nodes)
    orders = {n.name: ArrivalOrder(Sequence(tuple(edge_name(r, n.name) for r in n.reads))) for n in nodes if n.ordered}
    cuts = {node.name: EpochBoundaries() for node in nodes if node.batch}

    def projection(sender: str, node: GraphNode) -> Projection:
        if node.ordered:
            into: Projection = ToSequence(orders[node.name].domain, edge_name(sender, node.name))
        elif node.batch:
            into = Coarse(cuts[node.name])
        else:
            into = Fine(cuts[sender]) if sender in cuts else IDENTITY
        if sender not in orders:
            return into
        numbered = FromSequence(orders[sender])
        return numbered if into is IDENTITY else Then(numbered, into)

    vertices = []
    for node in nodes:
        domain: Any = orders[node.name].domain if node.ordered else EPOCH
        vertices.append(Vertex(node.name, node.kind, node.repeats and not node.batch, domain, coarse=node.batch))
    edges = [
        Edge(edge_name(sender, node.name), sender, node.name, projection(sender, node))
        for node in nodes
        for sender in node.reads
    ]
    return Program(RecoveryGraph(vertices, edges), _regimes(nodes), orders, cuts)


def _regimes(nodes: list[GraphNode]) -> dict[str, Durability]:
    """Gives what each makes durable.

    Of what cannot be repeated, what it sent is durable in place of its choices; where a batch ends counts once that is. What comes of a source that cannot be
    read again is not repeated either: so what who keeps state sends is durable with the state, for a sink takes one step after the other, and may die in between;
    and what others send is, at once, where several sinks come after the source: else each would have to wait for the others.
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
        durabilities[node.name] = Durability(node.policy, node.repeats and not node.batch, at_once, with_state)
    return durabilities


def edge_name(sender: str, receiver: str) -> str:
    """Names an edge."""
    return f"{sender}->{receiver}"


def source_record(position: Mapping[str, Any], clock: int, seed: int) -> dict[str, Any]:
    """Gives what a source chooses at a time, and sends: its position, and the clock and seed of whoever executes it."""
    return {"position": dict(position), "clock": clock, "seed": seed}
