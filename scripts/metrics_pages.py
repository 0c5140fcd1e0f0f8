"""Writes docs/metrics.md, and Grafana's dashboard and Prometheus' alerts in docs/grafana/, from the table of metrics.

`make docs` runs it; tests/metrics/test_pages.py holds them together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from boatlift.dataflow.contracts.durations import BOUNDS
from boatlift.metrics.otlp import LAST_SECONDS, SECONDS
from boatlift.metrics.samples import MOST_DETAILED, MOST_SERIES
from boatlift.metrics.table import DROPPED, NAMED, TABLE, Metric, MetricKind
from boatlift.metrics.traces import SPANS_A_SECOND

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "metrics.md"
DASHBOARD = DOCS / "grafana" / "boatlift.json"
ALERTS = DOCS / "grafana" / "alerts.yaml"

LEVELS = {
    "dataflow": "Of the dataflow",
    "source": "Of sources",
    "processor": "Of processors: units, and sinks in `boatlift_step_failures_total`",
    "sink": "Of sinks",
}

HEADER = f"""\
# Metrics

```
boatlift console --store store        # metrics at http://127.0.0.1:8642/metrics, with the token of the console
```

`GET /metrics` has the metrics of a dataflow as text for Prometheus, at the address of the [console](console.md): from
`boatlift console`, and from the run itself with `boatlift run … --console HOST:PORT` or `bl.run(…, console=…)`. They
come from the store and from the report that a run writes every two seconds. Of a dataflow that does not run, what only
a run knows is absent, and not 0.

Prometheus sends the token as a bearer; put the same text into `BOATLIFT_CONSOLE_TOKEN` of the console:

```yaml
scrape_configs:
  - job_name: boatlift
    authorization: {{credentials_file: /etc/prometheus/boatlift-token}}
    static_configs: [{{targets: ["127.0.0.1:8642"]}}]
```

[A dashboard for Grafana](grafana/boatlift.json) and [alerts for Prometheus](grafana/alerts.yaml) are made from the
table below. Import the one, and name the other in `rule_files`.

## OpenTelemetry

`boatlift run … --otel`, or `bl.run(…, otel=True)`, sends metrics and traces by OTLP over HTTP; it needs the extra
`otel`. Where to, and with what headers, say OpenTelemetry's own variables:

```sh
export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
boatlift run visits:flow --store store --otel
```

Metrics are sent every {SECONDS:g} seconds (`OTEL_METRIC_EXPORT_INTERVAL`, in milliseconds); the column *OpenTelemetry*
has their names, after `boatlift.`, and their units. Labels are attributes, with the same prefix; the dataflow is an
attribute of the resource, and the name of the service unless `OTEL_SERVICE_NAME` gives another.

A trace is a step of a source with all that follows from it: spans `take`, `step` for each unit, `commit` for each sink,
and `checkpoint` and `failure` where there are some, with the attributes `processor`, `step`, `replay`, `rows.in` and
`rows.out`. A batch, and a unit that takes its inputs in order of arrival, has traces of its own; each `step` has links
to the spans of what it took. A replay after a start is a span `recovery`. At most {SPANS_A_SECOND} spans a second are
sent; of quicker steps whole traces are left out.

A receiver that does not answer costs the run nothing but these data, and its end at most {2 * LAST_SECONDS:g} seconds.

## Names

Each metric has the label `dataflow`. Labels name parts of the program, so no restart changes them. Counters and
histograms begin at 0 with each run; the counters of late and bad rows are kept in the state, and go on. Times are in
seconds, sizes in bytes. The buckets of histograms end at {", ".join(f"{each:g}" for each in BOUNDS)}
seconds.

Of more than {MOST_DETAILED} sources, sinks and units together, each histogram is one for the dataflow, with an empty
label; sums and numbers of single units are in `boatlift_busy_seconds_total` and `boatlift_steps_total`. More than
{MOST_SERIES:,} series are never answered: then the last rows of the table are left out, and
`boatlift_metrics_dropped` says how many series these are.

<!-- Written by `make docs` from src/boatlift/metrics/table.py. Not to be edited by hand. -->
"""


def metrics_page() -> str:
    """Return the page, with a table for each level."""
    parts = [HEADER]
    for level, heading in LEVELS.items():
        parts.append(f"\n## {heading}\n\n| metric | kind | labels | OpenTelemetry | meaning |\n|---|---|---|---|---|\n")
        parts += [
            f"| `{each.name}` | {each.kind} | {', '.join(each.labels) or '–'} "
            f"| `{each.otel}`, {each.unit} | {each.help}{'' if each.running else ' †'} |\n"
            for each in (*TABLE, DROPPED)
            if each.level == level
        ]
    parts.append("\n† Known of a store that rests, too.\n")
    return "".join(parts)


OF = '{dataflow=~"$dataflow"}'
OF_PROCESSOR = '{dataflow=~"$dataflow",processor=~"$processor"}'


def _rate(name: str, by: str, of: str = OF, function: str = "rate") -> str:
    return f"sum by ({by}) ({function}({name}{of}[$__rate_interval]))"


def _quantile(name: str, by: str, of: str = OF) -> str:
    return f"histogram_quantile(0.99, {_rate(f'{name}_bucket', f'le, {by}', of)})"


ROWS: dict[str, list[tuple[str, str, str, str]]] = {
    "Is it right?": [
        ("State", "boatlift_state" + OF, "{{state}}", "none"),
        ("Failures", _rate("boatlift_step_failures_total", "processor, condition", function="increase"),
         "{{processor}} {{condition}}", "short"),
        ("Recoveries", _rate("boatlift_recoveries_total", "cause", function="increase"), "{{cause}}", "short"),
        ("Unreachable sources", "boatlift_source_unreachable" + OF, "{{source}}", "none"),
        ("Late rows", _rate("boatlift_late_rows_total", "processor", OF_PROCESSOR), "{{processor}}", "rowsps"),
        ("Bad rows", _rate("boatlift_bad_rows_total", "processor", OF_PROCESSOR), "{{processor}}", "rowsps"),
    ],
    "Is it late?": [
        ("From input to visible rows, p99", _quantile("boatlift_visible_seconds", "sink"), "{{sink}}", "s"),
        ("Age of the oldest input", "boatlift_source_oldest_seconds" + OF, "{{source}}", "s"),
        ("Input that waits", "boatlift_source_waiting" + OF, "{{source}} {{unit}}", "short"),
        ("Age of the watermark", f"time() - boatlift_watermark_timestamp_seconds{OF_PROCESSOR}", "{{processor}}", "s"),
        ("Pushes", _rate("boatlift_push_seconds_count", "source, status"), "{{source}} {{status}}", "reqps"),
        ("Pushes, p99", _quantile("boatlift_push_seconds", "source, status"), "{{source}} {{status}}", "s"),
        ("Visible step", "boatlift_sink_visible_step" + OF, "{{sink}}", "none"),
        ("Rows that become visible", _rate("boatlift_sink_rows_total", "sink"), "{{sink}}", "rowsps"),
    ],
    "What is slow?": [
        ("Share of time busy", _rate("boatlift_busy_seconds_total", "processor", OF_PROCESSOR), "{{processor}}",
         "percentunit"),
        ("Steps, p99", _quantile("boatlift_step_seconds", "processor", OF_PROCESSOR), "{{processor}}", "s"),
        ("Rows read", _rate("boatlift_input_rows_total", "processor", OF_PROCESSOR), "{{processor}}", "rowsps"),
        ("Steps that wait", "boatlift_waiting_steps" + OF_PROCESSOR, "{{processor}}", "short"),
        ("Tasks of a step", "boatlift_tasks" + OF_PROCESSOR, "{{processor}}", "short"),
        ("Share of time held back", _rate("boatlift_source_held_seconds_total", "source, reason"),
         "{{source}}, by {{reason}}", "percentunit"),
        ("Steps", _rate("boatlift_steps_total", "processor, kind", OF_PROCESSOR), "{{processor}} {{kind}}", "ops"),
        ("Commits, p99", _quantile("boatlift_sink_commit_seconds", "sink"), "{{sink}}", "s"),
    ],
    "What would a failure cost?": [
        ("Seconds to repeat", "boatlift_recovery_cost_seconds" + OF, "{{dataflow}}", "s"),
        ("Steps to repeat", "boatlift_recovery_cost_steps" + OF, "{{dataflow}}", "short"),
        ("Recoveries, p99", _quantile("boatlift_recovery_seconds", "cause"), "{{cause}}", "s"),
        ("Age of checkpoints", f"time() - boatlift_checkpoint_timestamp_seconds{OF_PROCESSOR}", "{{processor}}", "s"),
        ("Bytes of checkpoints", _rate("boatlift_checkpoint_bytes_total", "processor", OF_PROCESSOR), "{{processor}}",
         "Bps"),
        ("Standbys that are ready", "boatlift_standby_warm" + OF, "{{host}}:{{pid}}", "none"),
        ("Lag of standbys", "boatlift_standby_lag_seconds" + OF, "{{host}}:{{pid}}", "s"),
        ("Log writes, p99", _quantile("boatlift_log_write_seconds", "dataflow"), "{{dataflow}}", "s"),
    ],
    "What grows?": [
        ("State", "boatlift_state_bytes" + OF_PROCESSOR, "{{processor}}", "bytes"),
        ("Store", "boatlift_store_bytes" + OF, "{{what}}", "bytes"),
        ("Rows on the way", "boatlift_in_flight_bytes" + OF, "{{dataflow}}", "bytes"),
        ("Memory of processes", "boatlift_process_resident_bytes" + OF, "{{process}}", "bytes"),
    ],
}  # fmt: skip
"""Row of the dashboard to its panels: title, expression, legend and unit."""

IN_VAIN = 'sum by (dataflow) (increase(boatlift_sink_steps_total{outcome="written"}[5m])) == 0'

FAILED_UNITS = 'sum by (dataflow) (increase(boatlift_recoveries_total{cause="failure"}[10m]))'

RULES = {
    "BoatliftNothingVisible": (
        f"{IN_VAIN} and on (dataflow) sum by (dataflow) (boatlift_source_waiting) > 0",
        "0m", "no step has become visible for 5 minutes, while input waits"),
    "BoatliftInputLate": ("boatlift_source_oldest_seconds > 60", "1m",
                          "the oldest input of {{ $labels.source }} waits for {{ $value | humanizeDuration }}"),
    "BoatliftNotRunning": ('boatlift_state{state=~"crashed|stuck"} == 1', "1m", "the dataflow is {{ $labels.state }}"),
    "BoatliftCostlyFailure": ("boatlift_recovery_cost_seconds > 60", "5m",
                              "a failure would repeat {{ $value | humanizeDuration }} of work"),
    "BoatliftManyRecoveries": (
        f"{FAILED_UNITS} + on (dataflow) changes(boatlift_claim_timestamp_seconds[10m]) > 3",
        "0m", "there were {{ $value | humanize }} recoveries in 10 minutes"),
    "BoatliftScratchFull": ("boatlift_in_flight_bytes / boatlift_in_flight_limit_bytes > 0.8", "5m",
                            "rows on the way take {{ $value | humanizePercentage }} of their bound"),
}  # fmt: skip
"""Alert to its expression, the time for which it must hold, and what it says."""


def dashboard() -> dict[str, Any]:
    """Return the dashboard, with a row of panels for each question."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "id": len(panels) + 1, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})  # fmt: skip
        for place, (name, expression, legend, unit) in enumerate(row):
            panels.append(
                {
                    "type": "timeseries",
                    "title": name,
                    "description": " ".join(f"{each.name}: {each.help}." for each in named_in(expression)),
                    "id": len(panels) + 1,
                    "datasource": source,
                    "gridPos": {"x": 8 * (place % 3), "y": y + 1 + 7 * (place // 3), "w": 8, "h": 7},
                    "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
                    "targets": [{"datasource": source, "expr": expression, "legendFormat": legend, "refId": "A"}],
                }
            )
        y += 1 + 7 * -(-len(row) // 3)
    query = {"type": "query", "datasource": source, "refresh": 2, "multi": True, "includeAll": True, "allValue": ".*"}
    processors = 'label_values(boatlift_frontier_step{dataflow=~"$dataflow"}, processor)'
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        {"name": "dataflow", "query": "label_values(boatlift_state, dataflow)", **query},
        {
            "name": "processor",
            "query": processors,
            **query,
        },
    ]
    return {
        "title": "Boatlift",
        "uid": "boatlift",
        "tags": ["boatlift", "spark"],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "15s",
        "templating": {"list": variables},
        "panels": panels,
    }


def series_of(name: str, metric: Metric) -> list[str]:
    """Return the series of a metric that expressions may name."""
    return [f"{name}_bucket", f"{name}_count"] if metric.kind is MetricKind.HISTOGRAM else [name]


def named_in(expression: str) -> list[Metric]:
    """Return the metrics of the table that an expression of PromQL names."""
    found = []
    for name, metric in NAMED.items():
        series = series_of(name, metric)
        if any(f"{each}{after}" in f"{expression} " for each in series for after in "{[ )"):
            found.append(metric)
    return found


def alerts() -> str:
    """Return the file of alerts: YAML, written as JSON has strings."""
    rules = [
        f"      - alert: {name}\n        expr: {json.dumps(expression)}\n        for: {held}\n"
        f"        annotations: {{summary: {json.dumps('{{ $labels.dataflow }}: ' + said)}}}\n"
        for name, (expression, held, said) in RULES.items()
    ]
    return "# Written by `make docs` from the table of metrics.\ngroups:\n  - name: boatlift\n    rules:\n" + "".join(
        rules
    )


if __name__ == "__main__":
    DASHBOARD.parent.mkdir(exist_ok=True)
    PAGE.write_text(metrics_page(), encoding="utf-8")
    DASHBOARD.write_text(json.dumps(dashboard(), indent=1) + "\n", encoding="utf-8")
    ALERTS.write_text(alerts(), encoding="utf-8")
    print(f"wrote {PAGE}, {DASHBOARD} and {ALERTS}")
