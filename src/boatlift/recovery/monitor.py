"""The monitor: learns record by record what is durable, and answers the three questions (design, section 4; seed 002, 4.2).

1. After a failure: where does each processor restart? `plan`
2. What can be deleted, which inputs acknowledged? `stable`, `acknowledgeable`
3. Which outputs may leave? `may_release`
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from boatlift.errors import DataError, InternalError
from boatlift.recovery.graph import Kind, RecoveryGraph
from boatlift.recovery.incremental import Incremental
from boatlift.recovery.knowledge import Knowledge
from boatlift.recovery.plan import RecoveryPlan, plan_recovery
from boatlift.recovery.solver import solve
from boatlift.times import EpochFrontier, Frontier, TimeSet, last_of

__all__ = ["Monitor"]


@dataclass(slots=True)
class _Records:
    """What was reported of one processor and is still of use."""

    checkpoints: list[int] = field(default_factory=lambda: [-1])
    collected: int = -1
    determinants: TimeSet = field(default_factory=TimeSet)
    in_flight: dict[str, TimeSet] = field(default_factory=dict)
    completed: int = -1
    stable: int = -1


class Monitor:
    """Knows what is durable, and so what no failure can take back.

    Laws:
        * The answers depend on what was reported, not on its order; a report made twice changes nothing. So a monitor
          can be rebuilt from the store alone.
        * Stable frontiers only move forward, and never beyond what the processor itself has completed: a stateless
          one could keep times that it has not yet run.
        * It forgets what lies below the stable frontiers, as the store may: they do not fall for it.
        * It is deterministic and decides nothing: whoever asks acts.

    Times are epochs; -1 stands for none.
    """

    def __init__(self, graph: RecoveryGraph) -> None:
        self._graph = graph
        self._records = {p: _Records() for p in graph.vertices}
        self._knowledge: dict[str, Knowledge] = {}
        self._incremental: Incremental | None = None
        self._grown: set[str] = set()
        self._releases: dict[tuple[str, int], bool] = {}

    # -- reports ------------------------------------------------------------------------------------------------------

    def durable_input(self, source: str, time: int) -> None:
        """Learns that the positions of a source's time are durable."""
        self._of(source, Kind.SOURCE)
        self.durable_determinants(source, time)

    def durable_input_below(self, source: str, time: int) -> None:
        """Learns that a source's positions up to and including a time are gone, and the cursor after them is durable.

        It can then not go back beyond that time.
        """
        records = self._of(source, Kind.SOURCE)
        if time > records.collected:
            records.collected = time
            records.determinants.keep(time + 1, records.determinants.last)
            self._changed(source)

    def durable_determinants(self, processor: str, time: int) -> None:
        """Learns that all choices of a processor at a time are durable."""
        records = self._records[processor]
        if time > max(records.stable, records.collected) and time not in records.determinants:
            records.determinants.add(time)
            self._changed(processor)

    def durable_checkpoint(self, processor: str, time: int) -> None:
        """Learns that a processor's state after a time, all of whose messages it had taken, is durable."""
        records = self._of(processor, Kind.STATEFUL)
        if time > records.checkpoints[0] and time not in records.checkpoints:
            records.checkpoints = sorted([*records.checkpoints, time])
            records.completed = max(records.completed, time)
            self._changed(processor)

    def committed(self, sink: str, time: int) -> None:
        """Learns that the outside holds a sink's times up to this one."""
        records = self._of(sink, Kind.SINK)
        if time > records.checkpoints[0]:
            records.checkpoints = [time]
            records.completed = max(records.completed, time)
            self._changed(sink)

    def completed(self, processor: str, time: int) -> None:
        """Learns that a processor has finished all times up to this one, in memory at least."""
        records = self._records[processor]
        if time > records.completed:
            records.completed = time
            self._knowledge.pop(processor, None)

    def sent(self, edge: str, time: int) -> None:
        """Learns that a message's sender holds it in memory for its receiver, until the receiver's stable frontier passes."""
        sender, receiver = self._graph.edges[edge].source, self._graph.edges[edge].target
        if time > self._records[receiver].stable:
            self._records[sender].in_flight.setdefault(edge, TimeSet()).add(time)
            self._knowledge.pop(sender, None)

    def recovered(self, done: RecoveryPlan) -> None:
        """Learns that a plan was carried out: everyone is where it says, and what it truncates is gone."""
        for name, part in done.processors.items():
            records, restored, fixed = self._records[name], done.frontier(name), done.fixed(name)
            records.determinants.keep(0, fixed)
            if part.kind is Kind.STATEFUL:
                records.checkpoints = [t for t in records.checkpoints if t <= fixed]
            records.completed = records.completed if part.stays else restored
            for edge in list(records.in_flight):
                if name in done.failed:
                    del records.in_flight[edge]
                else:
                    records.in_flight[edge].keep(0, restored)
            self._knowledge.pop(name, None)
        self._incremental = None  # logs were cut: frontiers may fall
        self._grown.clear()
        self._releases.clear()

    # -- answers ------------------------------------------------------------------------------------------------------

    def stable(self, processor: str) -> int:
        """Gives the last time that no failure can take back from a processor; below it all its durable things are garbage.

        A checkpoint *at* the stable frontier is what a failure restores: it stays.

        Raises:
            DataError: `[NO_CONSISTENT_FRONTIER]` what was reported does not fit together.
            InternalError: a stable frontier would fall.
        """
        chosen = last_of(self._solve().solved().f[processor])
        records = self._records[processor]
        if chosen < records.stable:
            raise InternalError(
                "INTERNAL", f"the stable frontier of {processor} would fall from {records.stable} to {chosen}"
            )
        stable = min(chosen, records.completed)
        if stable > records.stable:
            records.stable = stable
            self._forget(processor)
        return records.stable

    def stable_frontier(self, processor: str) -> EpochFrontier:
        """Gives the same as a frontier."""
        return Frontier.up_to(self.stable(processor))

    def acknowledgeable(self, source: str) -> int:
        """Gives the last time of a source whose inputs nobody will read again."""
        self._of(source, Kind.SOURCE)
        return self.stable(source)

    def may_release(self, sink: str, time: int) -> bool:
        """Tells whether a sink may be given everything up to a time: whether it would stay fixed if everything failed now.

        The question is put for the sink holding exactly that: where a sender can only restart behind several times together,
        it is no to each alone and yes to all, which must then be made visible in one act.
        """
        held = self._of(sink, Kind.SINK).checkpoints[0]
        if time <= held:
            return True
        answer = self._releases.get((sink, time))
        if answer is None:
            answer = self._solve().releases(sink, Frontier.up_to(time))
        if answer is None:
            knowledge = dict(self.knowledge())
            knowledge[sink] = Knowledge.of(self._graph, sink, checkpoints=[time], completed=time)
            try:
                solve(self._graph, knowledge, self._graph.vertices.keys())
                answer = True
            except DataError:
                answer = False
            self._releases[sink, time] = answer
        return answer

    def plan(self, failed: AbstractSet[str]) -> RecoveryPlan:
        """Plans the recovery from a failure of some processors. Nothing changes until `recovered` is reported.

        Raises:
            DataError: `[NO_CONSISTENT_FRONTIER]`.
        """
        return plan_recovery(self._graph, self.knowledge(), failed)

    def knowledge(self) -> dict[str, Knowledge]:
        """Gives what is known of every processor now."""
        for name in self._records:
            self._known(name)
        return self._knowledge

    def _known(self, name: str) -> Knowledge:
        if name not in self._knowledge:
            records = self._records[name]
            self._knowledge[name] = Knowledge.of(
                self._graph,
                name,
                checkpoints=records.checkpoints,
                collected=records.collected,
                determinants=records.determinants,
                in_flight=records.in_flight,
                completed=records.completed,
            )
        return self._knowledge[name]

    # -- within -------------------------------------------------------------------------------------------------------

    def _of(self, processor: str, kind: Kind) -> _Records:
        if self._graph.vertices[processor].kind is not kind:
            raise InternalError("INTERNAL", f"{processor} is no {kind.value}")
        return self._records[processor]

    def _changed(self, processor: str) -> None:
        self._knowledge.pop(processor, None)
        self._grown.add(processor)
        self._releases.clear()

    def _solve(self) -> Incremental:
        """Gives the answer to "everything fails now", with all that was reported."""
        if self._incremental is None:
            self._incremental = Incremental(self._graph, self.knowledge())
        else:
            for processor in self._grown:
                self._incremental.more(processor, self._known(processor))
        self._grown.clear()
        return self._incremental

    def _forget(self, processor: str) -> None:
        """Drops what a processor's stable frontier has passed; no answer depends on it."""
        records, kind = self._records[processor], self._graph.vertices[processor].kind
        records.determinants.keep(records.stable + 1, records.determinants.last)
        if kind is Kind.SOURCE:
            records.collected = max(records.collected, records.stable)
        elif kind is Kind.STATEFUL:
            records.checkpoints = [t for t in records.checkpoints if t >= records.stable]
        self._knowledge.pop(processor, None)
        if self._incremental is not None:
            self._incremental.less(processor, self._known(processor))
        for edge in self._graph.inputs[processor]:
            in_flight = self._records[edge.source].in_flight.get(edge.name)
            if in_flight is not None:
                in_flight.keep(records.stable + 1, in_flight.last)
