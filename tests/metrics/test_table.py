"""The rows of the table: names by the rules of Prometheus and of OpenTelemetry."""

from __future__ import annotations

import re

import pytest

from boatlift.metrics.table import DROPPED, NAMED, TABLE, Metric, MetricKind

ROWS = [*TABLE, DROPPED]

UNITS = {"s": "seconds", "By": "bytes"}

INFO = {"state", "owner_info", "build_info"}


@pytest.mark.parametrize("metric", ROWS, ids=lambda each: each.name)
def test_a_name_says_its_unit_and_whether_it_counts(metric: Metric) -> None:
    assert re.fullmatch(r"boatlift_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    words = metric.name.removesuffix("_total").split("_")
    assert words[-1] == UNITS.get(metric.unit, words[-1])
    assert metric.unit in UNITS or not set(words) & set(UNITS.values())
    assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)*", metric.otel)
    assert metric.unit in UNITS or metric.unit == "1" or re.fullmatch(r"\{[a-z]+\}", metric.unit)


@pytest.mark.parametrize("metric", ROWS, ids=lambda each: each.name)
def test_its_help_is_one_line_that_ends_without_a_stop(metric: Metric) -> None:
    assert metric.help
    assert "\n" not in metric.help
    assert not metric.help.endswith(".")


def test_names_are_unique_and_labels_name_the_program() -> None:
    assert len(NAMED) == len(ROWS) == len({each.otel for each in ROWS})
    labels = {label for each in ROWS for label in each.labels}
    assert labels.isdisjoint({"step", "pid_of_task", "job", "attempt", "dataflow", "le"})
