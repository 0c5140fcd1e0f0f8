"""Reports of a run, written into scratch every few seconds: what waits at its sources, what is stuck, what was done.

`boatlift status` cannot ask a source itself: it has neither the program nor the passwords.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from boatlift.dataflow.contracts import WaitingInput
from boatlift.dataflow.contracts.durations import BOUNDS, Durations
from boatlift.errors import BoatliftError
from boatlift.runtime.host.context import HostContext
from boatlift.runtime.host.counters import (
    LogSums,
    ProcessSums,
    SinkSums,
    SourceSums,
    UnitSums,
    process_sums,
)
from boatlift.runtime.host.deadlines import Deadlines, StuckCall
from boatlift.runtime.host.event_loop import Answer
from boatlift.runtime.host.run_events import RunEvents
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.machine.events import Event
from boatlift.runtime.peers.owner import StandbyReport
from boatlift.storage.journal import Journal
from boatlift.storage.records.journal import JournalEntry, RunEvent, RunSample

FILE = "run-report.json"

WRITE_SECONDS = 2.0  # from one report to the next
JOURNAL_REPORTS = 5  # the journal gets one report of so many, and each with new events
LOOK_SECONDS = 2.0  # the least pause between two questions to the sources
LOOK_PAUSE = 20  # the pause is at least so many times as long as the question before it took


class InputReport(msgspec.Struct, frozen=True):
    """The input that waits at sources.

    Attributes:
        waiting: Source to its input that no step has taken; a source that cannot tell, or be reached, is left out.
    """

    at: int
    waiting: Mapping[str, WaitingInput]


class ActivityReport(msgspec.Struct, frozen=True):
    """What a run has done, as sums: of two reports, the difference is what was done between them.

    Attributes:
        began, at: When the sums were 0, and when they were read.
        sinks: Sink to the last step that it holds; the log records a commit with the next thing that it has to.
        commits: What each sink was handed.
        sources: What each source has given.
        recoveries: Cause (`start`, `takeover` or `failure`) to the number of recoveries.
        recovered: Cause to the durations of those that are over.
        page: The address of the engine's own page; empty if it has none.
    """

    began: int
    at: int
    units: Mapping[str, UnitSums]
    sinks: Mapping[str, int] = {}
    commits: Mapping[str, SinkSums] = {}
    sources: Mapping[str, SourceSums] = {}
    log: LogSums = msgspec.field(default_factory=LogSums)
    recoveries: Mapping[str, int] = {}
    process: ProcessSums = ProcessSums()
    recovered: Mapping[str, Durations] = {}
    page: str = ""


class RunReport(msgspec.Struct, frozen=True):
    """The report of a run about itself, written every `WRITE_SECONDS`.

    Attributes:
        depth: So many standbys at least must hold what is chosen to make it count; 0 if the store alone counts.
    """

    at: int
    input: InputReport | None = None
    stuck: list[StuckCall] = []
    standbys: list[StandbyReport] = []
    depth: int = 0
    activity: ActivityReport | None = None
    events: list[RunEvent] = []


def sample_of(done: ActivityReport) -> RunSample:
    """Return what the journal keeps of sums."""
    latencies = [0] * (len(BOUNDS) + 1)
    for sink in done.commits.values():
        latencies = [a + b for a, b in zip(latencies, sink.visible.counts, strict=True)]
    units = done.units.values()
    fullest = max(done.units, key=lambda name: done.units[name].waiting, default="")
    waiting = done.units[fullest].waiting if fullest else 0
    return RunSample(
        at=done.at,
        began=done.began,
        taken=sum(unit.fresh for unit in units),
        shown=sum(sink.rows for sink in done.commits.values()),
        latencies=tuple(latencies),
        steps=sum(unit.steps for unit in units),
        replayed=sum(unit.replayed for unit in units),
        waiting=waiting,
        fullest=fullest if waiting else "",
        waiting_bytes=sum(unit.waiting_bytes for unit in units),
    )


class RunReports:
    """Writes the reports of a run, and each `JOURNAL_REPORTS`-th of them, in short, into the journal.

    A report with new events goes there at once: a process that is killed loses the events of its last seconds.
    """

    def __init__(
        self,
        context: HostContext,
        cursors: SourceCursors,
        held: Mapping[str, int],
        deadlines: Deadlines,
        folder: Path,
        clock: Callable[[], int],
        events: RunEvents,
        journal: Journal,
    ) -> None:
        self._engine = context.engine
        self._workers, self._cursors, self._folder, self._clock = context.workers, cursors, folder, clock
        self._deadlines, self._link = deadlines, context.link
        asked = {name: source.source.capabilities.waiting for name, source in context.plan.sources.items()}
        self._asked = {name: waiting for name, waiting in asked.items() if waiting is not None}
        answers = {name: source.source.capabilities.answered for name, source in context.plan.sources.items()}
        self._answered = {name: answered for name, answered in answers.items() if answered is not None}
        self._input: InputReport | None = None
        self._counters, self._progress, self._began = context.counters, context.progress, clock()
        self._events, self._journal, self._written = events, journal, 0
        self._journalising = threading.Lock()  # the last report may be under way while the run ends
        self._held, self._depth = held, min(context.plan.depths().values(), default=0)

    def begin(self) -> None:
        if self._asked:
            self._workers.submit(self._ask)
        self._counters.look(self._progress)
        self._workers.submit(self._write)

    def _ask(self) -> Answer:
        """Ask the sources, which may take a while."""
        began = time.monotonic()
        waiting = {}
        for name, ask in self._asked.items():
            try:
                waiting[name] = ask(self._cursors.newest(name))
            except BoatliftError:  # the source's own poll reports it, and retries
                continue
        self._input = InputReport(self._clock(), waiting)
        return self._later(max(LOOK_SECONDS, LOOK_PAUSE * (time.monotonic() - began)), self._ask)

    def end(self) -> None:
        """Write into the journal what was done until now."""
        self._counters.look(self._progress)
        self._journalise(self._activity())
        with self._journalising:
            self._journal.end()

    def _activity(self) -> ActivityReport:
        counted = self._counters
        for name, answered in self._answered.items():
            counted.sources[name].requests = answered()
        return ActivityReport(
            self._began,
            self._clock(),
            counted.units,
            self._held,
            counted.sinks,
            counted.sources,
            counted.log,
            counted.recoveries,
            process_sums(self._engine.bytes_in_memory(), self._engine.resident_bytes()),
            self._events.recoveries,
            self._engine.page(),
        )

    def _journalise(self, activity: ActivityReport) -> None:
        with self._journalising:
            self._journal.write(JournalEntry(sample_of(activity), self._events.since_last()))

    def _write(self) -> Answer:
        activity = self._activity()
        self._written += 1
        if self._written % JOURNAL_REPORTS == 0 or self._events.has_fresh:
            self._journalise(activity)
        report = RunReport(
            activity.at,
            self._input,
            self._deadlines.stuck(),
            self._link.standbys(),
            self._depth,
            activity,
            list(self._events.newest),
        )
        written = self._folder / f"{FILE}.new"
        # A newer owner may have removed the folder, or the disk is full: a write of the run reports that.
        with suppress(OSError):
            written.write_bytes(msgspec.json.encode(report))
            written.replace(self._folder / FILE)
        return self._later(WRITE_SECONDS, self._write)

    def _later(self, seconds: float, function: Callable[[], Answer]) -> Answer:
        def again() -> Iterable[Event]:
            self._counters.look(self._progress)
            self._workers.submit_after(seconds, function)
            return ()

        return again
