"""Metrics as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector

from boatlift.dataflow.contracts.durations import BOUNDS, Durations
from boatlift.metrics.samples import Sample
from boatlift.metrics.table import MetricKind

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_FAMILIES = {MetricKind.COUNTER: CounterMetricFamily, MetricKind.GAUGE: GaugeMetricFamily}


class _Samples(Collector):
    """What the library formats: nothing but the given samples, and nothing of its own process."""

    def __init__(self, dataflow: str, samples: Iterable[Sample]) -> None:
        self._dataflow, self._samples = dataflow, samples

    def collect(self) -> Iterator[MetricFamily]:
        families: dict[str, MetricFamily] = {}
        for sample in self._samples:
            metric, labels = sample.metric, [self._dataflow, *sample.labels]
            names = ("dataflow", *metric.labels)
            if isinstance(sample.value, Durations):
                family = families.get(metric.name) or HistogramMetricFamily(metric.name, metric.help, labels=names)
                assert isinstance(family, HistogramMetricFamily)
                family.add_metric(labels, _cumulative(sample.value), sample.value.seconds)
            else:
                made = _FAMILIES[metric.kind]
                family = families.get(metric.name) or made(metric.name, metric.help, labels=names)
                assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
                family.add_metric(labels, sample.value)
            families[metric.name] = family
        yield from families.values()


def prometheus_text(dataflow: str, samples: Iterable[Sample]) -> bytes:
    """Return samples in Prometheus' text format, with the dataflow as a label of each."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(dataflow, list(samples)))
    return generate_latest(registry)


def _cumulative(durations: Durations) -> list[tuple[str, float]]:
    """Return buckets as Prometheus has them: each has all that took at most so long."""
    buckets: list[tuple[str, float]] = []
    count = 0
    for bound, number in zip((*map(str, BOUNDS), "+Inf"), durations.counts, strict=True):
        count += number
        buckets.append((bound, count))
    return buckets
