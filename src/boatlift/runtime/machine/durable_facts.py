"""What is durable of processors, and what is on its way there."""

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
    contents_of,
    largest_within,
    left_of,
    maximal_of,
)
from boatlift.storage.records.live import LiveRecords
from boatlift.times import AnyFrontier, Sequence, all_times, frontier_of

__all__ = ["DurableFacts"]


@dataclass(slots=True)
class _Kept:
    """Facts that wait until what they name is durable; of one processor, one after the other."""

    number: int
    processor: str
    facts: tuple[Fact, ...]
    done: bool = False


class DurableFacts:
    """The facts that survive any crash now, what was handed over to become so, and what is to be handed over next.

    Facts become durable in the order in which they were given. So a recovery need not wait for its `Truncation`: whatever is written after it
    and becomes durable, has it before itself. What was under way when it was given is void beyond it, here as there.

    Facts that name states or messages wait until those are durable, and hold up nobody else's.

    Attributes:
        records: What is durable, and stands.
        version: Grows whenever something has been done, or states or messages on their way may be others.
    """

    def __init__(self, graph: RecoveryGraph, monitor: Monitor, records: LiveRecords) -> None:
        self._graph, self._monitor = graph, monitor
        self.records = records
        self._next: list[Fact] = []
        self._keeping: list[_Kept] = []
        self._to_keep: list[Persist] = []
        self._keeps = 0
        self._under_way: dict[int, tuple[Fact, ...]] = {}
        self._number = 0
        self.version = 0
        for fact in records.facts():
            self._report(fact)

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._next and not self._under_way and not self._keeping

    def add(self, processor: str, facts: Iterable[Fact]) -> None:
        """Lets facts of a processor become durable: with the next write; from the first on that names something, together, once that is."""
        given = list(facts)
        self.version += 1
        at = next((at for at, fact in enumerate(given) if contents_of(fact)), len(given))
        self._next += given[:at]
        if at == len(given):
            return
        self._keeps += 1
        self._keeping.append(_Kept(self._keeps, processor, tuple(given[at:])))
        payloads = tuple(payload for fact in given[at:] for payload in contents_of(fact))
        self._to_keep.append(Persist(self._keeps, processor, payloads))

    def persist(self) -> list[Persist]:
        """Hands over what is to be made durable before facts name it."""
        orders, self._to_keep = self._to_keep, []
        return orders

    def persisted(self, number: int) -> None:
        """Learns that what was handed over under a number is durable: the facts can be written, of each processor in order."""
        waiting: set[str] = set()
        left = []
        for each in self._keeping:
            each.done = each.done or each.number == number
            if each.done and each.processor not in waiting:
                self._next += each.facts
            else:
                waiting.add(each.processor)
                left.append(each)
        self._keeping = left

    def write(self) -> AppendLog | None:
        """Hands over what is to become durable; None if nothing is."""
        if not self._next:
            return None
        self._number += 1
        facts = self._under_way[self._number] = tuple(self._next)
        self._next.clear()
        return AppendLog(self._number, facts)

    def secured(self, processors: Iterable[str]) -> dict[str, AnyFrontier]:
        """Gives the times of processors that have everything made durable, without those of which something is on its way."""
        found = {name: all_times(self._graph.vertices[name].domain) for name in processors}
        sent: dict[str, list[Any]] = {name: [] for name in found}
        for fact in self._on_the_way():
            if isinstance(fact, LoggedMessage):
                sender = self._graph.edges[fact.edge].source
                if sender in sent:
                    sent[sender].append(fact.time)
            elif isinstance(fact, Checkpoint) and fact.processor in found:
                before = largest_within(self.records.states.get(fact.processor, {}), fact.frontier)
                found[fact.processor] &= frontier_of(self._graph.vertices[fact.processor].domain, before or ())
        return {name: limit & clear_of(limit.domain, sent[name]) for name, limit in found.items()}

    def payloads(self) -> Iterator[Any]:
        """Gives what facts name: of those that stand, and of those that are on their way."""
        for fact in chain(self.records.facts(), self._on_the_way()):
            yield from contents_of(fact)

    def _on_the_way(self) -> Iterator[Fact]:
        yield from chain.from_iterable(self._under_way.values())
        yield from chain.from_iterable(each.facts for each in self._keeping)
        yield from self._next

    def durable(self, number: int) -> list[Fact]:
        """Learns that a write is durable, and so all before it. Learning it again changes nothing.

        Returns:
            What became durable.
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
        """Drops what belongs to an execution that is gone; the cut itself becomes durable with the next write."""
        fixed = {p: maximal_of(plan.fixed(p)) for p in plan.processors}
        cut = Truncation(fixed, {e.name: fixed[e.source] for e in self._graph.edges.values()})
        self.records.apply(cut)
        self.version += 1
        # In place, so that what is durable under a number is durable.
        for number, facts in self._under_way.items():
            self._under_way[number] = _left_of(facts, cut)
        self._next = list(_left_of(self._next, cut))
        self._keeping = [each for each in self._keeping if each.processor not in plan.failed]  # it may be lost
        for each in self._keeping:
            each.facts = _left_of(each.facts, cut)
        if plan.recorded or self._under_way:
            self._next.append(cut)

    def _report(self, fact: Fact) -> None:
        """Tells the monitor."""
        monitor, vertices = self._monitor, self._graph.vertices
        match fact:
            case Determinant(processor, time, _, outcome):
                # What an order leaves open is lost where it is not recorded: the order alone does not repeat the event.
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
                pass  # results are compared, not reasoned with; a cut is told by the plan it follows from


def _left_of(facts: Iterable[Fact], cut: Truncation) -> tuple[Fact, ...]:
    return tuple(left for fact in facts if (left := left_of(fact, cut)) is not None)
