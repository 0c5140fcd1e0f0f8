"""What a machine drives.

A program is the graph, the durability of each processor, and the records of choices that projections look up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from boatlift.errors import InternalError, InvalidError
from boatlift.recovery import Edge, Kind, RecoveryGraph
from boatlift.runtime.machine.durability import Durability
from boatlift.storage.records.facts import GarbageCollection
from boatlift.times import ArrivalOrder, EpochBoundaries, Sequence, epochs_cut, frontier_of, last_epoch

__all__ = ["Program"]


@dataclass(frozen=True, slots=True)
class Program:
    """A program for one machine: the records of choices grow with the machine that drives it.

    Attributes:
        graph: Processors and edges.
        durabilities: Processor to durability; a processor that is left out is `Ephemeral`.
        orders: Each processor of a sequence domain to its arrival order, empty yet.
        cuts: Each batch to the ends of its epochs, empty yet.

    Raises:
        InvalidError: `[BAD_POLICY]` a processor cannot have its durability; `[BAD_PROJECTION]` a batch takes from a
            processor whose times are no epochs.
    """

    graph: RecoveryGraph
    durabilities: Mapping[str, Durability] = field(default_factory=dict)
    orders: Mapping[str, ArrivalOrder] = field(default_factory=dict)
    cuts: Mapping[str, EpochBoundaries] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, vertex in self.graph.vertices.items():
            self.durability(name).check(vertex, coarse=vertex.coarse)
            if vertex.coarse != (name in self.cuts) or isinstance(vertex.domain, Sequence) != (name in self.orders):
                raise InternalError(
                    "INTERNAL", f"{name} lacks the record of its choices, or has one that it does not need"
                )
            for edge in self.graph.inputs[name] if vertex.coarse else ():
                if epochs_cut(edge.projection) is None:
                    raise InvalidError(
                        "BAD_PROJECTION",
                        f"{name} counts epochs, but {edge.source} sends at other times ({edge.projection}): batch "
                        f"epochs",
                    )

    def forget(self, garbage: GarbageCollection) -> None:
        """Forget the choices that are garbage: arrival orders, and ends of epochs."""
        for name, order in self.orders.items():
            order.forget(order.within(frontier_of(order.domain, garbage.choices[name])))
        for name, cuts in self.cuts.items():
            cuts.forget(last_epoch(garbage.choices[name]) + 1)

    def logs(self, edge: Edge) -> bool:
        """Return whether each message on an edge becomes durable: as one of its sender, or as history of its receiver.

        The history of a processor without state are the messages that it is sent, as if their senders kept them: so it
        is restored to any frontier, and no sender goes back for it. A source sends the same again from its positions,
        which are durable anyway, unless it keeps no rows.
        """
        sender, receiver = self.graph.vertices[edge.source], self.graph.vertices[edge.target]
        history = self.durability(edge.target).keeps_inputs and receiver.kind is Kind.STATELESS
        read_again = sender.kind is Kind.SOURCE and not sender.keeps_no_rows
        return self.durability(edge.source).keeps_messages or (history and not read_again)

    def durability(self, processor: str) -> Durability:
        """Return a processor's durability."""
        return self.durabilities.get(processor, Durability())
