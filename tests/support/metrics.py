"""Metrics as Prometheus reads them, and programs of any size to have metrics of."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

import boatlift as bl
from boatlift.dataflow import WaitingInput, plan
from boatlift.dataflow.contracts.durations import Durations
from boatlift.metrics.samples import Sample, samples_of
from boatlift.runtime.host.counters import LogSums, SinkSums, SourceSums, UnitSums
from boatlift.runtime.host.run_report import FILE, ActivityReport, InputReport, RunReport
from boatlift.runtime.inspect.contents import kept_in, log_at
from boatlift.runtime.inspect.explanation import explanation_of
from boatlift.runtime.inspect.status import status_at
from boatlift.storage.records.records import Claim
from support.any_connector import ANY
from support.engine.hosts import open_store, process_of
from support.engine.memory_engine import recorded
from support.worlds.logs import claimed

NOW = 1_800_000_000_000


@dataclass(frozen=True)
class Scraped:
    """One series, as Prometheus stores it: `labels` are sorted pairs."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float

    def __getitem__(self, label: str) -> str:
        return dict(self.labels)[label]


def scraped(text: bytes) -> list[Scraped]:
    """The series of a text."""
    return [
        Scraped(each.name, tuple(sorted(each.labels.items())), each.value)
        for family in text_string_to_metric_families(text.decode())
        for each in family.samples
    ]


def samples_at(folder: Path, now: int = NOW) -> list[Sample]:
    """The samples of a store."""
    log = log_at(folder)
    return samples_of(status_at(folder), explanation_of(log, frozenset()), kept_in(open_store(folder), log), now)


def large(folder: Path, units: int) -> None:
    """A store of a running dataflow, whose every second unit has a sink, and which has counted everything."""
    flow = bl.Dataflow("large")
    rows = flow.source("rows", ANY)
    for n in range(units // 2):
        rows.group_by("k").agg(f"sums{n}", ANY).transform(f"after{n}", ANY).sink(f"out{n}", ANY)
    planned = plan(flow)
    store = open_store(folder)
    host, owner = socket.gethostname(), os.getppid()  # another process, which lives as long as this one
    log = claimed(store, Claim(host, owner, NOW, recorded(planned), {}, process_of(owner), 16 << 30))
    activity = ActivityReport(
        NOW,
        NOW,
        {
            name: UnitSums(9, 90, 90, 4.5, durations=lasted(3), failures={"STEP_FAILED": 1}, checkpoint_at=NOW)
            for name in planned.units
        },
        dict.fromkeys(planned.sinks, 8),
        {name: SinkSums(90, 9, commits=lasted(9), visible=lasted(9)) for name in planned.sinks},
        {"rows": SourceSums(9, 90, requests={"200": lasted(2)})},
        LogSums(3, 300, lasted(3)),
        {"start": 1, "failure": 0},
        recovered={"start": lasted(1)},
    )
    waiting = InputReport(NOW, {"rows": WaitingInput(3, "files", 300, NOW - 1500)})
    report = RunReport(NOW, waiting, activity=activity)
    (store.scratch(log.owner) / FILE).write_bytes(msgspec.json.encode(report))


def lasted(number: int) -> Durations:
    durations = Durations()
    for each in range(number):
        durations.add(0.02 * each)
    return durations
