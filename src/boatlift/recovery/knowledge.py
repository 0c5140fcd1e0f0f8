"""What is known of each processor when frontiers are chosen: F*(p), Ξ, determinants, logs (design, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from boatlift.recovery.available import Available, Chain, EveryEpoch
from boatlift.recovery.graph import Edge, Kind, RecoveryGraph, Vertex
from boatlift.recovery.xi import Xi
from boatlift.times import AnyFrontier, EpochFrontier, Frontier, TimeSet

__all__ = ["Knowledge"]

_NOTHING = Frontier.up_to(-1)
_NO_TIMES = TimeSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """All that is known of one processor. Durability is a function of the survivors, so each question takes them.

    Attributes:
        vertex, inputs, outputs: Its place in the graph.
        checkpoints: Stateful: Ξ of each durable checkpoint, in rising order, the empty state included until it is
            collected. Sink: Ξ of what the outside holds, alone.
        collected: Source: the times up to which positions were acknowledged and are gone; the cursor after them is known.
        determinants: The times whose determinants are durable; for a source, whose positions are.
        logged: L: output edge to the times whose messages are durable.
        in_flight: Output edge to the times whose messages it holds in memory for its receivers, if it lives.
        waiting: Input edge to the times of messages that wait there, if it lives.
        completed: The times that it has completed itself, in this life: ⊤ if it lives.
    """

    vertex: Vertex
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    checkpoints: Sequence[Xi] = ()
    collected: EpochFrontier = _NOTHING
    determinants: TimeSet = field(default_factory=TimeSet)
    logged: Mapping[str, TimeSet] = field(default_factory=dict)
    in_flight: Mapping[str, TimeSet] = field(default_factory=dict)
    waiting: Mapping[str, TimeSet] = field(default_factory=dict)
    completed: EpochFrontier = _NOTHING

    @classmethod
    def of(
        cls,
        graph: RecoveryGraph,
        name: str,
        *,
        checkpoints: Sequence[int] = (),
        collected: int = -1,
        determinants: TimeSet | None = None,
        logged: Mapping[str, TimeSet] | None = None,
        in_flight: Mapping[str, TimeSet] | None = None,
        completed: int = -1,
    ) -> Knowledge:
        """Gives the knowledge of an epoch processor, whose Ξ follow from its frontiers.

        Args:
            graph: The graph.
            name: The processor.
            checkpoints: The last times of a stateful processor's checkpoints (-1: the empty state), rising; or the
                last time that a sink holds, alone.
            collected: The last time whose position is gone, -1 for none.
            determinants, logged, in_flight: As the attributes.
            completed: The last time it completed, -1 for none.
        """
        inputs, outputs, logged = graph.inputs[name], graph.outputs[name], logged or {}
        return cls(
            vertex=graph.vertices[name],
            inputs=inputs,
            outputs=outputs,
            checkpoints=[Xi.structured(Frontier.up_to(t), inputs, outputs, logged) for t in checkpoints],
            collected=Frontier.up_to(collected),
            determinants=_NO_TIMES if determinants is None else determinants,
            logged=logged,
            in_flight=in_flight or {},
            completed=Frontier.up_to(completed),
        )

    @property
    def deterministic(self) -> bool:
        """Whether it repeats a time without any determinants of its own, once its inputs are fixed."""
        return self.vertex.deterministic and self.vertex.kind is not Kind.SOURCE

    @property
    def recorded(self) -> bool:
        """Whether anything durable is known of it."""
        held = any(xi.frontier for xi in self.checkpoints)
        return held or bool(self.collected) or bool(self.determinants) or any(self.logged.values())

    def available(self, survivors: AbstractSet[str]) -> Available:
        """Gives F*(p): what is durable, and if p lives also ⊤, with what it holds in memory.

        A sink's is exactly what the outside holds, alive or not: what it has not handed over can be made again.
        """
        lives, at_hand = self.vertex.name in survivors, self.messages_at_hand(survivors)
        match self.vertex.kind:
            case Kind.SINK:
                return Chain(self.checkpoints)
            case Kind.STATEFUL:
                chain = [xi.also_logged(at_hand) for xi in self.checkpoints]
                if lives:
                    top = Xi.structured(self.completed, self.inputs, self.outputs, at_hand)
                    chain = [xi for xi in chain if xi.frontier <= top.frontier and xi.frontier != top.frontier]
                    chain.append(top)
                return Chain(chain)
            case Kind.SOURCE:
                known = self.collected.extend(self.determinants)
                at_most = known | self.completed if lives else known
            case Kind.STATELESS:
                at_most = Frontier.everything()
        return EveryEpoch(self.inputs, self.outputs, at_hand, self.collected, at_most)

    def messages_at_hand(self, survivors: AbstractSet[str]) -> Mapping[str, TimeSet]:
        """Gives, by output edge, the times whose messages it can send again: logged, or in the memory of one that lives."""
        if not self.in_flight or self.vertex.name not in survivors:
            return self.logged
        edges = self.logged.keys() | self.in_flight.keys()
        return {e: self.logged.get(e, _NO_TIMES) | self.in_flight.get(e, _NO_TIMES) for e in edges}

    def durable_determinants(self, survivors: AbstractSet[str]) -> TimeSet:  # noqa: ARG002
        """Gives the times whose determinants are at hand: in the store, or with enough peers that survive."""
        return self.determinants

    def durable_messages(self, survivors: AbstractSet[str]) -> TimeSet:  # noqa: ARG002
        """Gives the times whose messages are durable on every output edge, so that the time need not run again."""
        if not self.logged or not self.outputs:
            return _NO_TIMES
        on_all = self.logged.get(self.outputs[0].name, _NO_TIMES)
        for edge in self.outputs[1:]:
            on_all &= self.logged.get(edge.name, _NO_TIMES)
        return on_all

    def resendable(self, edge: Edge, f: AnyFrontier, survivors: AbstractSet[str]) -> list[int]:
        """Lists L(e, f): the times of the messages on an edge that it still has once it is at f, in order."""
        at_hand = self.messages_at_hand(survivors).get(edge.name, _NO_TIMES)
        sent = edge.projection(f)
        return [t for t in at_hand if sent.contains(t)]
