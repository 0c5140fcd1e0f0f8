"""The progress of a machine, and its last transitions, for people: read-only."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.endpoints import SourceProcessor
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.runtime.machine.pressure import Backpressure
from boatlift.times import last_epoch, last_number, maximal_of


class TransitionLog(deque[tuple[str, object]]):
    """The last transitions, each with its kind."""

    def __init__(self) -> None:
        super().__init__(maxlen=40)

    def __str__(self) -> str:
        return "the last transitions were:\n" + "\n".join(f"  {kind:5} {what}" for kind, what in self)


class MachineProgress:
    """A read-only view of a machine, to be shown to people, or compared with a log before the first step."""

    def __init__(
        self, processors: Mapping[str, MachineProcessor], durable: DurableFacts, pressure: Backpressure
    ) -> None:
        self._processors, self._durable, self._pressure = processors, durable, pressure

    def done(self, processor: str) -> int:
        """Return the last step that a processor has executed, or that is staged for a sink; -1 for none."""
        return last_number(maximal_of(self._processors[processor].done))

    def has_state(self, processor: str) -> bool:
        return self._processors[processor].state is not None

    def behind(self, processor: str) -> int:
        """Return how many messages wait at the fullest input of a processor."""
        return max(map(len, self._processors[processor].waiting.values()), default=0)

    def untaken(self, source: str) -> list[tuple[str, str, int]]:
        """Return the messages of a source that wait: reader, edge and time."""
        receivers = self._processors[source].receivers
        return [(p.name, edge.name, time) for edge, p in receivers for time in p.waiting[edge.name]]

    def held_by(self, source: str) -> str:
        """Return by how much of what a source is held back: `steps` or `bytes` behind it; empty if it is not."""
        p = self._processors[source]
        if not isinstance(p, SourceProcessor) or p.ended:
            return ""
        crowded, full = self._pressure.crowded(source), self._pressure.full(source)
        if source in self._pressure.wanted() or (not crowded and source in self._pressure.needed()):
            return ""  # it is polled all the same
        return "steps" if crowded else "bytes" if full else ""

    def bytes_behind(self, processor: str) -> int:
        """Return the bytes of the messages that wait at all inputs of a processor."""
        return sum(queue.size for queue in self._processors[processor].waiting.values())

    def open_epoch(self, batch: str) -> int:
        """Return how many messages wait for the end of a batch's epoch.

        0 while the batch executes one: that epoch has ended.
        """
        p = self._processors[batch]
        return 0 if p.running else sum(map(len, p.waiting.values()))

    def steps_to_go(self) -> int:
        """Return the most steps that any processor can execute without further input."""
        # Messages in a batch's open epoch become a step only when the epoch ends, perhaps never. At a union only
        # complete times count: the others need input of another source.
        return max(
            (
                len(p.running) if isinstance(p, BatchEpochs) else sum(1 for _ in p.upcoming({}, hasten=False))
                for p in self._processors.values()
            ),
            default=0,
        )

    def repeating(self) -> list[str]:
        """Return the processors that have recorded results of steps that they will execute again."""
        results = self._durable.records.results
        return [
            name
            for name, p in self._processors.items()
            if not isinstance(p, SourceProcessor)  # the results of a source are digests of its rows
            if p.rebuild or last_epoch(results.get(name, ())) > last_number(maximal_of(p.done))
        ]

    def has_recorded_input(self) -> bool:
        """Return whether recorded input has still to be taken."""
        determinants = self._durable.records.determinants
        return any(
            any(p.waiting.values())
            or p.running
            or (
                isinstance(p, SourceProcessor)
                and last_epoch(determinants.get(name, ())) > last_number(maximal_of(p.done))
            )
            for name, p in self._processors.items()
        )
