"""Backpressure holds sources back.

Every message that waits is a run in scratch (design, section 6). The number of waiting messages limits the duration of
a stop and of a recovery. Their bytes are counted once for each reader, those of a batch's open epoch included. Messages
that were taken are not counted, though their runs stay until no recovery can need them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.endpoints import SinkProcessor, SourceProcessor
from boatlift.runtime.machine.kinds.processor import MachineProcessor


class Backpressure:
    """Counts the messages behind each source, and finds the sources that a processor waits for.

    Each source is limited by its own messages only: so a source whose rows must wait does not stop the others.

    Args:
        most: A source with so many messages behind it is crowded.
        most_bytes: A source with so many bytes of messages behind it is full.
        size_of: A payload to the bytes of its rows in scratch.
    """

    def __init__(
        self, processors: Mapping[str, MachineProcessor], most: int, most_bytes: float, size_of: Callable[[Any], int]
    ) -> None:
        self._processors, self._most, self._most_bytes, self._size_of = processors, most, most_bytes, size_of
        self._behind = {name: self._reach(p, set()) for name, p in processors.items() if isinstance(p, SourceProcessor)}
        edges = {source: list(self._edges(source)) for source in self._behind}
        self._queues = {
            source: [p.waiting[edge] for p, edge in each if not isinstance(p, BatchEpochs)]
            for source, each in edges.items()
        }
        self._all_queues = {source: [p.waiting[edge] for p, edge in each] for source, each in edges.items()}
        self._sinks = {
            source: [p for name in behind if isinstance(p := processors[name], SinkProcessor)]
            for source, behind in self._behind.items()
        }

    def above(self, processor: str) -> set[str]:
        """Return the sources upstream of a processor."""
        return {source for source, behind in self._behind.items() if processor in behind}

    def entangled(self, processor: str, among: Collection[str]) -> set[str]:
        """Return the sources, of some, that are upstream of a processor or share a reader with an upstream source."""
        found = self.above(processor).intersection(among)
        behind = set[str]().union(*(self._behind[name] for name in found))
        while more := {name for name in among if name not in found and behind & self._behind[name]}:
            found |= more
            behind = behind.union(*(self._behind[name] for name in more))
        return found

    def crowded(self, source: str) -> bool:
        """Return whether the most messages wait behind a source.

        Messages for a batch do not count: its open epoch may wait for long.
        """
        queued = sum(map(len, self._queues[source]))
        return queued + sum(len(sink.staged) for sink in self._sinks[source]) >= self._most

    def full(self, source: str) -> bool:
        """Return whether the most bytes of messages wait behind a source."""
        return self.bytes_behind(source) >= self._most_bytes

    def bytes_behind(self, source: str) -> int:
        """Return the bytes of the messages that wait behind a source, a batch's open epoch included."""
        queued = sum(queue.size for queue in self._all_queues[source])
        staged = (m.payload for sink in self._sinks[source] for step in sink.staged.values() for m in step)
        return queued + sum(map(self._size_of, staged))

    def needed(self) -> set[str]:
        """Return the sources whose input the open epoch of a batch needs before it can end."""
        batches = (p for p in self._processors.values() if isinstance(p, BatchEpochs) and p.waits_for_input)
        return set().union(*(self.above(batch.name) for batch in batches))

    def wanted(self) -> set[str]:
        """Return the sources whose input some waiting message needs, however crowded they are."""
        wanted: set[str] = set()
        for sender in (sender for p in self._processors.values() for sender in p.missing_senders()):
            wanted |= {sender.name} if isinstance(sender, SourceProcessor) else self.above(sender.name)
        return wanted

    def _edges(self, source: str) -> Iterator[tuple[MachineProcessor, str]]:
        """Return the edges on which messages of a source may wait, each with the processor that takes them."""
        behind = self._behind[source]
        for p in map(self._processors.__getitem__, behind):
            yield from ((p, edge.name) for edge, sender in p.senders if sender.name in {source, *behind})

    def _reach(self, p: MachineProcessor, reached: set[str]) -> set[str]:
        for _, receiver in p.receivers:
            if receiver.name not in reached:
                reached.add(receiver.name)
                self._reach(receiver, reached)
        return reached
