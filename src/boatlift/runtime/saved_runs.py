"""Which runs are durable, and which of them nobody can need: what saving and collecting threads must agree on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

__all__ = ["SavedRuns"]


class SavedRuns:
    """Keeps the runs of this process's checkpoints apart from garbage; safe to use from several threads.

    A run is *unnamed* from before it is made durable until the log holds the checkpoint that names it: meanwhile
    nothing but this keeps it from being collected.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._durable: set[str] = set()
        self._unnamed: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._durable

    def save(self, names: Iterable[str]) -> None:
        """Learns that a checkpoint of these runs is about to be made."""
        with self._changing:
            self._unnamed.update(names)

    def saved(self, names: Iterable[str]) -> None:
        """Learns that these runs are durable."""
        with self._changing:
            self._durable.update(names)

    def named(self, names: Iterable[str]) -> None:
        """Learns that the log holds a checkpoint of these runs."""
        with self._changing:
            self._unnamed.difference_update(names)

    def take_garbage(self, live: Callable[[], AbstractSet[str]]) -> list[str]:
        """Names the durable runs that no checkpoint names or will name; from now on they count as gone.

        Args:
            live: Gives the runs of all checkpoints that the log holds.
        """
        with self._changing:
            candidates = self._durable - self._unnamed
        # The log is asked last: a checkpoint that becomes durable meanwhile is then in one of the two.
        garbage = candidates - live()
        with self._changing:
            self._durable -= garbage
        return sorted(garbage)
