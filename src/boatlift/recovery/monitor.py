"""The monitor: three questions, answered record by record (design, section 4; Falkirk Wheel §4.2).

1. Recovery: where does each processor restart after a failure? `plan`
2. Garbage: which records lie within the stable frontiers, and can go? `stable`, `collectable`, `needless`, `settled`
3. The release rule: which outputs may leave? `releasable`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

from boatlift.errors import DataError, InternalError, InvalidError
from boatlift.recovery.available import Every
from boatlift.recovery.graph import Kind, RecoveryGraph
from boatlift.recovery.incremental import Incremental
from boatlift.recovery.knowledge import Knowledge
from boatlift.recovery.plan import RecoveryPlan, plan_recovery
from boatlift.recovery.reported import Reported
from boatlift.recovery.solver import Solving, solve
from boatlift.times import IDENTITY, AnyFrontier, ArrivalOrder, Frontier, Loop, LoopTime, all_times, last_of


class Monitor:
    """The knowledge about all processors: which records are durable, and so which times no failure can undo.

    Laws:
        * The answers depend on the reports, not on their order; a repeated report changes nothing. So a monitor can be
          rebuilt from the store.
        * Stable frontiers only advance, and never beyond the times that the processor itself has completed: F* of a
          stateless one has times that it has not run yet.
        * The monitor drops collectable times, as the store may, and stable frontiers do not fall.
        * The monitor is deterministic and has no effects: its caller acts.

    Args:
        graph: Processors and edges.
        orders: Processor of a sequence domain to its arrival order, which its driver extends with each event.
        checked: Raise if a stable frontier would fall.
    """

    def __init__(
        self, graph: RecoveryGraph, orders: Mapping[str, ArrivalOrder] | None = None, *, checked: bool = True
    ) -> None:
        self._graph = graph
        self._checked = checked
        orders = orders or {}
        self._reported = {p: Reported(vertex, orders.get(p)) for p, vertex in graph.vertices.items()}
        self._knowledge: dict[str, Knowledge] = {}
        self._incremental: Incremental | None = None
        self._surprises = any(
            v.keeps_no_rows or (v.chooses and v.kind is not Kind.SOURCE) for v in graph.vertices.values()
        )
        self._grown: set[str] = set()
        self._found: set[str] = set()  # processors whose stable frontier is up to date
        self._releases: dict[tuple[str, tuple[AnyFrontier, ...]], AnyFrontier | None] = {}
        self._at_most: Mapping[str, AnyFrontier] = {}

    def durable_input_below(self, source: str, frontier: AnyFrontier) -> None:
        """Record that a source's positions of these times are gone, and that the cursor after them is durable.

        The source cannot go back beyond them any more. The same holds for the epoch boundaries of a batch.
        """
        reported = self._named(source)
        if not self._graph.vertices[source].divides:
            raise InternalError("INTERNAL", f"{source} does not choose the content of its epochs")
        if not frontier <= reported.collected:
            reported.collected = reported.collected | frontier
            reported.determinants.forget(frontier)
            self._changed(source)

    def durable_determinants(self, processor: str, time: Any) -> None:
        """Record that the determinants of a time, or of an event in a sequence domain, are durable."""
        if self._named(processor).add_determinants(time):
            self._changed(processor)

    def ended(self, processor: str, time: LoopTime) -> None:
        """Record the last iteration of a loop at a processor: no message follows before the next epoch."""
        for edge in self._graph.outputs[processor]:
            self._reported[processor].sent(edge.name)
        self._reported[processor].ended(time)
        self._knowledge.pop(processor, None)

    def durable_end(self, processor: str, time: LoopTime, upto: LoopTime | None = None) -> None:
        """Record that the last iteration of a loop at a processor is durable.

        No later message is known to exist up to the time `upto`; None stands for the end of the loop.
        """
        reported = self._named(processor)
        if not isinstance(self._graph.vertices[processor].domain, Loop):
            raise InternalError("INTERNAL", f"{processor} has no iterations")
        for edge in self._graph.outputs[processor]:
            reported.sent_durably(edge.name)
        reported.durably_ended(time, upto)
        self._changed(processor)

    def durable_message(self, edge: str, time: Any) -> None:
        sender = self._graph.edges[edge].source
        if not self._passed(edge).contains(time):
            self._reported[sender].sent_durably(edge).add(time)
            self._changed(sender)

    def durable_checkpoint(self, processor: str, frontier: AnyFrontier) -> None:
        if self._of(processor, Kind.STATEFUL).checkpoint(frontier):
            self._changed(processor)

    def committed(self, sink: str, frontier: AnyFrontier) -> None:
        reported = self._of(sink, Kind.SINK)
        if not frontier <= reported.checkpoints[0]:
            reported.checkpoints = [frontier]
            reported.completed = reported.completed | frontier
            self._changed(sink)

    def completed(self, processor: str, frontier: AnyFrontier) -> None:
        reported = self._reported[processor]
        if not frontier <= reported.completed:
            reported.completed = reported.completed | frontier
            self._knowledge.pop(processor, None)
            self._found.discard(processor)

    def holds(self, processor: str, frontiers: Sequence[AnyFrontier]) -> None:
        """Record the frontiers at which a processor's state is still in memory, ascending, among the completed ones."""
        self._of(processor, Kind.STATEFUL).held = list(frontiers)
        self._knowledge.pop(processor, None)

    def sent(self, edge: str, time: Any) -> None:
        """Record that a sender has a message in memory, until the receiver's stable frontier passes it.

        Raises:
            InvalidError: `[BAD_PROJECTION]` the edge's projection had promised that no such message follows.
        """
        sender = self._graph.edges[edge].source
        self._check_promise(edge, time)
        if not self._passed(edge).contains(time):
            self._reported[sender].sent(edge).add(time)
            self._knowledge.pop(sender, None)

    def recovered(self, done: RecoveryPlan) -> None:
        """Record that a plan was carried out: its processors are restored and its logs truncated."""
        for name, part in done.processors.items():
            reported = self._reported[name]
            reported.truncate(part.restore, part.fixed, failed=name in done.failed)
            reported.completed = reported.completed if part.stays else part.restore
            self._knowledge.pop(name, None)
        self._incremental = None  # logs were cut: frontiers may fall
        self._grown.clear()
        self._drop_answers()

    def stable(self, processor: str) -> AnyFrontier:
        """Return the stable frontier of a processor: the times that no failure can undo.

        Raises:
            DataError: `[NO_CONSISTENT_FRONTIER]` the reports do not fit together.
            InternalError: a stable frontier would fall.
        """
        reported = self._reported[processor]
        if processor in self._found:
            return reported.stable
        chosen = self._solve().frontier(processor)
        if self._checked and not reported.stable <= chosen:
            raise InternalError(
                "INTERNAL", f"the stable frontier of {processor} would fall from {reported.stable} to {chosen}"
            )
        stable = chosen & reported.completed
        if not stable <= reported.stable:
            reported.stable = stable
            self._forget(processor)
        self._found.add(processor)
        return reported.stable

    def has_completed(self, processor: str) -> AnyFrontier:
        return self._reported[processor].completed

    def collectable(self, processor: str) -> AnyFrontier:
        """Return the times whose records are garbage; the last checkpoint within is kept for a rollback."""
        return self.stable(processor)

    def needless(self, edge: str) -> AnyFrontier:
        """Return the times of an edge's sender whose messages the receiver will never need again."""
        ends = self._graph.edges[edge]
        self.stable(ends.target)
        if self._rests_on_messages(ends.source):
            self.stable(ends.source)
        return self._passed(edge) & self._reported[ends.source].completed

    def settled(self, processor: str) -> AnyFrontier:
        """Return the collectable times whose messages are needless, so that their determinants are garbage, too.

        Determinants outlive stability, because a message is identified by its time, which may mean nothing without
        them. And a receiver may still have to take a message of a closed time, though after a failure of everything it
        would continue from a later checkpoint of an earlier incarnation. The inputs of a source at settled times are
        never read again, and may be acknowledged.
        """
        outputs = (self.needless(edge.name) for edge in self._graph.outputs[processor])
        return reduce(and_, outputs, self.collectable(processor))

    def forget_as(self, other: Monitor) -> None:
        """Drop what another monitor, which knows less, has found collectable; no answer depends on it."""
        for name, reported in self._reported.items():
            stable = other._reported[name].stable
            if not stable <= reported.stable:
                reported.stable = reported.stable | stable
                self._forget(name)

    def releasable(self, sink: str, prefixes: Sequence[AnyFrontier]) -> AnyFrontier | None:
        """Return the largest of some frontiers that may be committed to a sink at once; None if none may.

        This is the release rule: a sink may hold a frontier that remains fixed if everything fails while the sink holds
        exactly this frontier. If a sender can only restart after several times together, no single one of them may be
        committed, but all may, in one atomic commit.

        For a sink without a ledger the rule is stricter: the frontier must remain fixed while the sink holds none of
        it. After a failure it may be unknown what the sink holds, and the same rows must come again. Each of the
        candidates is within the next.
        """
        held = self._of(sink, Kind.SINK).checkpoints[0]
        asked = (sink, tuple(prefixes))
        if asked not in self._releases:
            larger = [f for f in prefixes if not f <= held]
            ledger = self._graph.vertices[sink].ledger
            found = self._largest(sink, held, larger) if ledger else self._certain(sink, larger)
            self._releases[asked] = found or next((f for f in reversed(prefixes) if f <= held), None)
        return self._releases[asked]

    def one_epoch_at_a_time(self, sink: str, frontier: AnyFrontier) -> AnyFrontier | None:
        """Return the part of a releasable frontier that may be committed epoch by epoch; None for no part.

        The sink may die after any of the epochs, so each prefix must be releasable by itself. If every step is
        reproducible that is the whole frontier.
        """
        held = self._of(sink, Kind.SINK).checkpoints[0]
        if frontier <= held or not self._surprises:
            return frontier
        reached = None
        for epoch in range(last_of(held) + 1, last_of(frontier) + 1):
            prefix = Frontier.up_to(epoch)
            if self.releasable(sink, [prefix]) is None:
                break
            reached = prefix
        return reached

    def _largest(self, sink: str, held: AnyFrontier, larger: Sequence[AnyFrontier]) -> AnyFrontier | None:
        """Return the largest releasable frontier beyond the one that the sink holds, if any.

        If fixed times do not follow from inputs alone, the sink is solved for like a processor with checkpoints.
        """
        if not larger:
            return None
        incremental = self._solve()
        for frontier in reversed(larger):
            answer = incremental.releases(sink, frontier)
            if answer is None:
                break
            if answer:
                return frontier
        else:
            return None
        if not self._at_most:
            self._at_most = at_most(self._graph, self.knowledge())
        if not larger[0] <= self._at_most[sink]:
            return None
        chosen = largest(self._graph, self.knowledge(), sink, [held, *larger])
        return chosen if chosen != held else None

    def _certain(self, sink: str, larger: Sequence[AnyFrontier]) -> AnyFrontier | None:
        """Return the largest frontier that remains fixed while a sink holds none of it, if any."""
        incremental = self._solve()
        return next((frontier for frontier in reversed(larger) if incremental.certain(sink, frontier)), None)

    def plan(self, failed: AbstractSet[str]) -> RecoveryPlan:
        """Plan the recovery from a failure of some processors. Nothing changes before `recovered`.

        Raises:
            DataError: `[NO_CONSISTENT_FRONTIER]`.
        """
        return plan_recovery(self._graph, self.knowledge(), failed)

    def knowledge(self) -> dict[str, Knowledge]:
        return {name: self._known(name) for name in self._reported}

    def _known(self, name: str) -> Knowledge:
        if name not in self._knowledge:
            self._knowledge[name] = self._reported[name].known(self._graph)
        return self._knowledge[name]

    def _named(self, processor: str) -> Reported:
        if processor not in self._reported:
            raise DataError(
                "PROGRAM_CHANGED", f"the log is of a dataflow with {processor}, which this one lacks: run that one"
            )
        return self._reported[processor]

    def _of(self, processor: str, kind: Kind) -> Reported:
        reported = self._named(processor)
        if self._graph.vertices[processor].kind is not kind:
            raise InternalError("INTERNAL", f"{processor} is no {kind.value}")
        return reported

    def _changed(self, processor: str) -> None:
        self._knowledge.pop(processor, None)
        self._grown.add(processor)
        self._drop_answers()

    def _drop_answers(self) -> None:
        self._found.clear()
        self._releases.clear()
        self._at_most = {}

    def _solve(self) -> Incremental:
        """Return the answer to "everything fails now", from all reports."""
        if self._incremental is None:
            self._incremental = Incremental(self._graph, self.knowledge())
        else:
            for processor in self._grown:
                self._incremental.more(processor, self._known(processor))
        self._grown.clear()
        return self._incremental

    def _check_promise(self, edge: str, time: Any) -> None:
        projection = self._graph.edges[edge].projection
        done = self._reported[self._graph.edges[edge].source].completed
        if projection is IDENTITY or done.contains(time):
            return
        arrival, fixed = projection.arrives(time), projection(done)
        if arrival is not None and fixed.contains(arrival):
            raise InvalidError(
                "BAD_PROJECTION",
                f"{projection} of edge {edge} sends {arrival} at {time}, but promised, for {done}, that {fixed} is "
                f"complete: try boatlift.testing.check_projection on it",
            )

    def _passed(self, name: str) -> AnyFrontier:
        """Return the times of an edge's sender whose messages are needless, by the known stable frontiers.

        A time of a nondeterministic sender need not run again while its messages are durable on all edges: so these are
        kept together until the time is stable.
        """
        edge = self._graph.edges[name]
        edge = self._graph.edges[name]
        passed = edge.projection.within(self._reported[edge.target].stable)
        return passed & self._reported[edge.source].stable if self._rests_on_messages(edge.source) else passed

    def _rests_on_messages(self, processor: str) -> bool:
        vertex = self._graph.vertices[processor]
        return vertex.kind is Kind.STATELESS and vertex.chooses and len(self._graph.outputs[processor]) > 1

    def _forget(self, processor: str) -> None:
        """Drop collectable knowledge; no answer depends on it."""
        reported = self._reported[processor]
        reported.forget()
        forgotten = {processor}
        outputs = self._graph.outputs[processor] if self._rests_on_messages(processor) else ()
        for edge in (*self._graph.inputs[processor], *outputs):
            sender = self._reported[edge.source]
            if edge.name in sender.in_flight or edge.name in sender.logged:
                sender.forget_messages(edge.name, self._passed(edge.name))
                forgotten.add(edge.source)
        for name in forgotten:
            self._knowledge.pop(name, None)
            if self._incremental is not None:
                self._incremental.less(name, self._known(name))


def at_most(graph: RecoveryGraph, knowledge: Mapping[str, Knowledge]) -> Mapping[str, AnyFrontier]:
    """Return an upper bound on the releasable frontier of each sink, assuming that no other sink limits it.

    Law: `largest` lies within it, or is the frontier that the sink holds.
    """
    solving = Solving(graph, dict(knowledge), graph.vertices.keys())
    sinks = [name for name, vertex in graph.vertices.items() if vertex.kind is Kind.SINK]
    for sink in sinks:
        everything = all_times(graph.vertices[sink].domain)
        solving.available[sink] = Every(knowledge[sink].checkpoints[0], everything)
        solving.f[sink] = everything
    solving.run()
    return {sink: solving.f[sink] for sink in sinks}


def largest(
    graph: RecoveryGraph, knowledge: Mapping[str, Knowledge], sink: str, prefixes: Sequence[AnyFrontier]
) -> AnyFrontier:
    """Return the largest frontier that a sink may hold: the sink is solved for like a processor with checkpoints.

    Args:
        prefixes: The frontier that the sink holds, and the candidates, each within the next.
    """
    chooses = replace(knowledge[sink], checkpoints=prefixes, completed=prefixes[-1])
    return solve(graph, {**knowledge, sink: chooses}, graph.vertices.keys()).frontier[sink]
