"""Which files in scratch are an engine's, and which of them may go."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path

__all__ = ["ScratchFiles"]


class ScratchFiles:
    """The files of runs, by name; safe to use from several threads.

    Laws:
        * What was made and not yet delivered stays, whatever is discarded: those who know what is needed have not
          heard of it.
        * Everything else stays as long as somebody names it.

    Args:
        folder: Where they are; a run's file has the last part of its name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._files: set[str] = set()
        self._fresh: set[str] = set()

    def made(self, names: Iterable[str]) -> None:
        """Learns of runs that are about to be handed over."""
        names = set(names)
        with self._lock:
            self._files |= names
            self._fresh |= names

    def delivered(self, names: Iterable[str]) -> None:
        """Learns that runs were handed over."""
        with self._lock:
            self._fresh.difference_update(names)

    @property
    def fresh(self) -> AbstractSet[str]:
        """The runs that were made and not yet delivered."""
        with self._lock:
            return set(self._fresh)

    def discard(self, live: Collection[str]) -> None:
        """Drops every file that is neither among these nor fresh."""
        with self._lock:
            gone = {name for name in self._files - self._fresh if name not in live}
            self._files -= gone
        for name in gone:
            (self._folder / Path(name).name).unlink(missing_ok=True)
