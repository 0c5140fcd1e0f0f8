"""What a machine drives: the graph, each processor's regime, and the records of choices that projections look up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from boatlift.errors import InternalError, InvalidError
from boatlift.recovery import RecoveryGraph
from boatlift.runtime.machine.durability import Durability
from boatlift.storage.records.facts import GarbageCollection, last_epoch
from boatlift.times import ArrivalOrder, EpochBoundaries, Sequence, epochs_cut, frontier_of

__all__ = ["Program"]


@dataclass(frozen=True, slots=True)
class Program:
    """Processors as they are to be driven, once: the records of choices grow with the machine that drives it.

    Attributes:
        graph: Processors and edges.
        regimes: Processor to regime; `Ephemeral` for one that is left out.
        orders: Each processor of a sequence domain to its order, empty yet.
        cuts: Each processor of coarse epochs to where they end, empty yet.

    Raises:
        InvalidError: `[BAD_POLICY]` a processor cannot have its regime, or a source keeps no rows though a batch comes after it;
            `[BAD_PROJECTION]` a batch is over what are no epochs.
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
                        f"{name} counts epochs, but {edge.source} sends at other times ({edge.projection}): batch epochs",
                    )

        self._check_sources()

    def _check_sources(self) -> None:
        """Refuse a source that forgets before a batch.

        Its other readers would go on, and could not go back to where the open epoch of the batch begins: nothing newer than that could
        leave until the epoch ends, and nothing says that it does.
        """
        above: dict[str, set[str]] = {}
        for name in self.graph.order:  # a batch is in no loop, so everything above it comes before it
            senders = {edge.source for edge in self.graph.inputs[name]}
            above[name] = senders.union(*(above.get(sender, set()) for sender in senders))
            if not self.graph.vertices[name].coarse:
                continue
            for source in sorted(above[name]):
                if self.graph.vertices[source].forgets:
                    raise InvalidError(
                        "BAD_POLICY",
                        f"source {source} keeps no rows, and batch {name} would hold them back: let the source record them",
                    )

    def forget(self, garbage: GarbageCollection) -> None:
        """Forget the choices that are garbage: in which order was taken, and where coarse epochs ended."""
        for name, order in self.orders.items():
            order.forget(order.within(frontier_of(order.domain, garbage.choices[name])))
        for name, cuts in self.cuts.items():
            cuts.forget(last_epoch(garbage.choices[name]) + 1)

    def durability(self, processor: str) -> Durability:
        """Gives a processor's regime."""
        return self.durabilities.get(processor, Durability())
