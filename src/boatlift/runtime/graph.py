"""The dataflow as the state machine drives it: from a plan, or from the identity that a store records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cache
from itertools import chain
from typing import Any, get_args

import msgspec

from boatlift.dataflow import Batch, Delivery, Ephemeral, History, Lazy, Plan, Policy, Timing, Unit
from boatlift.dataflow.groups import Groups
from boatlift.dataflow.identity import ProcessorRecord, groups_of, processors_of
from boatlift.dataflow.rows import RowKind
from boatlift.errors import RESTORE, DataError, InternalError, InvalidError
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program
from boatlift.storage.records.records import UnitRecord, units_in
from boatlift.times import (
    EPOCH,
    IDENTITY,
    ArrivalOrder,
    Coarse,
    EpochBoundaries,
    Fine,
    FromSequence,
    GatheredBoundaries,
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
        gathers: True if an epoch of its own takes what has come on its inputs.
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
    gathers: bool = False
    repeats: bool = True
    answers: bool = False
    ledger: bool = True


def program_of(plan: Plan, policies: Mapping[str, Policy] | None = None) -> Program:
    """Return the program of a plan for the machine."""
    other = policies or {}
    nodes = [RecoveryNode(name, (), Kind.SOURCE, repeats=not plan.keeps_no_rows(name, other)) for name in plan.sources]
    for name, unit in plan.units.items():
        kind = Kind.STATEFUL if unit.keeps_state else Kind.STATELESS
        nodes.append(
            RecoveryNode(
                name,
                unit.reads,
                kind,
                _with_units(plan, other.get(name, unit.policy)),
                unit.timing is Timing.ARRIVAL,
                unit.timing is Timing.BATCH,
                unit.timing is Timing.GATHERED,
                unit.deterministic,
                unit.records_answers,
            )
        )
    for name, sink in plan.sinks.items():
        ledger = sink.sink.delivery is Delivery.EXACTLY_ONCE
        nodes.append(RecoveryNode(name, (plan.unit_of_sink(name).name,), Kind.SINK, ledger=ledger))
    return program_from(nodes, plan.groups)


def _with_units(plan: Plan, policy: Policy) -> Policy:
    """Return a policy whose logged readers are units and sinks in place of the operators that the user named."""
    if not isinstance(policy, Lazy) or not policy.log_messages:
        return policy
    unit_of = {operator.name: name for name, unit in plan.units.items() for operator in unit.operators}
    return replace(policy, log_messages={unit_of.get(name, name): True for name in policy.logged_readers})


def program_from(nodes: Iterable[RecoveryNode], groups: Groups = ()) -> Program:
    """Return processors with their time domains, and edges with the projections between them.

    A processor in arrival order has the times of a sequence. Its receivers see them as epochs: one for each message
    that it took. A batch has epochs of its own. Its receivers see each of them as the input epoch with which it ended;
    but a receiver in arrival order, another batch, and a sink count the batch's own epochs. All receivers of a
    processor that gathers count its epochs.
    """
    nodes = list(nodes)
    orders = {n.name: ArrivalOrder(Sequence(tuple(edge_name(r, n.name) for r in n.reads))) for n in nodes if n.ordered}
    batches = {node.name: EpochBoundaries() for node in nodes if node.batch}
    gathered = {n.name: GatheredBoundaries(edge_name(r, n.name) for r in n.reads) for n in nodes if n.gathers}

    def projection(sender: str, node: RecoveryNode) -> Projection:
        if node.ordered:
            into: Projection = ToSequence(orders[node.name].domain, edge_name(sender, node.name))
        elif node.batch:
            into = Coarse(batches[node.name])
        elif node.gathers:
            into = Coarse(gathered[node.name].of[edge_name(sender, node.name)])
        else:
            into = Fine(batches[sender]) if sender in batches and node.kind is not Kind.SINK else IDENTITY
        if sender not in orders:
            return into
        numbered = FromSequence(orders[sender])
        return numbered if into is IDENTITY else Then(numbered, into)

    vertices = []
    for node in nodes:
        domain: Any = orders[node.name].domain if node.ordered else EPOCH
        ends_recorded = not node.batch or isinstance(node.policy, History)
        repeats = node.repeats and ends_recorded and not node.answers
        coarse = node.batch or node.gathers
        vertices.append(Vertex(node.name, node.kind, repeats, domain, coarse, node.ledger, node.gathers))
    edges = [
        Edge(edge_name(sender, node.name), sender, node.name, projection(sender, node))
        for node in nodes
        for sender in node.reads
    ]
    return Program(RecoveryGraph(vertices, edges), _durabilities(nodes), orders, {**batches, **gathered}, groups)


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


LOCAL_OPTIONS = ("when", "log_messages", "state")
"""The options of `Lazy` that no program records, so that a store alone does not tell them."""

_POLICIES: Mapping[str, type[Policy]] = {kind.__name__: kind for kind in get_args(Policy)}


def division_of(plan: Plan) -> dict[str, Any]:
    """Return the units of a plan, as JSON."""
    return {name: msgspec.to_builtins(_recorded(unit, plan)) for name, unit in plan.units.items()}


class WayBack(Enum):
    """How a sink gets to hold again what it held at a restore point; the value is recorded."""

    UNDOES = "undoes"
    """Its later steps are read back, and taken back by one more step."""
    EMPTIES = "empties"
    """Its later steps become empty."""
    COMPARES = "compares"
    """The difference between what it holds and the past, which is computed."""
    NONE = "none"
    """It keeps what it holds, and rows come again under new numbers."""


def way_back(plan: Plan, sink: str) -> WayBack:
    """Return how a sink of a plan goes back."""
    spec = plan.sinks[sink].sink
    able = spec.capabilities
    appends = plan.rows_of(plan.unit_of_sink(sink).name).kind is RowKind.APPEND
    replaces = spec.key is not None or appends
    if (able.takes_back if replaces else able.reads_back_steps) is not None:
        return WayBack.EMPTIES if replaces else WayBack.UNDOES
    return WayBack.NONE if appends or able.reads_back is None else WayBack.COMPARES


def _recorded(unit: Unit, plan: Plan) -> UnitRecord:
    options = {field.name: getattr(unit.policy, field.name) for field in fields(unit.policy)}
    for local in LOCAL_OPTIONS if isinstance(unit.policy, Lazy) else ():
        del options[local]  # they change only what is kept
    if isinstance(unit.policy, History) and unit.policy.batch is None:
        del options["batch"]  # as it was recorded before batches could have this policy
    return UnitRecord(
        tuple(operator.name for operator in unit.operators),
        {edge_name(read, unit.name): read for read in unit.reads},
        {edge_name(unit.name, sink.name): sink.name for sink in unit.sinks},
        {"name": type(unit.policy).__name__, **options},
        {sink.name: way_back(plan, sink.name).value for sink in unit.sinks},
    )


def policy_of(record: UnitRecord) -> Policy:
    """Return the policy of a recorded unit.

    Raises:
        KeyError: there is no such policy.
        TypeError: the policy has no such option.
        InvalidError: an option cannot have this value.
    """
    options = dict(record.policy)
    if options["name"] == History.__name__ and options.get("batch") is not None:
        options["batch"] = Batch(**options["batch"])
    return _POLICIES[options.pop("name")](**options)


def recorded_program(identity: Mapping[str, Any]) -> Program:
    """Return the program of the machine from its recorded identity; an empty program if none was ever claimed.

    Raises:
        DataError: `[CORRUPT]` the recorded identity is no program.
    """
    try:
        return program_from(_nodes(identity), groups_of(identity))
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        msgspec.ValidationError,
        InternalError,
        InvalidError,
    ) as error:
        raise DataError("CORRUPT", f"the log's newest claim records no valid program ({error!r}): {RESTORE}") from error


def _nodes(identity: Mapping[str, Any]) -> list[RecoveryNode]:
    processors, units = processors_of(identity), units_in(identity)
    nodes = [
        RecoveryNode(key.removeprefix("source "), (), Kind.SOURCE, repeats=not about.get("forgets", False))
        for key, about in identity.items()
        if key.startswith("source ")
    ]
    nodes += [_node(name, unit, [processors[each] for each in unit.operators]) for name, unit in units.items()]
    nodes += [
        RecoveryNode(sink, (name,), Kind.SINK, ledger=identity[f"sink {sink}"].get("account", True))
        for name, unit in units.items()
        for sink in unit.outputs.values()
    ]
    missing = {key.removeprefix("sink ") for key in identity if key.startswith("sink ")} - {each.name for each in nodes}
    if missing:
        raise ValueError(f"no unit stages {', '.join(sorted(missing))}")
    return nodes


def _node(name: str, unit: UnitRecord, operators: list[ProcessorRecord]) -> RecoveryNode:
    timings = {Timing(each.timing) for each in operators}
    return RecoveryNode(
        name,
        tuple(unit.inputs.values()),
        Kind.STATEFUL if any(each.keeps_state for each in operators) else Kind.STATELESS,
        policy_of(unit),
        Timing.ARRIVAL in timings,
        Timing.BATCH in timings,
        Timing.GATHERED in timings,
        all(each.deterministic for each in operators),
        any(each.records_answers for each in operators),
    )
