"""The facts that are durable, and those on their way there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from boatlift.errors import InternalError
from boatlift.recovery import Monitor, RecoveryGraph, RecoveryPlan
from boatlift.recovery.constraints import clear_of
from boatlift.runtime.machine.instructions import AppendLog, Persist
from boatlift.storage.records.facts import (
    Checkpoint,
    Determinant,
    Fact,
    GarbageCollection,
    LoggedInput,
    LoggedMessage,
    LoopEnd,
    Truncation,
    left_of,
    payloads_of,
)
from boatlift.storage.records.live import LiveRecords
from boatlift.times import AnyFrontier, Sequence, all_times, frontier_of, maximal_of, read_frontier

__all__ = ["DurableFacts"]


@dataclass(slots=True)
class _Unpersisted:
    """Facts of a processor that wait until the payloads that they name are durable.

    Facts of one processor stay in order.
    """

    number: int
    processor: str
    facts: tuple[Fact, ...]
    done: bool = False


class DurableFacts:
    """The facts that are durable, the facts that are being written, and the facts that wait to be written.

    Facts become durable in the order in which they were added. So a recovery need not wait for its `Truncation`: every
    fact that is written later has the truncation before it. The truncation voids the facts that were being written,
    here as in the log.

    Facts that name payloads wait until those are durable; they hold up no facts of other processors.

    Attributes:
        records: The durable facts that are live.
        version: Grows whenever facts are added or become durable, or a recovery truncates facts.
    """

    def __init__(self, graph: RecoveryGraph, monitor: Monitor, records: LiveRecords) -> None:
        self._graph, self._monitor = graph, monitor
        self.records = records
        self._next: list[Fact] = []
        self._waiting: list[_Unpersisted] = []
        self._to_persist: list[Persist] = []
        self._persists = 0
        self._under_way: dict[int, tuple[Fact, ...]] = {}
        self._number = 0
        self.version = 0
        for fact in records.facts():
            self._report(fact)

    @property
    def idle(self) -> bool:
        """Return whether no fact is on its way."""
        return not self._next and not self._under_way and not self._waiting

    def add(self, processor: str, facts: Iterable[Fact]) -> None:
        """Add facts of a processor.

        The facts from the first on that names a payload are written together, once all such payloads are durable. A
        logged input without a payload waits behind the inputs that were logged before it: their order in the log is the
        order in which a state is rebuilt.
        """
        added = list(facts)
        self.version += 1
        others_wait = any(each.processor == processor for each in self._waiting)
        at = next((at for at, fact in enumerate(added) if _has_to_wait(fact, others_wait)), len(added))
        self._next += added[:at]
        if at == len(added):
            return
        payloads = tuple(payload for fact in added[at:] for payload in payloads_of(fact))
        self._persists += 1
        self._waiting.append(_Unpersisted(self._persists, processor, tuple(added[at:]), done=not payloads))
        if payloads:
            self._to_persist.append(Persist(self._persists, processor, payloads))

    def persist(self) -> list[Persist]:
        """Return the instructions that make payloads durable before facts name them."""
        orders, self._to_persist = self._to_persist, []
        return orders

    def persisted(self, number: int) -> None:
        """Take note that the payloads of a `Persist` are durable.

        Their facts can be written, those of each processor in order.
        """
        waiting: set[str] = set()
        left = []
        for each in self._waiting:
            each.done = each.done or each.number == number
            if each.done and each.processor not in waiting:
                self._next += each.facts
            else:
                waiting.add(each.processor)
                left.append(each)
        self._waiting = left

    def needless(self, edge: str) -> AnyFrontier:
        """Return the times of an edge's sender whose messages the receiver will not ask for again, whatever fails."""
        return self._monitor.needless(edge)

    def write(self) -> AppendLog | None:
        """Return the instruction that writes all facts that can be written; None if there are none."""
        if not self._next:
            return None
        self._number += 1
        facts = self._under_way[self._number] = tuple(self._next)
        self._next.clear()
        return AppendLog(self._number, facts)

    def secured(self, processors: Iterable[str]) -> dict[str, AnyFrontier]:
        """Return the times of processors of which no message or state is on its way.

        Args:
            processors: Processors whose messages and states all become durable.
        """
        found = {name: all_times(self._graph.vertices[name].domain) for name in processors}
        sent: dict[str, list[Any]] = {name: [] for name in found}
        for fact in self._on_the_way():
            if isinstance(fact, LoggedMessage):
                sender = self._graph.edges[fact.edge].source
                if sender in sent:
                    sent[sender].append(fact.time)
            elif isinstance(fact, Checkpoint) and fact.processor in found:
                before = self.records.checkpoint_within(fact.processor, read_frontier(fact.frontier))
                domain = self._graph.vertices[fact.processor].domain
                found[fact.processor] &= frontier_of(domain, () if before is None else before.frontier)
        return {name: limit & clear_of(limit.domain, sent[name]) for name, limit in found.items()}

    def payloads(self) -> Iterator[Any]:
        """Return the payloads that facts name: live ones, and those on their way."""
        for fact in chain(self.records.facts(), self._on_the_way()):
            yield from payloads_of(fact)

    def _on_the_way(self) -> Iterator[Fact]:
        yield from chain.from_iterable(self._under_way.values())
        yield from chain.from_iterable(each.facts for each in self._waiting)
        yield from self._next

    def durable(self, number: int) -> list[Fact]:
        """Take note that an `AppendLog` is durable, and so are all before it. To repeat it changes nothing.

        Returns:
            The facts that became durable.
        """
        if number > self._number:
            raise InternalError("INTERNAL", f"write {number} cannot be durable: {self._number} was the last")
        became = [fact for n in list(self._under_way) if n <= number for fact in self._under_way.pop(n)]
        for fact in became:
            self.records.apply(fact)
            self._report(fact)
        self.version += any(isinstance(fact, LoggedMessage | Checkpoint | Determinant) for fact in became)
        return became

    def cut(self, plan: RecoveryPlan) -> None:
        """Drop the facts of an execution that is gone; the truncation itself becomes durable with the next write."""
        fixed = {p: maximal_of(plan.fixed(p)) for p in plan.processors}
        cut = Truncation(fixed, {e.name: fixed[e.source] for e in self._graph.edges.values()})
        self.records.apply(cut)
        self.version += 1
        # In place: the number of a write stays.
        for number, facts in self._under_way.items():
            self._under_way[number] = _left_of(facts, cut)
        self._next = list(_left_of(self._next, cut))
        self._waiting = [
            each for each in self._waiting if each.processor not in plan.failed
        ]  # its payloads may be lost
        for each in self._waiting:
            each.facts = _left_of(each.facts, cut)
        if plan.recorded or self._under_way:
            self._next.append(cut)

    def _report(self, fact: Fact) -> None:
        """Report a fact to the monitor."""
        monitor, vertices = self._monitor, self._graph.vertices
        match fact:
            case Determinant(processor, time, _, outcome):
                # An order alone does not repeat an event whose processor also chose something that is not recorded.
                vertex = vertices.get(processor)
                ordered = vertex is not None and isinstance(vertex.domain, Sequence)
                if vertex is None or not ordered or vertex.deterministic or outcome is not None:
                    monitor.durable_determinants(processor, time)
            case LoopEnd(processor, time, upto):
                monitor.durable_end(processor, time, upto)
            case LoggedMessage(edge, time):
                monitor.durable_message(edge, time)
            case Checkpoint(processor, frontier) | LoggedInput(processor, _, frontier):
                monitor.durable_checkpoint(processor, frontier_of(vertices[processor].domain, frontier))
            case GarbageCollection():
                for name, vertex in vertices.items():
                    if vertex.divides and name in fact.choices:
                        monitor.durable_input_below(name, frontier_of(vertex.domain, fact.choices[name]))
            case _:
                pass  # digests are compared only; a truncation follows from a plan that the monitor made


def _has_to_wait(fact: Fact, others_wait: bool) -> bool:
    return bool(payloads_of(fact)) or (others_wait and isinstance(fact, LoggedInput))


def _left_of(facts: Iterable[Fact], cut: Truncation) -> tuple[Fact, ...]:
    return tuple(left for fact in facts if (left := left_of(fact, cut)) is not None)
