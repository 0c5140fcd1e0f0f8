"""The files in scratch that are an engine's, and those of them that may go."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path


class ScratchFiles:
    """The files of runs, by name; safe to use from several threads.

    Laws:
        * A file that was made and not yet delivered stays, whatever is discarded: the host does not know of it yet.
        * Every other file stays as long as the caller of `discard` names it.

    Args:
        folder: The folder of the files; a run's file has the last part of the run's name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._files: set[str] = set()
        self._fresh: set[str] = set()

    def made(self, names: Iterable[str]) -> None:
        """Take note of runs whose result is about to be delivered."""
        names = set(names)
        with self._lock:
            self._files |= names
            self._fresh |= names

    def delivered(self, names: Iterable[str]) -> None:
        """Take note that the host has the results with these runs."""
        with self._lock:
            self._fresh.difference_update(names)

    @property
    def fresh(self) -> AbstractSet[str]:
        """The runs that were made and not yet delivered."""
        with self._lock:
            return set(self._fresh)

    def discard(self, live: Collection[str]) -> None:
        """Delete every file that is neither of a live run nor fresh."""
        with self._lock:
            gone = {name for name in self._files - self._fresh if name not in live}
            self._files -= gone
        for name in gone:
            (self._folder / Path(name).name).unlink(missing_ok=True)
