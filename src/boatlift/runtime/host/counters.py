"""Counters of a run: plain numbers, which the report of the run shows to `boatlift status`, the console and metrics.

All begin at 0 with a run. Each number has one writer: the host's own thread, but for commits (one at a time for each
sink), the beginning of a step (one at a time for each unit) and the log's writer. Readers take them as they are at the
moment, without a lock: of two numbers that change together, a reader may see one earlier than the other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec

from boatlift.dataflow import Plan, Timing
from boatlift.dataflow.contracts.durations import Durations
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.progress import MachineProgress


class UnitSums(msgspec.Struct):
    """What a unit has done since its run began.

    Attributes:
        rows, milliseconds: Of all its steps.
        fresh: The rows among them that came from sources for the first time.
        busy: The milliseconds in which a step was under way, also one that failed.
        since: When the step that is under way now began, in milliseconds since 1970; 0 if none is.
        replaying: It has still to execute steps that were executed before a failure.
        replayed: The steps among all that were executed before a failure.
        rows_out: The rows that its steps have emitted.
        failures: Condition to the failures that were retried.
        checkpoints, checkpoint_bytes, checkpoint_seconds: Their number, the bytes that were new in them, and the time
            to write these.
        checkpoint_at: When the last one became durable, in milliseconds since 1970; 0 for none.
        waiting, waiting_bytes: Steps that wait at its fullest input, and the bytes of rows that wait at all inputs.
        tasks: Those of its last step that had some.
        epoch_steps: The steps that wait for the end of a batch's epoch; None of other units.
    """

    steps: int = 0
    rows: int = 0
    fresh: int = 0
    milliseconds: float = 0.0
    busy: int = 0
    since: int = 0
    replaying: bool = False
    replayed: int = 0
    rows_out: int = 0
    durations: Durations = msgspec.field(default_factory=Durations)
    failures: dict[str, int] = {}
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    checkpoint_seconds: float = 0.0
    checkpoint_at: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    epoch_steps: int | None = None
    tasks: int = 0

    def add(self, step: Progress) -> None:
        """Count a step."""
        self.steps += 1
        self.rows += step.numInputRows
        self.fresh += step.newInputRows
        self.milliseconds += step.durationMs
        self.replaying = step.replay
        self.replayed += step.replay
        self.rows_out += step.numOutputRows
        self.durations.add(step.durationMs / 1000)
        self.tasks = step.tasks or self.tasks


class SinkSums(msgspec.Struct):
    """What a sink has been handed since its run began.

    Attributes:
        rows: Those of the steps that became visible, in messages with a number of rows.
        written: Steps that became visible.
        dropped: Steps of replays, which the sink held already.
        left_out: Steps that its receiver refuses, and that it was not handed.
        commits: The durations of commits.
        visible: The time from the clock of a step, which its source read when it took the input, to its visibility.
        failures: Condition to the failures that were retried.
    """

    rows: int = 0
    written: int = 0
    dropped: int = 0
    left_out: int = 0
    commits: Durations = msgspec.field(default_factory=Durations)
    visible: Durations = msgspec.field(default_factory=Durations)
    failures: dict[str, int] = {}


class SourceSums(msgspec.Struct):
    """What a source has given since its run began.

    Attributes:
        steps: Those with input that were recorded.
        rows: Those that were read for the first time; None if there are none, or if they are known only together with
            those of another source.
        unreachable: It could not be polled the last time.
        requests: Status of HTTP to the time in which pushes were answered with it.
        held: The seconds for which it was asked for nothing, by what waited behind it: too many `steps`, or `bytes`.
    """

    steps: int = 0
    rows: int | None = None
    unreachable: bool = False
    requests: dict[str, Durations] = {}
    held: dict[str, float] = msgspec.field(default_factory=lambda: {"steps": 0.0, "bytes": 0.0})


class LogSums(msgspec.Struct):
    """The objects that a run has written into its log.

    Attributes:
        writes: The durations of these writes, from the first record of an object to its durability.
    """

    objects: int = 0
    bytes: int = 0
    writes: Durations = msgspec.field(default_factory=Durations)

    def add(self, size: int, seconds: float) -> None:
        """Count an object."""
        self.objects += 1
        self.bytes += size
        self.writes.add(seconds)


class ProcessSums(msgspec.Struct, frozen=True):
    """What the driver's process uses.

    Attributes:
        resident_bytes: Its memory; 0 where the system does not say.
        cpu_seconds: Of all its threads, since it began.
        state_bytes: The states that are in a memory file system, which is no part of `resident_bytes`.
        others: The memory of the engine's other processes on this computer, by what they are.
    """

    resident_bytes: int = 0
    cpu_seconds: float = 0.0
    state_bytes: int = 0
    others: Mapping[str, int] = {}


class Counters:
    """The counters of one run.

    Args:
        clock: Milliseconds since 1970.

    Attributes:
        recoveries: Cause (`start`, `takeover` or `failure`) to their number.
        furthest: Unit to the last step that it has executed, in this run or before.
    """

    def __init__(self, plan: Plan, clock: Callable[[], int], cause: str = "start") -> None:
        self._clock, self._looked = clock, clock()
        self._batches = [name for name, unit in plan.units.items() if unit.timing is Timing.BATCH]
        # All are there from the beginning, so that no reader meets a dictionary that grows.
        self.units = {name: UnitSums() for name in plan.units}
        self.sinks = {name: SinkSums() for name in plan.sinks}
        self.sources = {name: SourceSums() for name in plan.sources}
        self.log = LogSums()
        self.recoveries = {cause: 1, "failure": 0}
        self.furthest: dict[str, int] = {}

    @contextmanager
    def under_way(self, unit: str) -> Iterator[None]:
        """Note that a step of a unit is under way until the end of the block; the step's own thread."""
        sums = self.units[unit]
        sums.since = began = self._clock()
        try:
            yield
        finally:
            sums.busy += self._clock() - began
            sums.since = 0

    def stepped(self, step: Progress) -> None:
        """Count a step of a unit."""
        self.units[step.processor].add(step)
        if not step.replay:
            self.furthest[step.processor] = step.time
        if (source := self.sources.get(step.newInputOf)) is not None:
            source.rows = (source.rows or 0) + step.newInputRows

    def visible(self, sink: str, rows: int, clock: int | None) -> None:
        """Count a step that became visible.

        Args:
            clock: Of the step; None if it has none.
        """
        sums = self.sinks[sink]
        sums.rows += rows
        sums.written += 1
        if clock is not None:
            sums.visible.add(max(0, self._clock() - clock) / 1000)

    def checkpointed(self, unit: str) -> None:
        """Count a checkpoint that is durable."""
        sums = self.units[unit]
        sums.checkpoints += 1
        sums.checkpoint_at = self._clock()

    def kept(self, unit: str, size: int, seconds: float) -> None:
        """Count what was written for a checkpoint."""
        if (sums := self.units.get(unit)) is not None:  # sources keep no state
            sums.checkpoint_bytes += size
            sums.checkpoint_seconds += seconds

    def failed(self, name: str, condition: str) -> None:
        """Count a failure of a unit or a sink that is retried."""
        sums: UnitSums | SinkSums | None = self.units.get(name) or self.sinks.get(name)
        if sums is not None:
            sums.failures = {**sums.failures, condition: sums.failures.get(condition, 0) + 1}
        if name in self.units:
            self.recoveries["failure"] += 1

    def look(self, progress: MachineProgress) -> None:
        """Note what waits; called now and then on the host's own thread."""
        for name, sums in self.units.items():
            sums.waiting, sums.waiting_bytes = progress.behind(name), progress.bytes_behind(name)
            sums.replaying = progress.done(name) < self.furthest.get(name, -1)
        for name in self._batches:
            self.units[name].epoch_steps = progress.open_epoch(name)
        before, self._looked = self._looked, self._clock()
        for name, source in self.sources.items():
            if by := progress.held_by(name):
                source.held[by] += max(0, self._looked - before) / 1000


def process_sums(state_bytes: int = 0, others: Mapping[str, int] = MappingProxyType({})) -> ProcessSums:
    """Return what this process uses now, and what its engine says of states in memory, and of other processes."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):  # a system without /proc
        pages = 0
    return ProcessSums(pages * os.sysconf("SC_PAGE_SIZE"), time.process_time(), state_bytes, dict(others))
