"""The knowledge about a processor that determines frontiers: F*(p), Ξ, determinants, logs (design, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any

from boatlift.recovery.available import Available, Chain, Checkpoints, Every, Prefixes, Xi
from boatlift.recovery.graph import Edge, Kind, RecoveryGraph, Vertex
from boatlift.times import AnyFrontier, ArrivalOrder, EpochFrontier, Frontier, Times, TimeSet, all_times, frontier_of

_NOTHING = Frontier.up_to(-1)
_NO_TIMES = TimeSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Everything known about one processor p. Durability depends on the survivors, so each method takes them.

    Attributes:
        vertex, inputs, outputs: The processor's place in the graph.
        checkpoints: Stateful: the frontier of each durable checkpoint, ascending, including the empty state until it is
            collected. Sink: only the frontier that the external system holds.
        xis: In place of `checkpoints` if Ξ does not follow from the frontier: Ξ of each.
        collected: Source: the times whose positions were acknowledged and are gone; the cursor after them is known.
            With coarse epochs: those whose boundaries are gone; in a sequence domain the numbers of the events whose
            determinants are gone.
        determinants: The times with durable determinants, which for a source are its positions; in a sequence domain
            the numbers of the events.
        order: In a sequence domain: the arrival order, as far as it is known.
        logged: L: output edge to the times of p whose messages are durable.
        in_flight: Output edge to the times of p whose messages p has in memory for its receivers, if p is alive.
        waiting: Input edge to the times of messages that wait there, if p is alive.
        completed: The times that p has completed in this incarnation: ⊤ if p is alive.
        held: Stateful: frontiers of this incarnation, ascending, whose state p still has in memory, if it is alive: p
            goes back to one of them by dropping later changes.
    """

    vertex: Vertex
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    checkpoints: Sequence[AnyFrontier] = ()
    xis: Sequence[Xi] = ()
    collected: EpochFrontier = _NOTHING
    determinants: Times = field(default_factory=TimeSet)
    order: ArrivalOrder | None = None
    logged: Mapping[str, Times] = field(default_factory=dict)
    in_flight: Mapping[str, Times] = field(default_factory=dict)
    waiting: Mapping[str, Times] = field(default_factory=dict)
    completed: AnyFrontier = _NOTHING
    held: Sequence[AnyFrontier] = ()

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
        """Return the knowledge of a processor of epochs, whose Ξ follow from its frontiers.

        A time is -1 for none; the checkpoint -1 is the empty state. The arguments are named as the attributes.
        """
        return cls(
            vertex=graph.vertices[name],
            inputs=graph.inputs[name],
            outputs=graph.outputs[name],
            checkpoints=[Frontier.up_to(t) for t in checkpoints],
            collected=Frontier.up_to(collected),
            determinants=_NO_TIMES if determinants is None else determinants,
            logged=logged or {},
            in_flight=in_flight or {},
            completed=Frontier.up_to(completed),
        )

    @property
    def deterministic(self) -> bool:
        """Whether p repeats a time without determinants of its own, once its inputs are fixed."""
        return not self.vertex.chooses

    @property
    def recorded(self) -> bool:
        held = any(self.checkpoints) or any(xi.frontier for xi in self.xis)
        return held or bool(self.collected) or bool(self.determinants) or any(self.logged.values())

    def available(self, survivors: AbstractSet[str]) -> Available:
        """Return F*(p): the durable frontiers, and if p is alive also ⊤ and those in memory.

        So a live processor has every frontier that it would have after a failure: stable frontiers hold, whichever
        processors fail. For a sink it is exactly the frontier that the external system holds, alive or not.
        """
        lives = self.vertex.name in survivors
        match self.vertex.kind:
            case Kind.SINK:
                return Chain(self.xis) if self.xis else Checkpoints(self.checkpoints)
            case Kind.STATEFUL if self.xis:
                return Chain(self._with_top(survivors) if lives else self._recorded(survivors))
            case Kind.STATEFUL:
                return Checkpoints(self._with_completed() if lives else list(self.checkpoints))
            case _ if self.vertex.divides:
                known = self.collected.extend(self.determinants)
                return Every(self.collected, known | self.completed if lives else known)
            case _ if self.order is not None:
                return Prefixes(self.order, len(self.order) if lives else self._events_known(self.order))
            case _:
                return Every(frontier_of(self.vertex.domain), all_times(self.vertex.domain))

    def xi(self, f: AnyFrontier, survivors: AbstractSet[str]) -> Xi:
        at_hand = self.messages_at_hand(survivors)
        return Xi.structured(self.vertex, f, self.inputs, self.outputs, at_hand)

    def _events_known(self, order: ArrivalOrder) -> int:
        """Return the number of events, from the first on, whose place in the order is durable or garbage."""
        assert isinstance(self.determinants, TimeSet)
        gone = max(order.start, self.collected.last + 1)
        return max(gone, min(len(order), self.determinants.reach(gone) + 1))

    def _with_completed(self) -> list[AnyFrontier]:
        """Return the frontiers with ⊤ among them; the checkpoint of an older incarnation may be ahead of it."""
        durable = [f for f in self.checkpoints if f <= self.completed and f != self.completed]
        held = [f for f in self.held if f != self.completed and f not in durable]
        below = sorted([*durable, *held], key=lambda f: sum(g <= f for g in (*durable, *held)))
        return [*below, self.completed, *(f for f in self.checkpoints if not f <= self.completed)]

    def _recorded(self, survivors: AbstractSet[str]) -> list[Xi]:
        at_hand = self.messages_at_hand(survivors)
        return [xi.also_logged(at_hand) for xi in self.xis]

    def _with_top(self, survivors: AbstractSet[str]) -> list[Xi]:
        top = self.xi(self.completed, survivors)
        below = [x for x in self._recorded(survivors) if x.frontier <= top.frontier and x.frontier != top.frontier]
        return [*below, top, *(x for x in self._recorded(survivors) if not x.frontier <= top.frontier)]

    def messages_at_hand(self, survivors: AbstractSet[str]) -> Mapping[str, Times]:
        """Return, by output edge, the times whose messages p can send again: logged, or in memory if p is alive."""
        if not self.in_flight or self.vertex.name not in survivors:
            return self.logged
        both = {e: self.logged[e] | times for e, times in self.in_flight.items() if e in self.logged}
        return {**self.logged, **self.in_flight, **both}

    def durable_determinants(self, survivors: AbstractSet[str]) -> Times:  # noqa: ARG002
        """Return the times with durable determinants; none for a source whose rows cannot be read again."""
        return _NO_TIMES if self.vertex.keeps_no_rows else self.determinants

    def durable_messages(self, survivors: AbstractSet[str]) -> Times | None:  # noqa: ARG002
        """Return the times whose messages are durable on every output edge; None if an edge has no log."""
        if not self.outputs or any(edge.name not in self.logged for edge in self.outputs):
            return None
        return reduce(and_, (self.logged[edge.name] for edge in self.outputs))

    def resendable(self, edge: Edge, f: AnyFrontier, survivors: AbstractSet[str]) -> list[Any]:
        """Return L(e, f): the times, in order, whose messages on an edge p still has after it is restored to f."""
        at_hand = self.messages_at_hand(survivors).get(edge.name, ())
        return sorted(t for t in at_hand if f.contains(t))
