"""The samples of stores: what is known, what is not, and how many series there are at most."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from boatlift.dataflow.contracts.durations import BOUNDS, Durations
from boatlift.metrics import samples
from boatlift.metrics.prometheus import prometheus_text
from boatlift.metrics.samples import MOST_DETAILED, MOST_SERIES, Sample, series_of
from boatlift.metrics.table import NAMED, TABLE, MetricKind
from boatlift.runtime.inspect.explanation import explanation_of
from boatlift.runtime.inspect.status import status_at
from boatlift.storage.records.records import Stopped
from support.engine.hosts import crashed
from support.metrics import NOW, large, lasted, samples_at, scraped

HISTOGRAM = len(BOUNDS) + 3


def value(found: list[Sample], name: str, *labels: str) -> float:
    (sample,) = [each for each in found if each.metric.name == f"boatlift_{name}" and each.labels == labels]
    assert isinstance(sample.value, int | float)
    return sample.value


def test_a_store_that_rests_has_what_it_knows_and_no_counter_of_a_run(tmp_path: Path) -> None:
    log = crashed(tmp_path)
    found = samples_at(tmp_path)
    status, cost = status_at(tmp_path), explanation_of(log, frozenset())
    assert {each.metric.name for each in found if each.metric.running} == set()
    assert value(found, "state", "running or crashed") == 1
    for sink, step in status.sinks.items():
        assert value(found, "sink_visible_step", sink) == step
    for name, unit in status.processors.items():
        steps = {"executed": unit.executed, "durable": unit.checkpoint, "stable": unit.stable}
        assert {frontier: value(found, "frontier_step", name, frontier) for frontier in steps} == steps
    assert value(found, "recovery_cost_steps") == sum(each.steps for each in cost.processors.values()) > 0
    assert value(found, "recovery_cost_seconds") == 30
    assert value(found, "claim_timestamp_seconds") == 1_700_000_000
    assert value(found, "state_bytes", "sums") == len(b"state")


def test_after_a_clean_stop_a_failure_costs_nothing(tmp_path: Path) -> None:
    log = crashed(tmp_path)
    log.append([Stopped()])
    found = samples_at(tmp_path)
    assert (value(found, "recovery_cost_steps"), value(found, "recovery_cost_seconds")) == (0, 0)


def test_every_metric_but_those_of_special_operators_has_a_value_in_a_run(tmp_path: Path) -> None:
    large(tmp_path, 2)
    absent = {each.name for each in TABLE} - {each.metric.name for each in samples_at(tmp_path)}
    assert absent == {
        "boatlift_batch_epoch_steps",
        "boatlift_watermark_timestamp_seconds",
        "boatlift_late_rows_total",
        "boatlift_bad_rows_total",
        "boatlift_standby_behind_objects",
        "boatlift_standby_lag_seconds",
        "boatlift_standby_warm",
        # The run has recorded neither its versions nor a checkpoint, and reports no memory.
        "boatlift_build_info",
        "boatlift_state_rows",
        "boatlift_state_bytes",
        "boatlift_state_files",
        "boatlift_process_resident_bytes",
        "boatlift_last_record_timestamp_seconds",
    }
    assert value(samples_at(tmp_path), "source_oldest_seconds", "rows") == 1.5


def test_input_that_does_not_wait_has_no_age(tmp_path: Path) -> None:
    large(tmp_path, 2)
    assert value(samples_at(tmp_path, NOW - 10_000), "source_oldest_seconds", "rows") == 0


def test_300_units_have_a_bounded_number_of_series(tmp_path: Path) -> None:
    large(tmp_path, 300)
    found = samples_at(tmp_path)
    text = scraped(prometheus_text("large", found))
    assert len(text) == series_of(found) <= 8_000
    assert len(set(text)) == len(text)
    assert value(found, "metrics_dropped") == 0
    histograms = Counter(each.metric.name for each in found if each.metric.kind is MetricKind.HISTOGRAM)
    assert set(histograms.values()) == {1}
    (steps,) = (each.value for each in found if each.metric.name == "boatlift_step_seconds")
    assert isinstance(steps, Durations)
    assert sum(steps.counts) == 3 * 300
    assert value(found, "busy_seconds_total", "after7") == 0.0045
    (all_of_them,) = (each for each in text if each.name == "boatlift_step_seconds_count")
    assert all_of_them["processor"] == ""


def test_a_program_below_the_bound_has_a_histogram_for_each_unit(tmp_path: Path) -> None:
    large(tmp_path, 2)
    counted = {each.labels: each.value for each in samples_at(tmp_path) if each.metric.name == "boatlift_step_seconds"}
    assert counted == {(name,): lasted(3) for name in status_at(tmp_path).processors}
    assert len(status_at(tmp_path).processors) + 2 < MOST_DETAILED


@pytest.mark.parametrize("most", [MOST_SERIES, 500, 40])
def test_no_more_series_are_answered_and_the_others_are_counted(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(tmp_path, 60)
    whole = series_of(samples_at(tmp_path))
    monkeypatch.setattr(samples, "MOST_SERIES", most)
    found = samples_at(tmp_path)
    assert series_of(found) <= most
    dropped = value(found, "metrics_dropped")
    assert series_of(found) + dropped == whole
    assert (dropped > 0) == (most < whole)
    order = [list(NAMED).index(each.metric.name) for each in found]
    assert order == sorted(order)
