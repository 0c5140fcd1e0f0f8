"""The durable facts, and facts that are being written; the release gate holds sinks back until some are durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import and_
from typing import Any

from boatlift.dataflow import Eager
from boatlift.errors import InternalError
from boatlift.recovery import Kind, Monitor, RecoveryGraph, RecoveryPlan
from boatlift.recovery.constraints import clear_of
from boatlift.runtime.machine.instructions import AppendLog, Persist
from boatlift.runtime.machine.kinds.processor import MachineProcessor
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
from boatlift.storage.records.soft_checkpoints import SoftFrame
from boatlift.times import AnyFrontier, Sequence, all_times, frontier_of, maximal_of, read_frontier


@dataclass(slots=True)
class _Unpersisted:
    """Facts of a processor that wait for their payloads to be durable. Facts of one processor stay in order."""

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
        written: A monitor that knows the durable facts and those that are being written: a sink that carries them, or
            waits for none, may be handed what rests on them. None: there is no such sink.
        held: A monitor that knows the durable facts and those that enough standbys hold; None: none hold any.
        version: Grows whenever facts are added or become durable, or a recovery truncates facts.
    """

    def __init__(
        self,
        graph: RecoveryGraph,
        monitor: Monitor,
        records: LiveRecords,
        new_monitor: Callable[[], Monitor] | None = None,
        *,
        rides: bool = False,
        depths: Mapping[str, int] | None = None,
    ) -> None:
        self._graph, self._monitor = graph, monitor
        self._new_monitor = new_monitor or (lambda: monitor)
        self.records = records
        self._rides, self._depths = rides, depths or {}
        self.written: Monitor | None = None
        self.held: Monitor | None = None
        self._held = dict.fromkeys(self._depths.values(), 0)
        self._owed = False
        self._carried = self._ridden = self._durable = 0
        self._shown: deque[tuple[int, str, AnyFrontier]] = deque()
        self._shown_ahead: deque[tuple[int, str, AnyFrontier]] = deque()
        self._next: list[Fact] = []
        self._waiting: list[_Unpersisted] = []
        self._to_persist: list[Persist] = []
        self._persists = 0
        self._under_way: dict[int, tuple[Fact, ...]] = {}
        self._number = 0
        self._added: set[str] = set()
        self.version = 0
        for fact in records.facts():
            self._report(fact, self._monitor)

    def begin_anew(self) -> None:
        """Make the monitors `written` and `held` anew, from the facts that are left after a recovery."""
        if self._rides:
            self.written = self._new_monitor()
            for fact in chain(self.records.facts(), *self._under_way.values(), self._next):
                self._report(fact, self.written)
        if self._depths:
            self.held = self._new_monitor()
            self._shown_ahead.clear()
            for fact in self.records.facts():
                self._report(fact, self.held)
            for depth, number in self._held.items():
                self._report_held(depth, 0, number)

    def hold_entries(self, holders: int, number: int) -> None:
        """Learn that so many standbys hold the facts of an `AppendLog`, and of all before it."""
        for depth, before in self._held.items():
            if depth <= holders and number > before:
                self._report_held(depth, before, number)
                self._held[depth] = number
        self._report_shown()

    def _report_held(self, depth: int, before: int, number: int) -> None:
        assert self.held is not None, "the machine has started"
        for each in sorted(self._under_way):
            for fact in self._under_way[each] if before < each <= number else ():
                if self._depths.get(self._processor_of(fact)) == depth:
                    self._report(fact, self.held)

    def _processor_of(self, fact: Fact) -> str:
        match fact:
            case LoggedMessage(edge):
                return self._graph.edges[edge].source
            case Determinant() | LoopEnd() | Checkpoint() | LoggedInput():
                return fact.processor
            case _:
                return ""

    def carry(self, *, rides: bool) -> None:
        """Note that a sink is handed steps that rest on facts which are being written.

        Args:
            rides: They rest on more than standbys are known to hold.
        """
        self._carried = max(self._carried, self._number + bool(self._next))
        if rides:
            self._ridden = self._carried

    @property
    def carries(self) -> bool:
        """Whether facts that a sink may have carried are not durable yet: a recovery must not undo them."""
        return self._durable < self._carried

    def hold(self, sink: str, frontier: AnyFrontier, *, stored: bool = True) -> None:
        """Report what a sink holds: to the monitors of durable and of held facts, once these explain it.

        Args:
            stored: The account of the sink is durable; else it is before the next write.
        """
        if self.written is not None:
            self.written.committed(sink, frontier)
        if not stored:
            self._carried, self._owed = self._number + 1, True
        self._shown.append((self._carried, sink, frontier))
        if self.held is not None:
            self._shown_ahead.append((self._ridden, sink, frontier))
        self._report_shown()

    def _report_shown(self) -> None:
        while self._shown and self._shown[0][0] <= self._durable:
            self._monitor.committed(*self._shown.popleft()[1:])
        every = self._graph.vertices.keys() <= self._depths.keys()
        held = max(self._durable, min(self._held.values())) if self._held and every else self._durable
        while self.held is not None and self._shown_ahead and self._shown_ahead[0][0] <= held:
            self.held.committed(*self._shown_ahead.popleft()[1:])

    @property
    def idle(self) -> bool:
        """True while no fact waits or is being written."""
        return not self._next and not self._under_way and not self._waiting

    def add(self, processor: str, facts: Iterable[Fact]) -> None:
        """Add facts of a processor.

        All facts from the first with a payload on are written together, once their payloads are durable. A logged input
        without a payload waits behind the inputs that were logged before it: a state is rebuilt in the order of the
        log.
        """
        added = list(facts)
        self.version += 1
        if added:
            self._added.add(processor)
        others_wait = any(each.processor == processor for each in self._waiting)
        waits = [bool(payloads_of(fact)) or (others_wait and isinstance(fact, LoggedInput)) for fact in added]
        at = waits.index(True) if True in waits else len(added)
        self._write_next(added[:at])
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
        """Let facts whose payloads are durable now be written, those of each processor in order."""
        waiting: set[str] = set()
        left = []
        for each in self._waiting:
            each.done = each.done or each.number == number
            if each.done and each.processor not in waiting:
                self._write_next(each.facts)
            else:
                waiting.add(each.processor)
                left.append(each)
        self._waiting = left

    def _write_next(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self._next.append(fact)
            if self.written is not None:
                self._report(fact, self.written)

    def take_added(self) -> set[str]:
        """Return the processors to which facts were added since the last call."""
        added, self._added = self._added, set()
        return added

    def waiting(self) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
        """Return the facts that wait for payloads to be durable, each with its processor, in the order of `add`."""
        return tuple((each.processor, each.facts) for each in self._waiting)

    def needless(self, edge: str) -> AnyFrontier:
        """Return the sender's times whose messages the receiver will never need again, whatever fails."""
        return self._monitor.needless(edge)

    def write(self, memory: Callable[[], SoftFrame] = SoftFrame) -> AppendLog | None:
        if not (self._next or self._owed):
            return None
        self._owed = False
        self._number += 1
        facts = self._under_way[self._number] = tuple(self._next)
        self._next.clear()
        return AppendLog(self._number, facts, memory())

    def secured(self, processors: Iterable[str]) -> dict[str, AnyFrontier]:
        """Return for each processor the times without a message or state that is still being written.

        Args:
            processors: Processors whose messages and states all become durable.
        """
        found = {name: all_times(self._graph.vertices[name].domain) for name in processors}
        sent: dict[str, list[Any]] = {name: [] for name in found}
        for fact in self._unwritten():
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
        for fact in chain(self.records.facts(), self._unwritten()):
            yield from payloads_of(fact)

    def _unwritten(self) -> Iterator[Fact]:
        yield from chain.from_iterable(self._under_way.values())
        yield from chain.from_iterable(each.facts for each in self._waiting)
        yield from self._next

    def durable(self, number: int) -> list[Fact]:
        """Return the facts that become durable with an `AppendLog`, and all before it; idempotent."""
        if number > self._number:
            raise InternalError("INTERNAL", f"write {number} cannot be durable: {self._number} was the last")
        self._durable = max(self._durable, number)
        became = [fact for n in list(self._under_way) if n <= number for fact in self._under_way.pop(n)]
        for fact in became:
            self.records.apply(fact)
            self._report(fact, self._monitor)
            if self.held is not None:
                self._report(fact, self.held)
        self.version += any(isinstance(fact, LoggedMessage | Checkpoint | Determinant) for fact in became)
        self._report_shown()
        return became

    def cut(self, plan: RecoveryPlan) -> None:
        """Drop the facts of a rolled-back execution; the truncation itself becomes durable with the next write."""
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

    def _report(self, fact: Fact, monitor: Monitor) -> None:
        vertices = self._graph.vertices
        match fact:
            case Determinant(processor, time, _, outcome):
                # An order alone does not repeat an event with another determinant that is not recorded.
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
                pass  # digests are only compared; a truncation follows from a plan that the monitor made


def _left_of(facts: Iterable[Fact], cut: Truncation) -> tuple[Fact, ...]:
    return tuple(left for fact in facts if (left := left_of(fact, cut)) is not None)


class ReleaseGate:
    """Holds a time back from sinks until the messages and states of eager processors that it rests on are durable.

    So a step of an eager processor is never executed again once its effect is visible (design, section 2). The release
    rule alone would release a deterministic step early: the step could be repeated.
    """

    def __init__(self, graph: RecoveryGraph, processors: Mapping[str, MachineProcessor], durable: DurableFacts) -> None:
        self._graph, self._durable = graph, durable
        self._eager = [p for p in processors.values() if isinstance(p.durability.policy, Eager)]
        self._found: Mapping[str, AnyFrontier] = {}
        self._known: tuple[Any, ...] = ()

    def limit(self, sink: str) -> AnyFrontier | None:
        """Return the times that may be released to a sink; None if the program has no eager processor."""
        if not self._eager:
            return None
        now = (self._durable.version, *(p.done for p in self._eager))
        if now != self._known:
            self._known = now
            self._found = self._reached()
        return self._found[sink]

    def _reached(self) -> Mapping[str, AnyFrontier]:
        """Return the greatest fixed point of one rule.

        A time may be released if its inputs may and, at an eager processor, its own messages and state are durable.
        """
        vertices = self._graph.vertices
        secured = self._durable.secured(p.name for p in self._eager)
        own = {p.name: p.done & secured[p.name] for p in self._eager}
        reached: dict[str, AnyFrontier] = {p: all_times(vertex.domain) for p, vertex in vertices.items()}
        changed = True
        while changed:
            changed = False
            for p in self._graph.order:
                if vertices[p].kind is Kind.SOURCE:
                    continue
                inputs = [edge.projection(reached[edge.source]) for edge in self._graph.inputs[p]]
                now = reduce(and_, inputs, own.get(p, reached[p]))
                if now != reached[p]:
                    reached[p], changed = now & reached[p], self._graph.cyclic
        return reached
