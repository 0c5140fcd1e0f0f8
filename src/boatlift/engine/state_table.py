"""A unit's keyed state as the driver knows it: a list of runs, and their merging in the background.

Runs are immutable, so a merge reads them while steps go on, and its result takes their place in one assignment.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from boatlift.engine.state import plan_merges
from boatlift.storage.records import RunRef

__all__ = ["StateTable"]

MANY_RUNS = 64
"""With more runs than this for any share of the key groups, a step first waits for the merge under way."""

SINGLE = 4
"""So many single-time runs above the last checkpoint are left alone, for rollbacks that reach no further."""


class StateTable:
    """The runs of one unit.

    Args:
        merge: Merges runs into new ones, each covering a part of the key groups; called on a background thread.
    """

    def __init__(self, merge: Callable[[Sequence[RunRef], Sequence[Path]], list[tuple[RunRef, Path]]]) -> None:
        self._merge = merge
        self._lock = threading.Lock()
        self._runs: dict[str, tuple[RunRef, Path]] = {}
        self._durable: set[str] = set()
        self._inherited: set[str] = set()
        self._captured: set[str] = set()
        self._retired: list[tuple[str, Path]] = []
        self._saved_to = -1
        self._background = ThreadPoolExecutor(1, thread_name_prefix="compaction")
        self._merging: Future[None] | None = None

    def restore(self, runs: Sequence[tuple[RunRef, Path]], time: int) -> None:
        """Makes these durable runs the whole state."""
        with self._lock:
            self._runs = {run.name: (run, path) for run, path in runs}
            self._durable = set(self._runs)
            self._inherited = set(self._runs)
            self._saved_to = time

    def held(self) -> list[tuple[RunRef, Path]]:
        """Gives the runs that make up the state now, to a step that begins.

        With very many runs it waits for the merge under way. Files that were merged away before go now: the step before
        this one has ended, so that nobody reads them but a checkpoint that is being made durable.

        Raises:
            BoatliftError: the last merge failed. Here, before a step's job, nothing of it could be kept by halves.
        """
        if self._merging is not None and (self._merging.done() or self._deepest() > MANY_RUNS):
            self._merging.result()
            self._consider_merging()
        with self._lock:
            free = [path for name, path in self._retired if name not in self._captured]
            self._retired = [(name, path) for name, path in self._retired if name in self._captured]
            held = list(self._runs.values())
        for path in free:
            path.unlink(missing_ok=True)
        return held

    def add(self, runs: Sequence[tuple[RunRef, Path]]) -> None:
        """Adds what a step made, and merges if that pays. It does not fail: what a step made is kept whole or not at all."""
        with self._lock:
            self._runs.update((run.name, (run, path)) for run, path in runs)
        self._consider_merging()

    def capture(self) -> tuple[tuple[RunRef, Path | None], ...]:
        """Names the state's runs, with the file of those that are not durable."""
        with self._lock:
            self._captured = set(self._runs)
            return tuple((run, None if run.name in self._durable else path) for run, path in self._runs.values())

    def saved(self, runs: Sequence[RunRef]) -> None:
        """Learns that runs are durable; what a checkpoint covers may be merged freely."""
        with self._lock:
            self._captured.clear()
            self._durable.update(run.name for run in runs)
            self._saved_to = max([self._saved_to, *(run.last for run in runs)])

    def close(self) -> None:
        """Ends the background thread."""
        self._background.shutdown(wait=True, cancel_futures=True)

    def _deepest(self) -> int:
        """How many runs a task must look into: those of one share of the key groups."""
        with self._lock:
            return max(Counter((run.modulus, run.residue) for run, _ in self._runs.values()).values(), default=0)

    def _consider_merging(self) -> None:
        if self._merging is not None and (not self._merging.done() or self._merging.exception() is not None):
            return
        with self._lock:
            shares: dict[tuple[int, int], list[RunRef]] = {}
            for run, _ in self._runs.values():
                shares.setdefault((run.modulus, run.residue), []).append(run)
            chosen = [
                group for share in shares.values() for group in plan_merges(share, self._saved_to, keep_single=SINGLE)
            ]
            paths = [[self._runs[run.name][1] for run in group] for group in chosen]
        if chosen:
            self._merging = self._background.submit(self._merge_all, chosen, paths)

    def _merge_all(self, chosen: Sequence[Sequence[RunRef]], paths: Sequence[Sequence[Path]]) -> None:
        for group, files in zip(chosen, paths, strict=True):
            merged = self._merge(group, files)
            with self._lock:
                for run in group:
                    _, path = self._runs.pop(run.name)
                    if run.name not in self._inherited:
                        self._retired.append((run.name, path))
                self._runs.update((run.name, (run, path)) for run, path in merged)
