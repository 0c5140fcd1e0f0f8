"""The text for Prometheus, read by Prometheus' own library."""

from __future__ import annotations

from boatlift.dataflow.contracts.durations import BOUNDS, Durations
from boatlift.metrics.prometheus import CONTENT_TYPE, prometheus_text
from boatlift.metrics.samples import Sample
from boatlift.metrics.table import NAMED
from support.metrics import scraped


def test_a_histogram_has_buckets_that_rise_a_sum_and_a_count() -> None:
    durations = Durations()
    for seconds in (0.001, 0.005, 0.006, 0.3, 1000.0):
        durations.add(seconds)
    text = prometheus_text("flow", [Sample(NAMED["boatlift_step_seconds"], ("sums",), durations)])
    found = {(each.name, dict(each.labels).get("le")): each.value for each in scraped(text)}
    assert found["boatlift_step_seconds_count", None] == 5
    assert found["boatlift_step_seconds_sum", None] == 1000.312
    buckets = {float(le): count for (name, le), count in found.items() if name.endswith("_bucket") and le}
    assert buckets == {bound: sum(each <= bound for each in (0.001, 0.005, 0.006, 0.3)) for bound in BOUNDS} | {
        float("inf"): 5
    }


def test_text_of_any_kind_is_a_value_of_a_label() -> None:
    hostile = 'a"b\\c\nd{e="f"} 1\n# HELP x'
    text = prometheus_text("flow", [Sample(NAMED["boatlift_source_waiting"], ("rows", hostile), 7)])
    (found,) = scraped(text)
    assert (found["unit"], found["dataflow"], found.value) == (hostile, "flow", 7)


def test_each_metric_has_its_help_and_its_type_once() -> None:
    steps = NAMED["boatlift_steps_total"]
    lines = prometheus_text("flow", [Sample(steps, (name, "new"), 1) for name in "ab"]).decode().splitlines()
    assert lines == [
        f"# HELP boatlift_steps_total {steps.help}",
        "# TYPE boatlift_steps_total counter",
        'boatlift_steps_total{dataflow="flow",kind="new",processor="a"} 1.0',
        'boatlift_steps_total{dataflow="flow",kind="new",processor="b"} 1.0',
    ]
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")
