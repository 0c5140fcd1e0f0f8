"""The page, the dashboard and the alerts are those that the table makes, and their expressions are PromQL."""

from __future__ import annotations

import json
import re
from typing import Any

import promql_parser
import pytest
import yaml

from boatlift.console.serve import AT
from boatlift.metrics.table import NAMED, MetricKind
from scripts.metrics_pages import ALERTS, DASHBOARD, PAGE, RULES, alerts, dashboard, metrics_page, named_in, series_of

MADE = json.loads(DASHBOARD.read_text(encoding="utf-8"))
PANELS = {each["title"]: each for each in MADE["panels"] if each["type"] != "row"}
RULED = {
    each["alert"]: each for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for each in group["rules"]
}
EXPRESSIONS = {title: panel["targets"][0]["expr"] for title, panel in PANELS.items()}
EXPRESSIONS |= {name: rule["expr"] for name, rule in RULED.items()}


def test_the_files_are_what_the_table_makes() -> None:
    advice = "run `make docs`"
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), advice
    assert dashboard() == MADE, advice
    assert ALERTS.read_text(encoding="utf-8") == alerts(), advice


def test_the_page_has_each_metric_once() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in NAMED if page.count(f"\n| `{name}` |") != 1] == []


def test_the_configuration_of_the_page_asks_where_the_console_listens() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (job,) = yaml.safe_load(block)["scrape_configs"]
    assert job["static_configs"] == [{"targets": [AT]}]
    assert "metrics_path" not in job, "/metrics is Prometheus' own default"
    assert list(job["authorization"]) == ["credentials_file"]


def parsed(expression: str) -> str:
    """An expression after the parser; Grafana puts values in the place of its variables."""
    filled = expression.replace("$__rate_interval", "1m").replace("$dataflow", ".*").replace("$processor", ".*")
    return str(promql_parser.parse(filled))


@pytest.mark.parametrize("title", EXPRESSIONS)
def test_an_expression_is_promql_over_metrics_of_the_table(title: str) -> None:
    expression = EXPRESSIONS[title]
    assert parsed(expression)
    named = set(re.findall(r"boatlift_\w+", expression))
    series = {each: metric for name, metric in NAMED.items() for each in series_of(name, metric)}
    assert named
    assert named <= set(series)
    assert {series[each] for each in named} == set(named_in(expression))
    for name in named:  # a counter is of use by its rate alone, and a gauge has none
        counts = series[name].kind is not MetricKind.GAUGE
        assert bool(re.search(rf"(rate|increase)\({name}\b", expression)) == counts, name
    for word in ("processor", "source", "sink", "dataflow"):
        if f"{{{{{word}}}}}" in PANELS.get(title, {}).get("targets", [{}])[0].get("legendFormat", ""):
            assert word == "dataflow" or all(word in series[each].labels for each in named)


def test_a_wrong_expression_does_not_parse() -> None:
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        parsed("sum by (dataflow (rate(boatlift_steps_total[$__rate_interval]))")


def test_panels_lie_beside_each_other() -> None:
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in MADE["panels"]]
    assert len(set(places)) == len(places)
    assert len({each["id"] for each in MADE["panels"]}) == len(places)
    assert [each["title"] for each in MADE["panels"] if each["type"] == "row"] == [
        "Is it right?", "Is it late?", "What is slow?", "What would a failure cost?", "What grows?",
    ]  # fmt: skip


def test_an_alert_says_of_which_dataflow() -> None:
    assert list(RULED) == list(RULES)
    for rule in RULED.values():
        said: Any = rule["annotations"]["summary"]
        assert said.startswith("{{ $labels.dataflow }}: ")
