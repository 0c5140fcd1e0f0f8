"""The values of the metrics, read from the status of a dataflow and from what its failure would cost.

A value that is not known has no sample: of a dataflow that does not run, the counters of a run are absent, not 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from boatlift.dataflow.contracts.durations import BOUNDS, Durations
from boatlift.metrics.table import DROPPED, NAMED, TABLE, Metric, MetricKind
from boatlift.runtime.host.run_report import ActivityReport
from boatlift.runtime.inspect.contents import KeptReport
from boatlift.runtime.inspect.explanation import Explanation
from boatlift.runtime.inspect.status import DataflowStatus

MOST_DETAILED = 200
"""Of more processors, durations are one histogram for all: each has 17 series, most of what there would be."""

MOST_SERIES = 10_000

_SERIES = {MetricKind.HISTOGRAM: len(BOUNDS) + 3}  # a bucket for each bound and beyond, the sum and the count

_VERSIONS = ("boatlift", "spark", "java", "python")


class Sample(msgspec.Struct, frozen=True):
    """A value of a metric.

    Attributes:
        labels: The values of the metric's labels, without the dataflow.
        value: A histogram's is a `Durations`.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float | Durations


def samples_of(status: DataflowStatus, cost: Explanation, kept: Sequence[KeptReport], now: int) -> list[Sample]:
    """Return all samples, at most `MOST_SERIES` series of them, by the order of the table.

    Args:
        cost: Of a failure of everything.
        kept: What the store keeps.
        now: Milliseconds since 1970.
    """
    found = [*_of_store(status, cost, kept), *_of_waiting_input(status, now)]
    if status.activity is not None:
        found += _of_run(status, status.activity)
    if len(status.processors) + len(status.sinks) + len(status.closed) > MOST_DETAILED:
        found = [*_merged(found)]
    return [*_bounded(found)]


def series_of(samples: Iterable[Sample]) -> int:
    """Return how many series Prometheus makes of some samples."""
    return sum(_SERIES.get(each.metric.kind, 1) for each in samples)


def _sample(name: str, value: float | Durations, *labels: str) -> Sample:
    return Sample(NAMED[f"boatlift_{name}"], labels, value)


def _of_store(status: DataflowStatus, cost: Explanation, kept: Sequence[KeptReport]) -> Iterator[Sample]:
    """Yield what is known of each store, whether or not its dataflow runs."""
    yield _sample("state", 1, status.state)
    if (owner := status.owner) is not None:
        yield _sample("owner_info", 1, owner.host)
        yield _sample("claim_timestamp_seconds", owner.at / 1000)
        if owner.bytes_in_flight:
            yield _sample("in_flight_limit_bytes", owner.bytes_in_flight)
    if status.environment:
        yield _sample("build_info", 1, *(str(status.environment.get(each, "")) for each in _VERSIONS))
    if status.last_record_at:
        yield _sample("last_record_timestamp_seconds", status.last_record_at / 1000)
    yield _sample("in_flight_bytes", status.scratch)
    again = () if status.stopped_cleanly else cost.processors.values()
    yield _sample("recovery_cost_steps", sum(each.steps for each in again))
    yield _sample("recovery_cost_seconds", sum(each.seconds for each in again))
    stored: Counter[str] = Counter()
    for report in kept:
        stored[report.what] += report.size
    for what, size in stored.items():
        yield _sample("store_bytes", size, what)
    running: Mapping[str, int] = {} if status.activity is None else status.activity.sinks
    for sink, step in status.sinks.items():  # the report may be older than the log, and the log than the report
        yield _sample("sink_visible_step", max(step, running.get(sink, -1)), sink)
    for source, step in status.closed.items():
        yield _sample("source_closed_step", step, source)
    for name, unit in status.processors.items():
        for frontier, step in (("executed", unit.executed), ("durable", unit.checkpoint), ("stable", unit.stable)):
            yield _sample("frontier_step", step, name, frontier)
    for name, upkeep in cost.upkeep.items():
        if upkeep.checkpoint >= 0:
            yield _sample("state_rows", sum(part.rows for part in upkeep.state), name)
            yield _sample("state_bytes", sum(part.bytes for part in upkeep.state), name)
            yield _sample("state_files", sum(part.files for part in upkeep.state), name)
    for name, times in status.numbers.get("event_times", {}).items():
        if (bound := getattr(times, "bound", None)) is not None:
            yield _sample("watermark_timestamp_seconds", bound / 1000, name)
        yield _sample("late_rows_total", getattr(times, "late", 0), name)
    for name, bad in status.numbers.get("bad_rows", {}).items():
        yield _sample("bad_rows_total", getattr(bad, "rows", 0), name)


def _of_waiting_input(status: DataflowStatus, now: int) -> Iterator[Sample]:
    if status.input is None:
        return
    for source, waiting in status.input.waiting.items():
        yield _sample("source_waiting", waiting.count, source, waiting.unit)
        if waiting.bytes is not None:
            yield _sample("source_waiting_bytes", waiting.bytes, source)
        if waiting.oldest_at is not None:
            yield _sample("source_oldest_seconds", max(0, now - waiting.oldest_at) / 1000, source)
        elif not waiting.count:
            yield _sample("source_oldest_seconds", 0, source)


def _of_run(status: DataflowStatus, done: ActivityReport) -> Iterator[Sample]:
    """Yield what a living owner has reported."""
    for cause, number in done.recoveries.items():
        yield _sample("recoveries_total", number, cause)
    for cause, durations in done.recovered.items():
        yield _sample("recovery_seconds", durations, cause)
    yield _sample("log_objects_total", done.log.objects)
    yield _sample("log_bytes_total", done.log.bytes)
    yield _sample("log_write_seconds", done.log.writes)
    for standby in status.standbys:
        yield _sample("standby_behind_objects", standby.behind, standby.host, str(standby.pid))
        yield _sample("standby_lag_seconds", standby.lag_seconds, standby.host, str(standby.pid))
        yield _sample("standby_warm", int(standby.ready), standby.host, str(standby.pid))
    if done.process.resident_bytes:
        yield _sample("process_resident_bytes", done.process.resident_bytes, "driver")
    for process, size in done.process.others.items():
        yield _sample("process_resident_bytes", size, process)
    yield _sample("state_memory_bytes", done.process.state_bytes)
    yield _sample("process_cpu_seconds_total", done.process.cpu_seconds, "driver")
    for sink, sums in done.commits.items():
        yield _sample("visible_seconds", sums.visible, sink)
        yield _sample("sink_commit_seconds", sums.commits, sink)
        yield _sample("sink_rows_total", sums.rows, sink)
        for outcome in ("written", "dropped", "left_out"):
            yield _sample("sink_steps_total", getattr(sums, outcome), sink, outcome)
        yield from _failures(sink, sums.failures)
    for source, given in done.sources.items():
        yield _sample("source_steps_total", given.steps, source)
        if given.rows is not None:
            yield _sample("source_rows_total", given.rows, source)
        for reason, seconds in given.held.items():
            yield _sample("source_held_seconds_total", seconds, source, reason)
        for status_code, durations in given.requests.items():
            yield _sample("push_seconds", durations, source, status_code)
        yield _sample("source_unreachable", int(given.unreachable), source)
    for name, unit in done.units.items():
        yield _sample("steps_total", unit.steps - unit.replayed, name, "new")
        yield _sample("steps_total", unit.replayed, name, "replay")
        yield from _failures(name, unit.failures)
        yield _sample("busy_seconds_total", unit.milliseconds / 1000, name)
        yield _sample("input_rows_total", unit.rows, name)
        yield _sample("output_rows_total", unit.rows_out, name)
        yield _sample("tasks", unit.tasks, name)
        yield _sample("waiting_steps", unit.waiting, name)
        yield _sample("waiting_bytes", unit.waiting_bytes, name)
        if unit.epoch_steps is not None:
            yield _sample("batch_epoch_steps", unit.epoch_steps, name)
        yield _sample("checkpoints_total", unit.checkpoints, name)
        yield _sample("checkpoint_bytes_total", unit.checkpoint_bytes, name)
        yield _sample("checkpoint_seconds_total", unit.checkpoint_seconds, name)
        if unit.checkpoint_at:
            yield _sample("checkpoint_timestamp_seconds", unit.checkpoint_at / 1000, name)
        yield _sample("step_seconds", unit.durations, name)


def _failures(name: str, failures: Mapping[str, int]) -> Iterator[Sample]:
    for condition, number in failures.items():
        yield _sample("step_failures_total", number, name, condition)


def _merged(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield samples with one histogram for each metric, whose labels are empty: by Prometheus' rules, absent."""
    whole: dict[str, Durations] = {}
    for each in samples:
        if not isinstance(each.value, Durations) or not each.labels:
            yield each
            continue
        if (durations := whole.get(each.metric.name)) is None:
            durations = whole[each.metric.name] = Durations()
            yield Sample(each.metric, tuple("" for _ in each.labels), durations)
        durations.seconds += each.value.seconds
        durations.counts[:] = [a + b for a, b in zip(durations.counts, each.value.counts, strict=True)]


def _bounded(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield samples in the order of the table, and how many series beyond `MOST_SERIES` are left out."""
    by_metric: dict[str, list[Sample]] = {each.name: [] for each in TABLE}
    for each in samples:
        by_metric[each.metric.name].append(each)
    room, dropped = MOST_SERIES - 1, 0
    for of_metric in by_metric.values():
        for each in of_metric:
            series = series_of([each])
            if dropped or series > room:
                dropped += series
                continue
            room -= series
            yield each
    yield Sample(DROPPED, (), dropped)
