"""Garbage collection: data that no recovery can need is found, recorded as garbage, then deleted or acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile

from boatlift.recovery import Monitor
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.instructions import Acknowledge, CollectGarbage, Instruction
from boatlift.runtime.machine.kinds.endpoints import SourceProcessor
from boatlift.runtime.machine.kinds.ordered import ArrivalOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.runtime.machine.program import Program
from boatlift.runtime.machine.soft_frames import SoftFrames
from boatlift.storage.records.facts import GarbageCollection
from boatlift.times import frontier_of, maximal_of


class GarbageCollector:
    """Collects garbage after every so many durable facts.

    Nothing is deleted or acknowledged before the `GarbageCollection` fact is durable: a later owner must know it.
    """

    def __init__(
        self,
        program: Program,
        processors: Mapping[str, MachineProcessor],
        monitor: Monitor,
        durable: DurableFacts,
        collect_after: int,
        soft: SoftFrames,
    ) -> None:
        self._soft = soft
        self._program, self._processors, self._monitor, self._durable = program, processors, monitor, durable
        self._collect_after = collect_after
        self._facts = 0
        self._garbage = durable.records.collected

    def count(self) -> None:
        """Count a durable fact."""
        self._facts += 1

    def collect(self, *, at_once: bool = False) -> None:
        """Record the garbage, if enough facts have become durable since the last time, or at once."""
        if self._facts >= self._collect_after or at_once:
            self._facts = 0
            garbage = self._found()
            if garbage != self._garbage:
                self._garbage = garbage
                self._durable.add("", [garbage])
                self._soft.needless(garbage.messages)

    def collected(self, garbage: GarbageCollection) -> Iterator[Instruction]:
        """Return the instructions that follow from a durable `GarbageCollection`."""
        yield CollectGarbage()
        self._program.forget(garbage)
        yield from self._acknowledged(garbage)

    def acknowledge_again(self) -> Iterator[Instruction]:
        """Return the acknowledgements of all garbage: a source may have missed those of an earlier owner."""
        yield from self._acknowledged(self._garbage)

    def _acknowledged(self, garbage: GarbageCollection) -> Iterator[Acknowledge]:
        for source in self._processors.values():
            if isinstance(source, SourceProcessor):
                frontier = frontier_of(source.vertex.domain, garbage.choices.get(source.name, ()))
                if not frontier <= source.acknowledged:
                    source.acknowledged = frontier
                    yield Acknowledge(source.name, frontier)

    def _found(self) -> GarbageCollection:
        """Return all garbage, and drop it from memory."""
        states, determinants, messages = {}, {}, {}
        for name, p in self._processors.items():
            for edge in p.outputs:
                needless = self._monitor.needless(edge.name)
                messages[edge.name] = maximal_of(needless)
                sent = p.sent[edge.name]  # in order of time, so that the scan ends at the first that stays
                for time in [*takewhile(needless.contains, sent)]:
                    del sent[time]
            states[name] = maximal_of(self._monitor.collectable(name))
            settled = self._monitor.settled(name)
            if isinstance(p, ArrivalOrdered):
                settled = p.order.prefix(p.order.within(settled))
            determinants[name] = maximal_of(settled)
        return GarbageCollection(states, determinants, messages)
