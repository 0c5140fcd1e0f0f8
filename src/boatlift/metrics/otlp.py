"""Metrics and traces by OTLP over HTTP, from a run itself.

Addresses, headers and limits are those of OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and its like).
A receiver that does not answer costs the run nothing but the data: nothing waits for it but these threads.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from boatlift._version import __version__
from boatlift.dataflow.contracts.durations import BOUNDS, Durations
from boatlift.errors import BoatliftError, InvalidError
from boatlift.metrics.samples import Sample
from boatlift.metrics.table import Metric, MetricKind

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

SECONDS = 15.0
"""From one export of metrics to the next, unless `OTEL_METRIC_EXPORT_INTERVAL` gives other milliseconds."""

LAST_SECONDS = 3.0

PREFIX = "boatlift."

logger = logging.getLogger(__name__)


class AnswersMetrics(Protocol):
    """What metrics are read from: the documents of the console."""

    def metrics(self) -> tuple[str, list[Sample]]:
        """Return the name of the dataflow, and the samples of its metrics."""


def refuse_without_otel() -> None:
    """Refuse to send anything if the extra is not installed.

    Raises:
        InvalidError: `[MISSING_EXTRA]`.
    """
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        raise InvalidError("MISSING_EXTRA", "otel needs OpenTelemetry: pip install 'boatlift[otel]'")


def resource_of(dataflow: str) -> Resource:
    """Return who sends: a dataflow is a service, unless `OTEL_SERVICE_NAME` names another."""
    from opentelemetry.sdk.resources import Resource

    named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": dataflow}
    return Resource.create({"service.version": __version__, "boatlift.dataflow": dataflow, **named})


class MetricsSender:
    """Sends the metrics of a run every `SECONDS`, on a thread of its own, and once more at the end.

    Laws:
        * The values are those of `/metrics`: the samples are the same.
        * Whatever fails is logged, once in a row, and tried again with the next export.

    Args:
        source: Where the samples are read.
        clock: Nanoseconds since 1970.
    """

    def __init__(
        self,
        source: AnswersMetrics,
        dataflow: str,
        clock: Callable[[], int] = time.time_ns,
        seconds: float | None = None,
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        given = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
        usual = int(given) / 1000 if given.isdecimal() and int(given) else SECONDS
        self._seconds = usual if seconds is None else seconds
        self._source, self._dataflow, self._clock = source, dataflow, clock
        self._began = clock()
        self._resource, self._exporter = resource_of(dataflow), OTLPMetricExporter()
        self._ended = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._work, name="boatlift-otel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send a last time, and end; a receiver that does not answer is waited for `LAST_SECONDS` at most."""
        self._ended.set()
        self._thread.join(LAST_SECONDS)
        self._exporter.shutdown()  # ends a pause before another try

    def _work(self) -> None:
        while not self._ended.wait(self._seconds):
            self._send()
        self._send()

    def _send(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        try:
            _, samples = self._source.metrics()
            sent = self._exporter.export(otlp_metrics(samples, self._resource, self._began, self._clock()))
            failed = "" if sent is MetricExportResult.SUCCESS else "the receiver did not take them"
        except BoatliftError as error:  # the store is away, or is not made yet
            failed = str(error)
        except Exception as error:  # noqa: BLE001 - nothing that is sent may end a run
            failed = repr(error)
        if failed and not self._failing:
            logger.warning("%s: metrics were not sent: %s", self._dataflow, failed)
        self._failing = bool(failed)


def otlp_metrics(samples: Sequence[Sample], resource: Resource, began: int, now: int) -> MetricsData:
    """Return samples as OpenTelemetry has them, with sums since the run began.

    Args:
        began, now: Nanoseconds since 1970.
    """
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    points: dict[Metric, list[Any]] = {}
    for sample in samples:
        attributes = _attributes(sample)
        point: Any
        if isinstance(sample.value, Durations):
            count, total = sum(sample.value.counts), sample.value.seconds
            counts = list(sample.value.counts)
            unknown: Any = None  # the smallest and the largest one
            point = export.HistogramDataPoint(
                attributes,
                began,
                now,
                count,
                total,
                counts,
                BOUNDS,
                min=unknown,
                max=unknown,
            )
        else:
            point = export.NumberDataPoint(attributes, began, now, sample.value)
        points.setdefault(sample.metric, []).append(point)
    total_since = export.AggregationTemporality.CUMULATIVE
    data: dict[MetricKind, Callable[[list[Any]], Any]] = {
        MetricKind.GAUGE: export.Gauge,
        MetricKind.COUNTER: lambda each: export.Sum(each, total_since, is_monotonic=True),
        MetricKind.HISTOGRAM: lambda each: export.Histogram(each, total_since),
    }
    metrics = [
        export.Metric(f"{PREFIX}{metric.otel}", metric.help, metric.unit, data[metric.kind](found))
        for metric, found in points.items()
    ]
    scope = InstrumentationScope("boatlift", __version__)
    return export.MetricsData([export.ResourceMetrics(resource, [export.ScopeMetrics(scope, metrics, "")], "")])


def _attributes(sample: Sample) -> Mapping[str, str]:
    """Return the labels as attributes; an empty one is absent."""
    pairs = zip(sample.metric.labels, sample.labels, strict=True)
    return {f"{PREFIX}{name}": value for name, value in pairs if value}


def span_provider(dataflow: str) -> TracerProvider:
    """Return what sends spans in batches, on a thread of the SDK's, until `end_spans`."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource_of(dataflow), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def end_spans(provider: TracerProvider) -> None:
    """Send the last spans; a receiver that does not answer is waited for `LAST_SECONDS` at most."""
    ending = threading.Thread(target=provider.shutdown, name="boatlift-otel-end", daemon=True)
    ending.start()
    ending.join(LAST_SECONDS)
