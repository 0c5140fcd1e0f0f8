"""Columns for charts: what lies between two samples of one run, and nothing between two runs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from boatlift.dataflow.contracts.durations import BOUNDS, Durations
from boatlift.runtime.inspect.contents import kept_in, log_at, store_at
from boatlift.runtime.inspect.series import MOST_POINTS, last_report, quantile, samples_from, series_of
from boatlift.storage.journal import JournalReader
from boatlift.storage.records.journal import RunSample
from support.engine.hosts import open_store, run
from support.engine.memory_engine import MemoryEngine, World

NEVER = 10**15


def sample(at: int, began: int = 0, taken: int = 0, **more: object) -> RunSample:
    return RunSample(at, began, taken, **more)  # type: ignore[arg-type]


def test_a_run_begins_at_zero_and_each_span_has_its_own_rate() -> None:
    series = series_of([sample(10_000, taken=100), sample(20_000, taken=400, waiting=3, fullest="sums")], 0)
    assert (series.at, series.taken) == ([10_000, 20_000], [10.0, 30.0])
    assert (series.waiting, series.fullest) == ([0, 3], ["", "sums"])


def test_the_sample_before_the_window_gives_the_first_rate_and_no_point() -> None:
    series = series_of([sample(10_000, taken=100), sample(20_000, taken=400), sample(30_000, taken=400)], 15_000)
    assert (series.at, series.taken) == ([20_000, 30_000], [30.0, 0.0])


def test_between_two_runs_nothing_is_known() -> None:
    series = series_of([sample(10_000, taken=100), sample(90_000, began=80_000, taken=50)], 0)
    assert series.at == [10_000, 80_000, 90_000]
    assert series.taken == [10.0, None, 5.0]


def test_a_clock_that_was_set_back_leaves_a_gap_and_no_negative_rate() -> None:
    series = series_of([sample(20_000, taken=100), sample(10_000, taken=150), sample(15_000, taken=200)], 0)
    assert (series.at, series.taken) == ([20_000, 10_000, 15_000], [5.0, None, 10.0])


def test_a_report_and_samples_of_a_clock_that_was_ahead_are_left_out(tmp_path: Path) -> None:
    run(MemoryEngine(World()), open_store(tmp_path))
    store = store_at(tmp_path)
    journal = JournalReader(store)
    journal.catch_up()
    assert samples_from(journal, last_report(store), 0, NEVER)
    assert samples_from(journal, last_report(store), 0, 1) == []


def test_of_many_samples_some_are_left_out_and_no_row() -> None:
    samples = [sample(1_000 * n, taken=7 * n) for n in range(1, 5 * MOST_POINTS)]
    series = series_of(samples, 0)
    assert len(series.at) <= MOST_POINTS + 1
    assert series.at[-1] == samples[-1].at
    assert set(series.taken) == {7.0}


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_quantile_is_within_the_bucket_of_the_true_one(share: float) -> None:
    values = sorted(random.Random(1).expovariate(0.5) for _ in range(999))
    durations = Durations()
    for value in values:
        durations.add(value)
    true, found = values[int(share * len(values))], quantile(share, durations.counts)
    assert found is not None
    (bucket,) = {sum(each < bound for bound in BOUNDS) for each in (true, found)}
    assert bucket
    assert quantile(share, [0] * 15) is None
    assert quantile(share, [0] * 14 + [3]) == BOUNDS[-1]


def test_a_run_that_has_stopped_has_its_samples_in_the_journal(tmp_path: Path) -> None:
    world = World()
    run(MemoryEngine(world), open_store(tmp_path))
    store = store_at(tmp_path)
    journal = JournalReader(store)
    journal.catch_up()
    last = samples_from(journal, last_report(store), 0, NEVER)[-1]
    assert last.steps > 0
    assert last.shown > 0
    kept = {each.what: each.size for each in kept_in(store, log_at(tmp_path))}
    assert kept["journal"] > 0
