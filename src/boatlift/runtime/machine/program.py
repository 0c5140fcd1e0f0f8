"""A program for the machine: the graph, the durability of each processor, and the recorded determinants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from boatlift.dataflow import Batch, Eager, Ephemeral, History, Lazy, Policy, SinceCheckpoint, batch_of
from boatlift.dataflow.policies import InFlight
from boatlift.errors import InternalError, InvalidError
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.storage.records.facts import GarbageCollection
from boatlift.times import ArrivalOrder, Boundaries, Sequence, epochs_cut, frontier_of, last_epoch


@dataclass(frozen=True, slots=True)
class Durability:
    """A policy, and whether determinants are recorded: the two are independent.

    Attributes:
        recorded: The processor's determinants become durable. Those of a source always do. If the end of a batch's
            epoch is not recorded ahead, it counts once the messages of the epoch are durable.
        messages: The processor's messages become durable, whatever the policy.
        with_state: The processor's messages become durable together with each checkpoint, whatever the policy: a sink
            needs them to take one step after the other.
    """

    policy: Policy = Ephemeral()  # noqa: RUF009 - immutable
    recorded: bool = True
    messages: bool = False
    with_state: bool = False

    @property
    def state_every(self) -> int | None:
        """The number of steps from one checkpoint to the next; None: there are none by the number of steps."""
        match self.policy:
            case Lazy(every):
                return every
            case Eager():
                return 1
            case _:
                return None

    @property
    def state_after(self) -> int | None:
        """The milliseconds from a step to the checkpoint that has it; None: there are none by the clock."""
        seconds = self.policy.seconds if isinstance(self.policy, Lazy) else None
        return None if seconds is None else round(1000 * seconds)

    @property
    def has_checkpoints(self) -> bool:
        """True if the state becomes durable at intervals."""
        return self.policy.has_checkpoints if isinstance(self.policy, Lazy) else isinstance(self.policy, Eager)

    @property
    def asks_when(self) -> bool:
        """True if a function of the user's is asked for checkpoints."""
        return isinstance(self.policy, Lazy) and self.policy.when is not None

    def is_due(self, processor: str, number: Any, since: SinceCheckpoint) -> bool:
        """Return whether the user's function wants a checkpoint after a step.

        Raises:
            InvalidError: `[WHEN_FAILED]` it raised, or gave neither True nor False.
        """
        rule = self.policy.when if isinstance(self.policy, Lazy) else None
        if rule is None:
            return False
        try:
            due: object = rule(number, since)
        except Exception as error:
            raise _when_failed(processor, number, f"raised {error!r}") from error
        if not isinstance(due, bool):
            raise _when_failed(processor, number, f"gave {due!r}, and not True or False")
        return due

    @property
    def in_flight(self) -> InFlight:
        """The messages that become durable with a checkpoint, as `Lazy` has them."""
        return self.policy.in_flight if isinstance(self.policy, Lazy) else False

    @property
    def keeps_messages(self) -> bool:
        return self.messages or isinstance(self.policy, Batch | Eager)

    @property
    def logged_readers(self) -> frozenset[str]:
        """The readers whose messages all become durable by the policy."""
        return self.policy.logged_readers if isinstance(self.policy, Lazy) else frozenset()

    @property
    def keeps_inputs(self) -> bool:
        """True if inputs become durable, in place of the state or of a batch's messages."""
        return isinstance(self.policy, History)

    @property
    def batch(self) -> Batch | None:
        """The conditions that end a batch's epochs; None if the policy is not a batch's."""
        return batch_of(self.policy)

    def check(self, vertex: Vertex, *, coarse: bool) -> None:
        """Refuse a durability that a processor cannot have.

        Raises:
            InvalidError: `[BAD_POLICY]`.
        """
        name, policy = vertex.name, type(self.policy).__name__
        if vertex.kind is Kind.STATEFUL and isinstance(self.policy, Ephemeral | Batch):
            raise InvalidError("BAD_POLICY", f"{name} keeps state, which {policy} cannot: use Lazy, Eager or History")
        if vertex.kind is Kind.STATELESS and isinstance(vertex.domain, Sequence) and not self.recorded:
            raise InvalidError(
                "BAD_POLICY", f"{name} keeps no state, so the order in which it takes its inputs must be recorded"
            )
        if self.keeps_inputs and vertex.chooses and not self.recorded:
            raise InvalidError(
                "BAD_POLICY",
                f"{name} has determinants that are not recorded: replaying its inputs would give other results; record "
                "them, or use a policy that keeps its messages",
            )
        if vertex.gathered and (vertex.kind is not Kind.STATELESS or not self.recorded):
            raise InvalidError("BAD_POLICY", f"{name} gathers its inputs: it keeps no state, and records their ends")
        if coarse and self.batch is None and not vertex.gathered:
            raise InvalidError(
                "BAD_POLICY", f"the coarse epochs of {name} never end: use Batch(…) or History(Batch(…)), not {policy}"
            )
        if self.keeps_inputs and self.batch is not None and not coarse:
            raise InvalidError("BAD_POLICY", f"{name} has no epochs of its own that could end: use History()")


def _when_failed(processor: str, number: Any, what: str) -> InvalidError:
    return InvalidError(
        "WHEN_FAILED",
        f"Lazy(when=…) of {processor} {what} after step {number}: correct it, and start again; no step is lost",
    )


@dataclass(frozen=True, slots=True)
class Program:
    """A program for one machine; its arrival orders and epoch boundaries grow with that machine.

    Attributes:
        durabilities: Processor to durability; a processor that is left out is `Ephemeral`.
        orders: Each processor of a sequence domain to its arrival order, empty yet.
        cuts: Each batch, and each processor that gathers, to the ends of its epochs, empty yet.
        groups: The sinks that are shown together; they have the same times, and a ledger each.

    Raises:
        InvalidError: `[BAD_POLICY]` a processor cannot have its durability, or logs messages to what does not read it;
            `[BAD_PROJECTION]` a batch reads a processor whose times are not epochs.
    """

    graph: RecoveryGraph
    durabilities: Mapping[str, Durability] = field(default_factory=dict)
    orders: Mapping[str, ArrivalOrder] = field(default_factory=dict)
    cuts: Mapping[str, Boundaries] = field(default_factory=dict)
    groups: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        for name, vertex in self.graph.vertices.items():
            self.durability(name).check(vertex, coarse=vertex.coarse)
            self._check_logged(name, {edge.target for edge in self.graph.outputs[name]})
            if vertex.coarse != (name in self.cuts) or isinstance(vertex.domain, Sequence) != (name in self.orders):
                raise InternalError(
                    "INTERNAL",
                    f"{name} lacks its arrival order or its epoch boundaries, or has one that it does not need",
                )
            for edge in self.graph.inputs[name] if vertex.coarse else ():
                if epochs_cut(edge.projection) is None:
                    raise InvalidError(
                        "BAD_PROJECTION",
                        f"{name} counts epochs, but {edge.source} sends at other times ({edge.projection}): batch "
                        f"epochs",
                    )

    def _check_logged(self, name: str, readers: set[str]) -> None:
        strange = self.durability(name).logged_readers - readers
        if strange:
            raise InvalidError(
                "BAD_POLICY",
                f"{name} logs messages to {', '.join(sorted(strange))}: name readers of {name}, of which there are "
                f"{', '.join(sorted(readers)) or 'none'}",
            )

    def forget(self, garbage: GarbageCollection) -> None:
        """Forget the determinants that are garbage: arrival orders, and ends of epochs."""
        for name, order in self.orders.items():
            order.forget(order.within(frontier_of(order.domain, garbage.choices[name])))
        for name, cuts in self.cuts.items():
            cuts.forget(last_epoch(garbage.choices[name]) + 1)

    def logs(self, edge: Edge) -> bool:
        """Return whether each message on an edge becomes durable: as its sender's message, or its receiver's history.

        The history of a stateless processor is its input messages, as if their senders kept them: so it is restored to
        any frontier, and no sender rolls back for it. A source that keeps its rows repeats its messages from its
        positions, which are durable anyway.
        """
        sender, receiver = self.graph.vertices[edge.source], self.graph.vertices[edge.target]
        history = self.durability(edge.target).keeps_inputs and receiver.kind is Kind.STATELESS
        read_again = sender.kind is Kind.SOURCE and not sender.keeps_no_rows
        own = self.durability(edge.source)
        return own.keeps_messages or edge.target in own.logged_readers or (history and not read_again)

    def durability(self, processor: str) -> Durability:
        return self.durabilities.get(processor, Durability())
