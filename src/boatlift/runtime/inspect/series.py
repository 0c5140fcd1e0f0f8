"""What a dataflow has done over time, as columns for charts: from the journal of its store, and its last report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from boatlift.dataflow.contracts.durations import BOUNDS
from boatlift.decoders import json_decoder
from boatlift.runtime.host.run_report import FILE, RunReport, sample_of
from boatlift.storage.journal import JournalReader
from boatlift.storage.local import LocalStore
from boatlift.storage.object_store import ObjectStore
from boatlift.storage.records.journal import RunEvent, RunSample

MOST_POINTS = 360
"""Of more samples, some are left out: sums lose nothing by it."""

_REPORTS = json_decoder(RunReport)


class Series(msgspec.Struct, frozen=True):
    """Columns of equal length; None where a value is not known: between two runs, or where the clock was set back.

    Attributes:
        at: The end of each span, in milliseconds since 1970.
        taken, shown: Rows a second from sources, and into sinks.
        p50, p99: Seconds from the moment at which a source took input to its visibility in a sink.
        waiting, fullest: The steps that wait at the fullest input at the end of the span, and whose it is.
        waiting_bytes: The bytes of the rows that wait at all units.
    """

    at: list[int]
    taken: list[float | None]
    shown: list[float | None]
    p50: list[float | None]
    p99: list[float | None]
    waiting: list[int | None]
    fullest: list[str]
    waiting_bytes: list[int | None]


def last_report(store: LocalStore | ObjectStore) -> RunReport | None:
    """Return the last report of the newest owner, if its scratch is on this computer."""
    scratch = max(store.scratches().items(), default=(0, None))[1]
    if scratch is None:
        return None
    try:
        report: RunReport = _REPORTS.decode((scratch / FILE).read_bytes())
    except (OSError, msgspec.DecodeError):  # there is none yet, or another version wrote it
        return None
    return report


def journal_of(store: LocalStore | ObjectStore) -> JournalReader:
    """Return a reader of a store's journal, for what may not import the storage."""
    return JournalReader(store)


def samples_from(journal: JournalReader, report: RunReport | None, since: int, until: int) -> list[RunSample]:
    """Return the samples of a journal, and the one of a report that is newer.

    Args:
        since: Milliseconds since 1970; of each run the sample before it is there, too.
        until: Later samples are left out: the clock of their run was ahead.
    """
    samples = [each for each in journal.samples(since) if each.at <= until]
    if report is not None and report.activity is not None:
        last = sample_of(report.activity)
        if last.at <= until and (not samples or last.at > samples[-1].at):
            samples.append(last)
    return samples


def events_from(journal: JournalReader, report: RunReport | None) -> list[RunEvent]:
    """Return the events of a journal and of a report, each once, oldest first."""
    known = dict.fromkeys((*journal.events, *(() if report is None else report.events)))
    return sorted(known, key=lambda event: event.at)


def series_of(samples: Sequence[RunSample], since: int) -> Series:
    """Return what was done between samples that follow each other, those that end before a time left out.

    Args:
        samples: By run, oldest first. A run begins with sums of 0.
    """
    series = Series([], [], [], [], [], [], [], [])
    for before, sample in _spans(_thinned(samples)):
        if sample.at < since:
            continue
        if series.at and (before.at == before.began or before.at != series.at[-1]):
            _add(series, max(before.at, since), (None, None, None, None, None, "", None))
        seconds = (sample.at - before.at) / 1000
        counts = [now - then for now, then in zip(sample.latencies, before.latencies or [0] * 99, strict=False)]
        values = (
            (sample.taken - before.taken) / seconds,
            (sample.shown - before.shown) / seconds,
            quantile(0.5, counts),
            quantile(0.99, counts),
            sample.waiting,
            sample.fullest,
            sample.waiting_bytes,
        )
        _add(series, sample.at, values)
    return series


def quantile(share: float, counts: Sequence[int]) -> float | None:
    """Return a quantile of a histogram with the bounds `BOUNDS`, in seconds; None if it is empty.

    Within a bucket values are taken for evenly spread; what is longer than all bounds counts as the last bound.

    Examples:
        >>> quantile(0.5, [0, 10])
        0.0075
    """
    wanted, below = share * sum(counts), 0
    for n, count in enumerate(counts):
        if count and below + count >= wanted:
            if n == len(BOUNDS):
                return BOUNDS[-1]
            low = BOUNDS[n - 1] if n else 0.0
            return round(low + (BOUNDS[n] - low) * (wanted - below) / count, 6)
        below += count
    return None


def _add(series: Series, at: int, values: Sequence[object]) -> None:
    series.at.append(at)
    for name, value in zip(Series.__struct_fields__[1:], values, strict=True):
        getattr(series, name).append(value)


def _thinned(samples: Sequence[RunSample]) -> list[RunSample]:
    """Leave out samples of which there are too many, but never the last one of a run."""
    each = -(-len(samples) // MOST_POINTS) or 1
    return [
        sample
        for n, sample in enumerate(samples)
        if n % each == 0 or n + 1 == len(samples) or samples[n + 1].began != sample.began
    ]


def _spans(samples: Sequence[RunSample]) -> Iterator[tuple[RunSample, RunSample]]:
    """Yield samples with the one before them of the same run, or the beginning of their run."""
    first = [RunSample(samples[0].began, samples[0].began)] if samples else []
    for before, sample in pairwise([*first, *samples]):
        from_ = before if before.began == sample.began else RunSample(sample.began, sample.began)
        if sample.at > from_.at:  # else the clock was set back: what was done meanwhile has no duration
            yield from_, sample
