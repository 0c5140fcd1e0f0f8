"""When sources wait: what they sent waits behind them (design, section 6: queues press back at a bound)."""

from __future__ import annotations

from collections.abc import Mapping

from boatlift.runtime.regimes.ends import SinkEnd, SourceEnd
from boatlift.runtime.regimes.processor import Processor

__all__ = ["Pressure"]


class Pressure:
    """How much waits behind each source, and which sources something waits for.

    Each source is held to what waits behind it, so that one whose rows nobody can take yet does not stop the others.

    Args:
        processors: All of them, with their neighbours.
        most: So many messages may wait behind a source before it is asked for more.
    """

    def __init__(self, processors: Mapping[str, Processor], most: int) -> None:
        self._processors, self._most = processors, most
        self._behind = {name: self._reach(p, set()) for name, p in processors.items() if isinstance(p, SourceEnd)}

    def above(self, processor: str) -> set[str]:
        """Gives the sources from which anything comes to a processor."""
        return {source for source, behind in self._behind.items() if processor in behind}

    def crowded(self, source: str) -> bool:
        """Whether as much waits behind a source as may."""
        behind = self._behind[source]
        count = 0
        for name in behind:
            p = self._processors[name]
            count += sum(len(p.waiting[edge.name]) for edge, sender in p.senders if sender.name in {source, *behind})
            count += len(p.staged) if isinstance(p, SinkEnd) else 0
        return count >= self._most

    def wanted(self) -> set[str]:
        """Gives the sources without which something that waits can never be taken, however much waits behind them."""
        wanted: set[str] = set()
        for sender in (sender for p in self._processors.values() for sender in p.lacks()):
            wanted |= {sender.name} if isinstance(sender, SourceEnd) else self.above(sender.name)
        return wanted

    def _reach(self, p: Processor, reached: set[str]) -> set[str]:
        for _, receiver in p.receivers:
            if receiver.name not in reached:
                reached.add(receiver.name)
                self._reach(receiver, reached)
        return reached
