"""Frames of a machine's memory, and the adoption of the memory of a predecessor (`SoftCheckpoint`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from boatlift.recovery import Kind, Monitor
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.kinds.gathered import CoarseEpochs
from boatlift.runtime.machine.kinds.ordered import ArrivalOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.storage.records.facts import Determinant
from boatlift.storage.records.soft_checkpoints import SoftCheckpoint, SoftFrame, SoftPart
from boatlift.times import Maximal, Time, maximal_of


class SoftFrames:
    """Makes the frames of a machine.

    Args:
        processors, durable: Of the machine.
    """

    def __init__(self, processors: Mapping[str, MachineProcessor], durable: DurableFacts) -> None:
        self._durable = durable
        self._of = {name: p for name, p in processors.items() if p.vertex.kind not in (Kind.SOURCE, Kind.SINK)}
        self._changed = set(self._of)
        self._begun: set[str] = set()  # the processors with a part in an earlier frame that counts
        self._sent: dict[str, dict[str, list[tuple[Time, Any]]]] = {}
        self._unrecorded: dict[str, tuple[int, Determinant | None]] = {}  # how many, and the first
        self._waiting: object = None
        self._needless: dict[str, Maximal] = {}

    def changed(self, processor: str) -> None:
        """Record that the memory of a processor has changed."""
        if processor in self._of:
            self._changed.add(processor)

    def sent(self, processor: str, edge: str, time: Time, payload: Any) -> None:
        """Record that a processor has sent a message."""
        if processor in self._begun:
            self._sent.setdefault(processor, {}).setdefault(edge, []).append((time, payload))

    def needless(self, messages: Mapping[str, Maximal]) -> None:
        """Record edge to the times of messages that no receiver needs any more."""
        self._needless = dict(messages)

    def begin_anew(self) -> None:
        """Record that a recovery has changed everything: the next frame has the memory of every processor."""
        self._changed = set(self._of)
        self._begun.clear()
        self._sent.clear()

    def take(self, failed: Iterable[str]) -> SoftFrame:
        """Return the changes since the last call.

        Args:
            failed: The processors whose memory is lost, until a recovery.
        """
        failed = set(failed)
        if failed:
            self.begin_anew()
        self._changed |= self._durable.take_added() & self._of.keys()
        begins = not self._begun
        present = sorted(name for name in self._changed - failed if not self._of[name].rebuild)
        parts = tuple(self._part(name) for name in present)
        self._begun.update(present)
        self._changed = self._changed & failed | {name for name in self._changed if self._of[name].rebuild}
        waiting = self._durable.waiting()
        same = waiting == self._waiting and not begins
        self._waiting = waiting
        needless, self._needless = self._needless, {}
        return SoftFrame(parts, None if same else waiting, needless, begins)

    def _part(self, name: str) -> SoftPart:
        p, sent = self._of[name], self._sent.pop(name, {})
        begins = name not in self._begun
        known, first = (0, None) if begins else self._unrecorded.get(name, (0, None))
        if known > len(p.unrecorded) or (known and p.unrecorded[0] is not first):  # a checkpoint has recorded them
            known = 0
        self._unrecorded[name] = len(p.unrecorded), next(iter(p.unrecorded), None)
        return SoftPart(
            name,
            maximal_of(p.done),
            p.state,
            {edge: tuple(messages.items() if begins else sent.get(edge, ())) for edge, messages in p.sent.items()},
            begins,
            p.unsaved.steps,
            p.unsaved.since,
            p.replayed,
            tuple(p.unrecorded[known:]),
            recorded=not known,
            kept=dict(p.kept),
            unsaved_rows=p.unsaved.rows,
            unsaved_bytes=p.unsaved.bytes,
        )


def adopt(
    memory: SoftCheckpoint, processors: Mapping[str, MachineProcessor], durable: DurableFacts, monitor: Monitor
) -> frozenset[str]:
    """Give processors the memory of a predecessor, whose facts are all durable or wait in it; return their names."""
    waiting = [(name, facts) for name, facts in memory.waiting if name in memory.parts]
    for name, part in memory.parts.items():
        p, recorded = processors[name], durable.records.determinants.get(name, {})
        own = {
            fact.time: fact
            for other, facts in waiting
            if other == name
            for fact in facts
            if isinstance(fact, Determinant)
        }
        unrecorded = tuple(fact for fact in memory.unrecorded(name) if fact.time not in {*recorded, *own})
        _repeat(p, {**recorded, **own, **{fact.time: fact for fact in unrecorded}})
        p.adopt(replace(part, unrecorded=unrecorded), memory.sent(name))
        monitor.completed(name, p.done)
        for edge, messages in p.sent.items():
            for time in messages:
                monitor.sent(edge, time)
        if p.vertex.kind is Kind.STATEFUL:
            p.hold_state()
            monitor.holds(name, [p.done])
    for name, facts in waiting:
        durable.add(name, facts)
    return frozenset(memory.parts)


def _repeat(p: MachineProcessor, determinants: Mapping[Any, Determinant]) -> None:
    """Repeat choices that are not in the log yet: the order of messages, the ends of epochs."""
    if isinstance(p, ArrivalOrdered):
        while (fact := determinants.get(len(p.order))) is not None:
            p.order.take(str(fact.taken))
    elif isinstance(p, CoarseEpochs):
        while (fact := determinants.get(len(p.cuts))) is not None:
            p.cuts.add(fact.taken)
