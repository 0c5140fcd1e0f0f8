"""When sources wait: what they sent waits behind them (design, section 6: queues press back at a bound)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.processor import Processor
from boatlift.runtime.machine.kinds.sink import SinkEnd
from boatlift.runtime.machine.kinds.source import SourceEnd

__all__ = ["Backpressure"]


class Backpressure:
    """How much waits behind each source, and which sources something waits for.

    Each source is held to what waits behind it, so that one whose rows nobody can take yet does not stop the others.

    Args:
        processors: All of them, with their neighbours.
        most: So many messages may wait behind a source before it is asked for more.
    """

    def __init__(self, processors: Mapping[str, Processor], most: int) -> None:
        self._processors, self._most = processors, most
        self._behind = {name: self._reach(p, set()) for name, p in processors.items() if isinstance(p, SourceEnd)}
        self._queues = {source: list(self._edges(source)) for source in self._behind}
        self._sinks = {
            source: [p for name in behind if isinstance(p := processors[name], SinkEnd)]
            for source, behind in self._behind.items()
        }

    def above(self, processor: str) -> set[str]:
        """Gives the sources from which anything comes to a processor."""
        return {source for source, behind in self._behind.items() if processor in behind}

    def crowded(self, source: str) -> bool:
        """Whether as much waits behind a source as may."""
        queued = sum(len(p.waiting[edge]) for p, edge in self._queues[source])
        return queued + sum(len(sink.staged) for sink in self._sinks[source]) >= self._most

    def wanted(self) -> set[str]:
        """Gives the sources without which something that waits can never be taken, however much waits behind them."""
        wanted: set[str] = set()
        for sender in (sender for p in self._processors.values() for sender in p.lacks()):
            wanted |= {sender.name} if isinstance(sender, SourceEnd) else self.above(sender.name)
        return wanted

    def _edges(self, source: str) -> Iterator[tuple[Processor, str]]:
        """Gives the queues behind a source, of what came from it, with who takes from them; a batch lets wait what it wants."""
        behind = self._behind[source]
        for p in map(self._processors.__getitem__, behind):
            if isinstance(p, BatchEpochs):
                continue
            yield from ((p, edge.name) for edge, sender in p.senders if sender.name in {source, *behind})

    def _reach(self, p: Processor, reached: set[str]) -> set[str]:
        for _, receiver in p.receivers:
            if receiver.name not in reached:
                reached.add(receiver.name)
                self._reach(receiver, reached)
        return reached
