"""A run on Spark is scraped: each metric is one of the table, and says what the status says."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.api.background import Running
from boatlift.metrics.table import NAMED, MetricKind
from boatlift.runtime.host.progress import Progress
from support.metrics import Scraped, scraped
from support.otlp import attributes_of, receiving
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STEPS, ROWS = 5, 1000

SERIES = {
    f"{name}{suffix}": metric
    for name, metric in NAMED.items()
    for suffix in (("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",))
}


def asked(url: str, path: str) -> bytes:
    place, _, token = url.partition("#token=")
    request = urllib.request.Request(f"{place}{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        body: bytes = answer.read()
        return body


class Scrape:
    """The series of one answer, by name and the labels without the dataflow."""

    def __init__(self, running: Running) -> None:
        self.series: list[Scraped] = scraped(asked(running.console, "metrics"))
        self.values = {
            (each.name, *(value for label, value in each.labels if label != "dataflow")): each.value
            for each in self.series
        }

    def __getitem__(self, key: Any) -> float:
        return self.values[key if isinstance(key, tuple) else (key,)]


def test_a_run_is_scraped_and_says_what_the_status_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flow = bl.Dataflow("visits")
    rows = bl.generator({"page": "id % 3", "ms": "10 + id % 7"}, rows_per_step=ROWS, steps=STEPS)
    visits = flow.source("visits", rows)
    pages = visits.group_by("page").agg("pages", F.count("*").alias("visits"), policy=bl.Lazy(every=2))
    pages.sink("kept", bl.sqlite("visits.db", table="pages", key=["page"]))
    running = bl.start(flow, "store", console="127.0.0.1:0", spark=spark)
    try:

        def at_rest() -> Scrape | None:
            """A scrape once all is done, and the run has reported it: then nothing moves any more."""
            found = Scrape(running)
            done = [("boatlift_steps_total", "new", "pages"), ("boatlift_sink_steps_total", "written", "kept")]
            looked = found.values.get(("boatlift_process_resident_bytes", "workers"))  # now and then
            return found if looked and all(found.values.get(each) == STEPS for each in done) else None

        until(lambda: bl.status("store").activity)
        found = until(at_rest)
        status = running.status()
    finally:
        running.stop()
    for each in found.series:
        metric = SERIES[each.name]
        labels = {label for label, _ in each.labels} - {"le"}
        assert labels == {"dataflow", *metric.labels}, each
        assert each["dataflow"] == "visits"
    for name, unit in status.processors.items():
        assert found["boatlift_frontier_step", "executed", name] == unit.executed == STEPS - 1
        assert found["boatlift_frontier_step", "durable", name] == unit.checkpoint
        assert found["boatlift_frontier_step", "stable", name] == unit.stable
    assert status.activity is not None
    pages_done = status.activity.units["pages"]
    assert found["boatlift_steps_total", "replay", "pages"] == 0
    assert found["boatlift_input_rows_total", "pages"] == pages_done.rows == STEPS * ROWS
    assert found["boatlift_output_rows_total", "pages"] == pages_done.rows_out
    assert found["boatlift_step_seconds_count", "pages"] == STEPS
    assert 1 <= found["boatlift_tasks", "pages"] <= spark.sparkContext.defaultParallelism
    assert found["boatlift_busy_seconds_total", "pages"] == pytest.approx(found["boatlift_step_seconds_sum", "pages"])
    assert found["boatlift_checkpoints_total", "pages"] >= 1
    assert found["boatlift_checkpoint_bytes_total", "pages"] > 0
    assert found["boatlift_state_rows", "pages"] >= 3
    assert found["boatlift_sink_visible_step", "kept"] == status.activity.sinks["kept"] == STEPS - 1
    assert found["boatlift_sink_rows_total", "kept"] == 3 * STEPS
    assert found["boatlift_visible_seconds_count", "kept"] == STEPS
    assert found["boatlift_visible_seconds_sum", "kept"] > 0
    assert found["boatlift_source_rows_total", "visits"] == STEPS * ROWS
    assert found["boatlift_source_steps_total", "visits"] == STEPS
    assert found["boatlift_source_closed_step", "visits"] == status.closed["visits"]
    assert found["boatlift_state", "alive"] == 1
    assert found["boatlift_recoveries_total", "start"] == 1
    assert found["boatlift_recovery_seconds_count", "start"] == 1
    assert found["boatlift_recovery_seconds_count", "failure"] == 0
    assert found["boatlift_source_held_seconds_total", "steps", "visits"] >= 0
    assert found["boatlift_process_resident_bytes", "driver"] > 50 << 20
    assert found["boatlift_process_resident_bytes", "jvm"] > 100 << 20
    assert found["boatlift_process_resident_bytes", "workers"] > 10 << 20
    (versions,) = [each for each in found.series if each.name == "boatlift_build_info"]
    assert (versions["spark"], versions["version"]) == (spark.version, bl.__version__)
    with pytest.raises(OSError):  # the console ends with its run
        asked(running.console, "metrics")


def test_a_run_that_takes_pushes_tells_how_they_were_answered(spark: SparkSession, tmp_path: Path) -> None:
    flow = bl.Dataflow("orders")
    rows = flow.source("pushed", bl.push("id LONG NOT NULL", listen="127.0.0.1:0"))
    rows.sink("kept", bl.parquet(str(tmp_path / "rows")))
    where: list[str] = []

    def told(progress: Progress) -> None:
        if progress.what == "listening":
            where.append(progress.where)

    running = bl.start(flow, tmp_path / "store", console="127.0.0.1:0", spark=spark, on_progress=told)
    try:
        until(lambda: where)
        for number in range(3):
            urllib.request.urlopen(urllib.request.Request(where[0], b'{"id": %d}' % number), timeout=60).close()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.request.Request(where[0], b'{"id": "x"}'), timeout=60)
        with pytest.raises(urllib.error.HTTPError, match="404"):  # no push of this source
            urllib.request.urlopen(urllib.request.Request(f"{where[0]}s", b'{"id": 4}'), timeout=60)

        def all_told() -> Scrape | None:
            found = Scrape(running)
            counts = [found.values.get(("boatlift_push_seconds_count", "pushed", each)) for each in ("200", "400")]
            return found if counts == [3, 1] else None

        until(lambda: bl.status(tmp_path / "store").activity)
        found = until(all_told)
    finally:
        running.stop()
    assert found["boatlift_push_seconds_sum", "pushed", "200"] > 0
    assert ("boatlift_push_seconds_count", "pushed", "404") not in found.values


def test_a_console_that_cannot_be_served_starts_nothing(spark: SparkSession, tmp_path: Path) -> None:
    flow = bl.Dataflow("flow")
    flow.source("rows", bl.generator({"k": "id"}, rows_per_step=1, steps=1)).sink(
        "copy", bl.parquet(str(tmp_path / "copy"))
    )
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] listen is 'here': give host:port"):
        bl.start(flow, tmp_path / "store", console="here", spark=spark)
    assert not (tmp_path / "store").exists()
    bl.start(flow, tmp_path / "store", console="127.0.0.1:0", available_now=True, spark=spark).wait()


def test_a_run_sends_the_same_metrics_and_a_trace_for_each_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    flow = bl.Dataflow("visits")
    visits = flow.source("visits", bl.generator({"page": "id % 3"}, rows_per_step=ROWS, steps=STEPS))
    pages = visits.group_by("page").agg("pages", F.count("*").alias("visits"))
    pages.sink("kept", bl.sqlite("visits.db", table="pages", key=["page"]))
    with receiving(monkeypatch) as receiver:
        running = bl.start(flow, "store", otel=True, spark=spark)

        def done() -> bool:
            values = receiver.values(receiver.metrics[-1]) if receiver.metrics else {}
            steps = values.get(("boatlift.steps", "pages", "new"))
            commits = values.get(("boatlift.sink.steps", "kept", "written"))
            return all(each is not None and each.as_int == STEPS for each in (steps, commits))

        until(done)
        values = receiver.values(receiver.metrics[-1])
        running.stop()
    assert values["boatlift.source.rows", "visits"].as_int == STEPS * ROWS
    assert values["boatlift.step.duration", "pages"].count == STEPS
    by_trace: dict[bytes, list[str]] = {}
    for span in receiver.spans:
        by_trace.setdefault(span.trace_id, []).append(span.name)
    assert len(by_trace) == STEPS
    for names in by_trace.values():
        assert {"take", "step", "commit"} <= set(names)
    steps = [attributes_of(span) for span in receiver.spans if span.name == "step"]
    assert [each["boatlift.step"] for each in steps] == [*range(STEPS)]
    assert {each["boatlift.rows.in"] for each in steps} == {ROWS}


def test_steps_of_a_lookup_link_the_steps_that_they_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps have traces of their own: links alone say what led to them."""
    flow = bl.Dataflow("asked")
    sums = flow.source("rows", bl.generator({"k": "id % 3"}, rows_per_step=9, steps=2)).group_by("k")
    counts = sums.agg("counts", F.count("*").alias("n"))
    queries = flow.source("queries", bl.generator({"k": "id % 3"}, rows_per_step=3, steps=3))
    found = queries.lookup("found", counts=counts.by("k"))
    found.sink("answers", bl.parquet(str(tmp_path / "answers")))
    with receiving(monkeypatch) as receiver:
        bl.run(flow, tmp_path / "store", otel=True, available_now=True, spark=spark)
    spans = {span.span_id: (span.name, attributes_of(span)) for span in receiver.spans}
    linked: dict[str, set[tuple[str, str, int]]] = {}
    for span in receiver.spans:
        for link in span.links:
            name, attributes = spans[link.span_id]
            read = (name, attributes["boatlift.processor"], attributes["boatlift.step"])
            linked.setdefault(attributes_of(span)["boatlift.processor"], set()).add(read)
    assert linked["counts"] == {("take", "rows", 0), ("take", "rows", 1)}
    assert linked["found"] == {
        *(("take", "queries", step) for step in range(3)),
        *(("step", "counts", step) for step in range(2)),
    }
