"""A unit's keyed state on the driver: lists of runs, which are merged in the background.

A state is an immutable list of runs, and a rollback returns to an older list. Merges change no list. A merged run can
replace several others: `resolve` puts it in their place when a step begins.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from boatlift.state.key_groups import Share
from boatlift.state.tiers import plan_merges
from boatlift.storage.records.records import RunRef

MANY_RUNS = 64
"""With more runs than this in a share of the key groups, a step first waits for the merge under way."""

SINGLE = 4
"""The number of runs above the last checkpoint that are not merged, so that rollback can choose among single times."""


class MergeRuns(Protocol):
    """Merges runs of a state, all of one share of the key groups; `oldest`: no other run is older."""

    def __call__(self, runs: Sequence[RunRef], /, *, oldest: bool) -> list[RunRef]:
        """Return the merged runs, each with a part of the key groups."""


@dataclass(frozen=True, slots=True)
class _Merged:
    """Merged runs, and the names of the runs that they replace."""

    replaced: frozenset[str]
    runs: tuple[RunRef, ...]


class StateTable:
    """The states of one unit; runs are merged on a background thread."""

    def __init__(self, merge: MergeRuns) -> None:
        self._merge = merge
        self._lock = threading.Lock()
        self._merged: list[_Merged] = []
        self._being_merged: set[str] = set()
        self._saved_to = -1
        self._background = ThreadPoolExecutor(1, thread_name_prefix="compaction")
        self._merging: Future[None] | None = None

    def resolve(self, state: Sequence[RunRef]) -> list[RunRef]:
        """Return the runs of a state for a step, with merged runs in place of their inputs.

        With very many runs the call waits for the merge under way.

        Raises:
            BoatliftError: the last merge failed. It is raised here, before the step's job, so that no step is kept
                partially.
        """
        if self._merging is not None:
            shares = Counter((run.modulus, run.residue) for run in state)
            if self._merging.done() or max(shares.values(), default=0) > MANY_RUNS:
                self._merging.result()
                self._merging = None
        with self._lock:
            merged = list(self._merged)
        runs = {run.name: run for run in state}
        for one in merged:
            if one.replaced <= runs.keys():
                runs = {name: run for name, run in runs.items() if name not in one.replaced}
                runs.update((run.name, run) for run in one.runs)
        return list(runs.values())

    def grown(self, state: Sequence[RunRef]) -> None:
        """Record the newest state, and begin to merge if that pays.

        The call does not fail, because it follows a step, whose results are kept completely or not at all.
        """
        if self._merging is not None and (not self._merging.done() or self._merging.exception() is not None):
            return
        shares: dict[tuple[int, int], list[RunRef]] = {}
        runs = self.resolve(state)
        for run in runs:
            shares.setdefault((run.modulus, run.residue), []).append(run)
        groups = [each for share in shares.values() for each in plan_merges(share, self._saved_to, keep_single=SINGLE)]
        if groups:
            with self._lock:
                self._being_merged = {run.name for group in groups for run in group}
            self._merging = self._background.submit(
                self._merge_all, [(group, _oldest(group, runs)) for group in groups]
            )

    def saved(self, runs: Sequence[RunRef]) -> None:
        """Record that a state is durable, so that its runs may be merged freely."""
        self._saved_to = max([self._saved_to, *(run.last for run in runs)])

    def holds(self) -> AbstractSet[str]:
        """Return the names of merged runs, and of their inputs during a merge."""
        with self._lock:
            return self._being_merged | {run.name for merged in self._merged for run in merged.runs}

    def forget(self, live: Collection[str]) -> None:
        """Forget merged runs whose inputs are in no live state any more: in none from which a step may start."""
        with self._lock:
            self._merged = [merged for merged in self._merged if not merged.replaced.isdisjoint(live)]

    def close(self) -> None:
        self._background.shutdown(wait=True, cancel_futures=True)

    def _merge_all(self, groups: Sequence[tuple[Sequence[RunRef], bool]]) -> None:
        try:
            for group, oldest in groups:
                runs = tuple(self._merge(group, oldest=oldest))
                with self._lock:
                    self._merged.append(_Merged(frozenset(run.name for run in group), runs))
        finally:
            with self._lock:
                self._being_merged = set()


def _oldest(group: Sequence[RunRef], state: Sequence[RunRef]) -> bool:
    """Return whether no other run of a state, with keys that the group may have, is older than the group's last.

    Every state with the runs of the group has the same runs before them, so the answer holds for all of these. Expired
    runs are an exception: an older state has them. So rows that expire have no tombstones.
    """
    last, names = max(run.last for run in group), {run.name for run in group}
    share = Share(group[0].modulus, group[0].residue)
    return not any(
        run.name not in names and run.first <= last and Share(run.modulus, run.residue).meets(share) for run in state
    )
