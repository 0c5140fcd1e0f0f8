"""Plans of merges: the runs that may be merged with each other, and the cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.state.tiers import plan_merges
from boatlift.storage.records.records import RunRef


def run(first: int, last: int, rows: int) -> RunRef:
    return RunRef(f"{first}-{last}", first, last, 1, 0, rows, rows * 20, "")


def merged(runs: Sequence[RunRef], rows: int) -> RunRef:
    return run(min(r.first for r in runs), max(r.last for r in runs), rows)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 10**6)), max_size=60),
    st.integers(-1, 100),
    st.integers(2, 9),
    st.integers(0, 20),
)
def test_only_neighbours_on_one_side_of_the_frontier(
    lengths: list[tuple[int, int]], stable: int, ratio: int, keep: int
) -> None:
    runs, time = [], 0
    for length, rows in lengths:
        runs.append(run(time, time + length - 1, rows))
        time += length
    plan = plan_merges(runs[::-1], stable, ratio=ratio, similar=min(4, ratio), keep_single=keep)
    seen: set[str] = set()
    above = [r for r in runs if r.first > stable]
    for merge in plan:
        assert len(merge) >= 2
        assert not seen & {r.name for r in merge}
        seen |= {r.name for r in merge}
        assert max(r.last for r in merge) <= stable or (min(r.first for r in merge) > stable and len(above) > keep)
        assert all(a.last + 1 == b.first for a, b in itertools.pairwise(merge))


def test_single_times_above_the_frontier_are_kept_until_there_are_too_many() -> None:
    runs = [run(t, t, 100) for t in range(40)]
    assert plan_merges(runs[:20], -1, keep_single=20) == []
    assert plan_merges(runs[:21], -1, keep_single=20) == [tuple(runs[:21])]
    assert plan_merges(runs[:21], 9, keep_single=20) == [tuple(runs[:10])]


def test_a_run_that_spans_the_frontier_is_left_alone() -> None:
    spanning = run(5, 12, 1000)
    runs = [*(run(t, t, 1000) for t in range(5)), spanning, *(run(t, t, 1000) for t in range(13, 18))]
    assert plan_merges(runs, 9, keep_single=0) == [tuple(runs[:5]), tuple(runs[6:])]


def test_runs_like_the_largest_are_merged_early() -> None:
    runs = [run(0, 9, 1_000_000), *(run(t, t, 600_000) for t in range(10, 13))]
    assert plan_merges(runs, 20) == [tuple(runs)]
    assert plan_merges(runs[:3], 20) == []
    small = [run(0, 9, 1_000_000), *(run(t, t, 1000) for t in range(10, 17))]
    assert plan_merges(small, 20) == []
    assert plan_merges([*small, run(17, 17, 1000)], 20) == [tuple([*small, run(17, 17, 1000)][1:])]


@pytest.mark.parametrize(("step", "keys"), [(1_000, 10_000_000), (1_000, 2_000), (600_000, 1_000_000), (7, 10**9)])
def test_cost_of_a_long_run(step: int, keys: int) -> None:
    """The docstring's argument: few runs at any time, and rows are rewritten a bounded number of times."""
    runs: list[RunRef] = []
    written, most, steps = 0, 0, 3_000
    for time in range(steps):
        runs.append(run(time, time, min(step, keys)))
        for _ in range(10):
            plan = plan_merges(runs, time)
            if not plan:
                break
            for merge in plan:
                # keys drawn from a uniform set: how many distinct ones the merged rows have
                rows = round(keys * -math.expm1(sum(math.log1p(-min(r.rows / keys, 1 - 1e-12)) for r in merge)))
                written += rows
                runs = sorted([*(r for r in runs if r not in merge), merged(merge, rows)], key=lambda r: r.first)
        most = max(most, len(runs))
    tiers = math.log(min(steps * step, keys) / min(step, keys), 8) + 1
    assert most <= 7 * tiers + 8
    assert written <= steps * step * (tiers + 8 / 3 + 1)
