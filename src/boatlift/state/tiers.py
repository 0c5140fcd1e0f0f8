"""Chooses the runs to merge. Pure: nothing is read or written."""

from __future__ import annotations

from collections.abc import Sequence

from boatlift.storage.records.records import RunRef


def plan_merges(
    runs: Sequence[RunRef],
    stable: int,
    *,
    ratio: int = 8,
    similar: int = 4,
    keep_single: int = 32,
) -> list[tuple[RunRef, ...]]:
    """Choose runs of one task's state to merge, so that look-ups and merges are cheap.

    Runs are divided into tiers by size: tier t has ratio^t to ratio^(t+1) rows. `ratio` runs of one tier are merged,
    with the smaller ones between them in time. Runs near the largest (at least 1/ratio of its rows) cost most to look
    up and, once keys repeat, shrink most when merged: `similar` of them are enough. Only neighbours in time are merged,
    so the interval of a run is exactly that of the steps whose effects it contains.

    Cost, for N keys and steps of m rows: at most (ratio - 1) runs per tier and log_ratio(N/m) tiers, so a look-up reads
    O(log(N/m)) runs. Below the highest tier a row moves up at least one tier each time it is rewritten, or meets rows
    of its own key and vanishes: at most log_ratio(N/m) rewrites per row. In the highest tier a merge writes at most N
    rows and adds at least (similar - 1)·N/ratio others: at most ratio/(similar - 1) + 1 rows written for each row
    added. So a step costs O(m·log(N/m)) in total, whatever N is.

    Rollback drops runs by time. So runs on both sides of the stable frontier are never merged with each other, and a
    run that spans the frontier is not merged until it is below. Above the frontier, rollback can choose among runs of
    single times: up to `keep_single` runs stay there before they are merged among themselves.

    Args:
        stable: The stable frontier: the last time that no failure can roll back; -1: none.
        ratio: The factor between tiers, and the number of runs of a tier that are merged.
        similar: The number of runs near the size of the largest that are merged; 2 to ratio.
        keep_single: The number of runs above the frontier that are not merged.

    Returns:
        Disjoint sets of runs, each to become one run.
    """
    below = sorted((run for run in runs if run.last <= stable), key=_by_time)
    above = sorted((run for run in runs if run.first > stable), key=_by_time)
    merges = _plan(below, ratio, similar)
    if len(above) > keep_single:
        merges += _plan(above, ratio, similar)
    return merges


def _by_time(run: RunRef) -> tuple[int, int]:
    return run.first, run.last


def _plan(runs: Sequence[RunRef], ratio: int, similar: int) -> list[tuple[RunRef, ...]]:
    """Choose among the runs of one side of the frontier, which are in order of time."""
    if len(runs) < 2:
        return []
    largest = max(run.rows for run in runs)
    large = [place for place, run in enumerate(runs) if run.rows * ratio >= largest]
    if len(large) >= similar:
        merge = tuple(runs[large[0] : large[-1] + 1])
        return [merge, *_plan(runs[: large[0]], ratio, ratio), *_plan(runs[large[-1] + 1 :], ratio, ratio)]
    merges: list[tuple[RunRef, ...]] = []
    taken: set[int] = set()
    for tier in sorted({_tier(run, ratio) for run in runs}, reverse=True):
        places: list[int] = []
        for place, run in enumerate([*runs, None]):
            if run is None or place in taken or _tier(run, ratio) > tier:
                if len(places) >= ratio:
                    merges.append(tuple(runs[places[0] : places[-1] + 1]))
                    taken.update(range(places[0], places[-1] + 1))
                places = []
            elif _tier(run, ratio) == tier:
                places.append(place)
    return merges


def _tier(run: RunRef, ratio: int) -> int:
    tier, rows = 0, max(run.rows, 1)
    while rows >= ratio:
        rows //= ratio
        tier += 1
    return tier
