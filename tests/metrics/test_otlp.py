"""Metrics and spans as a receiver of OTLP gets them."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

import boatlift as bl
from boatlift.api.served import beside_run
from boatlift.dataflow import plan
from boatlift.dataflow.contracts.durations import BOUNDS, Durations
from boatlift.errors import InvalidError
from boatlift.metrics.otlp import PREFIX, MetricsSender, end_spans, span_provider
from boatlift.metrics.samples import Sample
from boatlift.metrics.table import MetricKind
from boatlift.metrics.traces import SPANS_A_SECOND, Traces, clocks_of
from boatlift.runtime.host.progress import Progress
from support.any_connector import ANY
from support.engine.memory_engine import make_plan
from support.engine.memory_flows import batch, lookup
from support.metrics import large, samples_at
from support.otlp import Receiver, attributes_of, receiving
from support.waiting import until

SECOND = 10**9

LOGGER = "boatlift.metrics.otlp"


class Answers:
    """The samples of a store, or an error."""

    def __init__(self, samples: list[Sample]) -> None:
        self.samples, self.error = samples, False

    def metrics(self) -> tuple[str, list[Sample]]:
        if self.error:
            raise InvalidError("STORE_NOT_FOUND", "there is no store yet: give it a moment")
        return "large", self.samples


def sent(answers: Answers, receiver: Receiver) -> None:
    MetricsSender(answers, "large", lambda: 7 * SECOND, seconds=3600).close()
    assert receiver.metrics


def test_a_receiver_gets_the_samples_with_their_kinds_and_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(tmp_path, 2)
    samples = samples_at(tmp_path)
    with receiving(monkeypatch) as receiver:
        sent(Answers(samples), receiver)
    (request,) = receiver.metrics
    (of,) = request.resource_metrics
    resource = attributes_of(of.resource)
    assert (resource["service.name"], resource["boatlift.dataflow"]) == ("large", "large")
    assert resource["service.version"] == bl.__version__
    got = {metric.name: metric for scope in of.scope_metrics for metric in scope.metrics}
    points = receiver.values(request)
    assert len(points) == len(samples)
    kinds = {MetricKind.COUNTER: "sum", MetricKind.GAUGE: "gauge", MetricKind.HISTOGRAM: "histogram"}
    for sample in samples:
        metric = got[f"{PREFIX}{sample.metric.otel}"]
        assert (metric.unit, metric.description) == (sample.metric.unit, sample.metric.help)
        assert metric.WhichOneof("data") == kinds[sample.metric.kind]
        point = points[metric.name, *sample.labels]
        assert point.time_unix_nano == 7 * SECOND
        assert [*attributes_of(point)] == [f"{PREFIX}{label}" for label in sample.metric.labels]
        if isinstance(sample.value, Durations):
            assert (list(point.bucket_counts), list(point.explicit_bounds)) == (sample.value.counts, [*BOUNDS])
            assert (point.count, point.sum) == (sum(sample.value.counts), sample.value.seconds)
            assert not point.HasField("min")
        else:
            assert getattr(point, point.WhichOneof("value")) == sample.value
        if sample.metric.kind is MetricKind.COUNTER:
            assert metric.sum.is_monotonic
            assert metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def test_metrics_are_sent_again_and_again_and_an_error_costs_those_of_one_time_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    large(tmp_path, 2)
    answers = Answers(samples_at(tmp_path))
    answers.error = True
    with receiving(monkeypatch) as receiver, caplog.at_level(logging.WARNING, LOGGER):
        sender = MetricsSender(answers, "large", seconds=0.001)
        until(lambda: caplog.records)
        assert not receiver.metrics
        answers.error = False
        until(lambda: len(receiver.metrics) > 2)
        receiver.status = 400  # it is refused for good, and not tried again
        until(lambda: sum(record.name == LOGGER for record in caplog.records) > 1)
        receiver.status = 200
        before = len(receiver.metrics)
        until(lambda: len(receiver.metrics) > before)
        sender.close()
    assert [record.getMessage().split(": ", 1)[1] for record in caplog.records if record.name == LOGGER] == [
        "metrics were not sent: [STORE_NOT_FOUND] there is no store yet: give it a moment",
        "metrics were not sent: the receiver did not take them",
    ]


def test_the_interval_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "another name")
    large(tmp_path, 2)
    with receiving(monkeypatch) as receiver:
        sender = MetricsSender(Answers(samples_at(tmp_path)), "large")
        until(lambda: len(receiver.metrics) > 1)
        sender.close()
    assert attributes_of(receiver.metrics[0].resource_metrics[0].resource)["service.name"] == "another name"


def test_a_receiver_that_never_answers_keeps_no_run_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    large(tmp_path, 2)
    with receiving(monkeypatch) as receiver:
        receiver.answers.clear()
        sender, provider = MetricsSender(Answers(samples_at(tmp_path)), "large"), span_provider("large")
        provider.get_tracer("test").start_span("step").end()
        end_spans(provider)
        sender.close()  # the receiver answers only after this block
        assert not receiver.metrics
        assert not receiver.traces


CLOCKS = clocks_of(make_plan())


def traced(reports: list[tuple[int, Progress]], monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """Spans of reports, each with its time in nanoseconds."""
    now = [0]
    with receiving(monkeypatch) as receiver:
        provider = span_provider("flow")
        traces = Traces(provider, CLOCKS, lambda: now[0])
        for at, report in reports:
            now[0] = at
            traces.watch(report)
        end_spans(provider)
    return receiver


def test_the_steps_of_an_epoch_are_one_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = []
    for step in range(2):
        at = SECOND * (step + 1)
        reports += [
            (at, Progress("take", "rows", step)),
            (at + 1, Progress("idle", "rows", step)),
            (at + 5_000_000, Progress("step", "clean", step, 10, 8, durationMs=4.0)),
            (at + 9_000_000, Progress("step", "sums", step, 8, 3, durationMs=2.5, replay=step == 0)),
            (at + 9_500_000, Progress("failure", "sums", step, said="[STEP_FAILED] an executor is gone")),
            (at + 10_000_000, Progress("commit", "totals", step, numOutputRows=3, durationMs=1.0)),
            (at + 11_000_000, Progress("checkpoint", "sums", step)),
        ]
    receiver = traced(reports, monkeypatch)
    by_trace = defaultdict(list)
    for span in receiver.spans:
        by_trace[span.trace_id].append(span)
    assert len(by_trace) == 2
    for step, spans in enumerate(by_trace.values()):
        root, *others = spans
        assert [each.name for each in spans] == ["take", "step", "step", "failure", "commit", "checkpoint"]
        assert root.parent_span_id == b""
        assert {each.parent_span_id for each in others} == {root.span_id}
        assert {attributes_of(each)["boatlift.step"] for each in spans} == {step}
        clean, sums, failure, commit, _ = others
        assert clean.end_time_unix_nano == SECOND * (step + 1) + 5_000_000
        assert clean.end_time_unix_nano - clean.start_time_unix_nano == 4_000_000
        assert attributes_of(clean) == {
            "boatlift.processor": "clean", "boatlift.step": step, "boatlift.replay": False,
            "boatlift.rows.in": 10, "boatlift.rows.out": 8,
        }  # fmt: skip
        assert attributes_of(sums)["boatlift.replay"] == (step == 0)
        assert (failure.status.code, failure.status.message) == (2, "[STEP_FAILED] an executor is gone")
        assert attributes_of(commit) == {"boatlift.processor": "totals", "boatlift.step": step, "boatlift.rows.out": 3}


def test_a_step_links_what_it_took_also_of_other_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(name: str, number: int, *reads: tuple[str, int]) -> Progress:
        return Progress("step", name, number, reads=reads)

    reports = [Progress("take", "rows", 0), Progress("take", "rows", 1), step("clean", 0, ("rows", 0))]
    reports += [step("sums", 7, ("rows", 1), ("clean", 0), ("clean", 1))]
    receiver = traced([(SECOND, each) for each in reports], monkeypatch)
    spans = {(each.name, *list(attributes_of(each).values())[:2]): each for each in receiver.spans}

    def linked(*of: object) -> list[tuple[bytes, bytes]]:
        return [(each.trace_id, each.span_id) for each in spans[of].links]

    def at(*of: object) -> tuple[bytes, bytes]:
        return spans[of].trace_id, spans[of].span_id

    assert linked("step", "clean", 0) == [at("take", "rows", 0)]
    assert linked("step", "sums", 7) == [at("take", "rows", 1), at("step", "clean", 0)], "clean 1 was never sent"
    assert len({trace for trace, _ in linked("step", "sums", 7)}) == 2
    assert linked("take", "rows", 0) == []


def test_links_are_known_for_the_newest_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boatlift.metrics.traces.LINKABLE", 2)
    reports = [Progress("take", "rows", number) for number in range(3)]
    reports += [Progress("step", "sums", 2, reads=(("rows", 0), ("rows", 1), ("rows", 2)))]
    receiver = traced([(SECOND, each) for each in reports], monkeypatch)
    (step,) = (each for each in receiver.spans if each.name == "step")
    assert len(step.links) == 2


def test_a_replay_is_a_span_from_its_first_step_to_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = [(SECOND, Progress("replay", "sums", 6, behind=3))]
    reports += [(SECOND * step, Progress("step", "sums", step, replay=step < 7)) for step in range(4, 9)]
    (recovery,) = (span for span in traced(reports, monkeypatch).spans if span.name == "recovery")
    assert (recovery.start_time_unix_nano, recovery.end_time_unix_nano) == (SECOND, 6 * SECOND)
    assert attributes_of(recovery) == {"boatlift.processor": "sums", "boatlift.step": 6, "boatlift.steps": 3}


def test_of_quick_steps_whole_traces_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, steps, names = 10, 2_000, ["rows", "clean", "sums", "all", "totals"]
    assert set(names) == set(CLOCKS)
    kinds = {"rows": "take", "all": "commit", "totals": "commit"}
    reports = [
        (SECOND + step * seconds * SECOND // steps, Progress(kinds.get(name, "step"), name, step))
        for step in range(steps)
        for name in names
    ]
    spans = traced(reports, monkeypatch).spans
    assert seconds * SPANS_A_SECOND * 0.9 <= len(spans) <= (seconds + 1) * SPANS_A_SECOND + len(names)
    assert set(Counter(span.trace_id for span in spans).values()) == {len(names)}


def test_units_with_steps_of_their_own_have_traces_of_their_own() -> None:
    assert set(CLOCKS.values()) == {""}
    looked_up = clocks_of(lookup())
    assert looked_up["asked"] == "asked"
    assert {looked_up[name] for name in ("queries", "sums")} == {""}
    grouped = clocks_of(batch())
    assert len(set(grouped.values())) == 2


def test_a_store_that_has_no_place_is_refused() -> None:
    flow = bl.Dataflow("flow")
    flow.source("rows", ANY).transform("clean", ANY).sink("all", ANY)
    with (
        pytest.raises(
            bl.InvalidError, match=r"\[BAD_OPTION\] otel reads a store by its place: run with store='FOLDER'"
        ),
        beside_run(object(), traced=plan(flow), said=print, noticed=print),  # type: ignore[arg-type]
    ):
        pass
