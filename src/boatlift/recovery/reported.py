"""The reports about one processor that the monitor still needs."""

from __future__ import annotations

from typing import Any

from boatlift.recovery.graph import Kind, RecoveryGraph, Vertex
from boatlift.recovery.knowledge import Knowledge
from boatlift.times import (
    AnyFrontier,
    ArrivalOrder,
    EpochFrontier,
    Frontier,
    Loop,
    LoopTime,
    LoopTimes,
    MutableTimes,
    Sequence,
    TimeSet,
    end_of,
    frontier_of,
    no_times,
)


class Reported:
    """The durable facts of a processor p, and the messages and states that it has in memory; see `Knowledge`.

    Attributes:
        durable_ends, ends: In a loop: the last iterations that are durable, or known to this incarnation.
        stable: The stable frontier, whose times no failure can undo.
    """

    def __init__(self, vertex: Vertex, order: ArrivalOrder | None) -> None:
        nothing = frontier_of(vertex.domain)
        self._vertex = vertex
        self.checkpoints: list[AnyFrontier] = [] if vertex.kind is Kind.SOURCE else [nothing]
        self.collected: EpochFrontier = Frontier.up_to(-1)
        self.determinants: MutableTimes = TimeSet() if isinstance(vertex.domain, Sequence) else no_times(vertex.domain)
        self.order = order
        self.logged: dict[str, MutableTimes] = {}
        self.in_flight: dict[str, MutableTimes] = {}
        self.durable_ends: set[LoopTime] = set()
        self.ends: set[LoopTime] = set()
        self.completed = nothing
        self.held: list[AnyFrontier] = []
        self.stable = nothing

    def chooses_at(self, frontier: AnyFrontier) -> AnyFrontier:
        """Translate a frontier into the domain of `determinants`: in a sequence domain, into numbers of events."""
        return frontier if self.order is None else Frontier.up_to(self.order.within(frontier) - 1)

    def add_determinants(self, time: Any) -> bool:
        """Add a time with durable determinants; return whether an answer may depend on it."""
        gone = self._vertex.divides and self.collected.contains(time)
        if gone or time in self.determinants or self.chooses_at(self.stable).contains(time):
            return False
        self.determinants.add(time)
        return True

    def ended(self, time: LoopTime) -> None:
        self.ends.add(time)
        for times in self.in_flight.values():
            _end(times, time)

    def durably_ended(self, time: LoopTime, upto: LoopTime | None) -> None:
        """Add a durable last iteration of a loop; with `upto`, nothing is known beyond that time."""
        if upto is None:
            self.ended(time)
            self.durable_ends.add(time)
        for times in (self.determinants, *self.logged.values()):
            if upto is None:
                _end(times, time)
            else:
                assert isinstance(times, LoopTimes)
                times.end_within(time, upto)

    def sent(self, edge: str) -> MutableTimes:
        """Return the set of times whose messages on an edge are in memory; the caller may add to it."""
        return self._times_of(self.in_flight, edge, self.ends)

    def sent_durably(self, edge: str) -> MutableTimes:
        """Return the set of times whose messages on an edge are durable; the caller may add to it."""
        return self._times_of(self.logged, edge, self.durable_ends)

    def _times_of(self, of: dict[str, MutableTimes], edge: str, ends: set[LoopTime]) -> MutableTimes:
        if edge not in of:
            of[edge] = no_times(self._vertex.domain)
            for time in ends:
                _end(of[edge], time)
        return of[edge]

    def checkpoint(self, frontier: AnyFrontier) -> bool:
        if frontier <= self.checkpoints[0] or frontier in self.checkpoints:
            return False
        self.checkpoints.insert(sum(f <= frontier for f in self.checkpoints), frontier)
        return True

    def forget(self) -> None:
        """Drop collectable knowledge, except the checkpoint for a rollback."""
        garbage = self.stable
        self.determinants.forget(self.chooses_at(garbage))
        if self.order is not None:
            self.collected = self.collected | Frontier.up_to(self.order.within(garbage) - 1)
        if self._vertex.divides:
            self.collected = self.collected | garbage
        elif self._vertex.kind is Kind.STATEFUL:
            within = sum(f <= garbage for f in self.checkpoints)
            self.checkpoints = self.checkpoints[max(0, within - 1) :]

        gone = {end for end in self.ends | self.durable_ends if garbage.contains(_end_of(end, self._vertex))}
        self.ends -= gone
        self.durable_ends -= gone

    def forget_messages(self, edge: str, frontier: AnyFrontier) -> None:
        """Drop messages that their receiver no longer needs, in memory and in the log."""
        for held in (self.in_flight.get(edge), self.logged.get(edge)):
            if held is not None:
                held.forget(frontier)

    def truncate(self, restored: AnyFrontier, fixed: AnyFrontier, *, failed: bool) -> None:
        """Drop knowledge of an abandoned execution.

        Args:
            restored: f(p).
            fixed: f(p), widened, to which all logs are truncated.
            failed: The memory of p is gone.
        """
        self.determinants.cut(self.chooses_at(fixed))
        if self.order is not None:
            self.order.cut(self.order.within(fixed))
        if self._vertex.kind is Kind.STATEFUL:
            self.checkpoints = [f for f in self.checkpoints if f <= fixed]
        for logged in self.logged.values():
            logged.cut(fixed)
        self.durable_ends = {end for end in self.durable_ends if fixed.contains(_end_of(end, self._vertex))}
        self.ends = {end for end in self.ends if restored.contains(_end_of(end, self._vertex))}
        self.held = [f for f in self.held if f <= restored and not failed]
        if failed:
            self.in_flight.clear()
            self.ends = set(self.durable_ends)
        for held in self.in_flight.values():
            held.cut(restored)

    def known(self, graph: RecoveryGraph) -> Knowledge:
        return Knowledge(
            vertex=self._vertex,
            inputs=graph.inputs[self._vertex.name],
            outputs=graph.outputs[self._vertex.name],
            checkpoints=self.checkpoints,
            collected=self.collected,
            determinants=self.determinants,
            order=self.order,
            logged=self.logged,
            in_flight=self.in_flight,
            completed=self.completed,
            held=self.held,
        )


def _end(times: MutableTimes, time: LoopTime) -> None:
    assert isinstance(times, LoopTimes)
    times.end(time)


def _end_of(last: LoopTime, vertex: Vertex) -> LoopTime:
    assert isinstance(vertex.domain, Loop)
    return end_of(last[:-1], vertex.domain.depth)
