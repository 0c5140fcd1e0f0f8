"""The keyed state of a unit on the driver: the runs of each part, their background merges, and the time of a step."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from boatlift.decoders import packed_decoder
from boatlift.kernels.step_state import STATE, KernelTime, StepTime
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.jobs.diagnosis import explain
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.planner import RECEIPTS, power_of_two
from boatlift.spark.jobs.watermarks import InputWatermarks, Interval
from boatlift.state.codec import ValueCodec
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.opened import LocatedRun
from boatlift.state.table import StateTable
from boatlift.storage.records.payloads import NO_WATERMARK, RunsPayload, payload_of, to_json
from boatlift.storage.records.records import RunRef
from boatlift.tasks.kernel_task import MergeTask
from boatlift.tasks.sealed_errors import unsealing
from boatlift.tasks.state_memory import StateMemory

MERGE_HERE_ROWS = 100_000
"""Runs with fewer rows in all are merged on the driver: a job would cost more than the merge."""

_MERGED = packed_decoder(RunRef | None)

HeldRuns = dict[str, list[RunRef]]
"""Part to its runs."""


def runs_of_state(state: Any) -> dict[str, list[RunRef]]:
    """Return the runs of a state by part, as its payload names them."""
    payload = payload_of(state)
    assert isinstance(payload, RunsPayload)
    runs = {run.name: run for run in payload.runs}
    tables = {STATE: (tuple(runs),)} if payload.tables is None else payload.tables
    return {part: [runs[name] for name in names] for part, (names,) in tables.items()}


def drop_expired(held: HeldRuns, passed: Mapping[str, int]) -> None:
    """Drop the runs whose rows have all expired. Earlier states, to which a rollback may lead, still name them.

    Args:
        passed: Part to its time now, if its rows expire.
    """
    for part, now in passed.items():
        held[part] = [run for run in held[part] if run.expires is None or run.expires > now]


class StateParts:
    """The states of one unit, by part.

    Args:
        codecs: Part to the codec of its rows.
        expiries: Part to the column by which its rows expire.
        memory: Where the state is, if it is in memory.
    """

    def __init__(
        self,
        name: str,
        jobs: Jobs,
        codecs: Mapping[str, ValueCodec[Any, Any]],
        expiries: Mapping[str, ExpiryColumn],
        memory: StateMemory | None = None,
    ) -> None:
        self._name, self._jobs, self._expiries, self._memory = name, jobs, expiries, memory
        self._passed = PassedTimes()
        self._tables = {part: StateTable(partial(self._merged, part, codec)) for part, codec in codecs.items()}

    def held(self, state: Any) -> HeldRuns:
        """Return the runs of a state, with merged runs in place of their inputs.

        Args:
            state: The payload of the state; None before the first step.

        Raises:
            BoatliftError: the last merge of a part failed.
        """
        parts = {} if state is None else runs_of_state(state)
        return {part: table.resolve(parts.get(part, ())) for part, table in self._tables.items()}

    def located(self, held: HeldRuns) -> dict[str, list[LocatedRun]]:
        """Return the runs and their files; a state in memory is loaded.

        Raises:
            UnavailableError: `[MEMORY_FULL]`.
        """
        return {part: [(run, str(self._file(run))) for run in runs] for part, runs in held.items()}

    def _file(self, run: RunRef) -> Path:
        path = self._jobs.inputs.path(run)
        return path if self._memory is None else self._memory.brought(run, path)

    def payload(
        self,
        held: HeldRuns,
        passed: TimeOfStep | None = None,
        *,
        history: str | None = None,
        heard: dict[str, int] | None = None,
        report: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Return the payload of a state.

        Args:
            passed: The time of its last step; None for a unit without time.
            history: The identity of the input so far; None if no reader needs it.
            heard: The newest watermark of each path, of a view; None if no row expires by it.
            report: Numbers of the operator's own.
        """
        runs = tuple(run for part in held.values() for run in part)
        if set(held) <= {STATE} and passed is None:
            return to_json(RunsPayload(runs, report=dict(report)))
        tables: dict[str, tuple[tuple[str, ...], ...]]
        tables = {part: (tuple(run.name for run in runs),) for part, runs in held.items()}
        clock, bounds = (None, None) if passed is None else (passed.clock, passed.bounds)
        heard = heard if passed is None else passed.heard
        return to_json(
            RunsPayload(
                runs, clock=clock, tables=tables, bounds=bounds, history=history, heard=heard, report=dict(report)
            )
        )

    def grown(self, held: HeldRuns, step: int, passed: Mapping[str, int]) -> None:
        """Record the newest state, and begin to merge where that pays.

        Args:
            passed: Part to its time after that step, if its rows expire.
        """
        if self._expiries:
            self._passed.record(step, passed)
        for part, runs in held.items():
            self._jobs.files.made(run.name for run in runs)  # from now on merged runs belong to the state
            self._tables[part].grown(runs)

    def saved(self, runs: Iterable[RunRef]) -> None:
        """Record that runs are durable, so that they may be merged freely."""
        saved = [run for run in runs if run.modulus]
        for table in self._tables.values():
            table.saved(saved)

    def holds(self) -> AbstractSet[str]:
        """Return the names of the runs of merges."""
        return frozenset().union(*(table.holds() for table in self._tables.values()))

    def forget(self, live: Collection[str]) -> None:
        """Forget merged runs whose inputs are in no state any more."""
        for table in self._tables.values():
            table.forget(live)

    def close(self) -> None:
        """End background merges."""
        for table in self._tables.values():
            table.close()

    def _merged(self, part: str, codec: ValueCodec[Any, Any], runs: Sequence[RunRef], *, oldest: bool) -> list[RunRef]:
        """Merge runs of one part: few rows here, many in tasks.

        Args:
            oldest: Whether no other run of the part is older.

        Raises:
            BoatliftError: a run cannot be read or written; `[MEMORY_FULL]` if it does not fit the memory.
        """
        jobs, name = self._jobs, self._name
        here = sum(run.rows for run in runs) <= MERGE_HERE_ROWS
        tasks = 1 if here else power_of_two(jobs.spark.sparkContext.defaultParallelism)
        held = tuple((run, str(jobs.inputs.path(run))) for run in runs)
        expiry, last = self._expiries.get(part), max(run.last for run in runs)
        now = None if expiry is None else self._passed.after(last, part)
        memory = "" if self._memory is None else str(self._memory.folder)
        scratch = str(jobs.planner.scratch)
        task = MergeTask(name, codec, jobs.planner.token, tasks, held, scratch, oldest, expiry, now, memory)
        if tasks == 1:
            made = [task.run(0)]
        else:
            jobs.group.join(name, f"merges its state up to step {last:,}")
            try:
                with unsealing(jobs.spark.sparkContext):
                    rows = jobs.spark.range(0, tasks, 1, tasks).mapInArrow(task, RECEIPTS).collect()
            except Exception as error:
                raise explain(error, name, last) from error
            made = [_MERGED.decode(bytes(row[0])) for row in rows]
        return [run for run in made if run is not None]


_REMEMBERED = 4096
"""The number of steps whose times are remembered."""


class PassedTimes:
    """The times after the newest steps, by part of a state.

    A merged run replaces its inputs only in states that have all of them. So every step that reads it comes after the
    last step of the inputs, and rows that had expired after that step can be left out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._after: dict[int, Mapping[str, int]] = {}

    def record(self, step: int, passed: Mapping[str, int]) -> None:
        """Record the times after a step, by part."""
        with self._lock:
            self._after.pop(step, None)  # after a rollback a step is executed again
            self._after[step] = passed
            while len(self._after) > _REMEMBERED:
                del self._after[next(iter(self._after))]

    def after(self, step: int, part: str) -> int | None:
        """Return the time of a part after a step or after one before it; None if none is remembered."""
        with self._lock:
            found = max((each for each in self._after if each <= step), default=None)
            return None if found is None else self._after[found].get(part)


@dataclass(frozen=True, slots=True)
class TimeOfStep:
    """The time of a step, and the form in which its state records it.

    Attributes:
        time: The time that the tasks see.
        clock: The recorded clock; None for a kernel without clock.
        bounds: The recorded watermarks; None for a kernel without event time.
        heard: The newest watermark of each path, if rows come by several.
        sent: The watermarks before and after the step, if they follow from those of several paths.
    """

    time: StepTime
    clock: int | None = None
    bounds: Interval | None = None
    heard: dict[str, int] | None = None
    sent: Interval | None = None


def times_of(
    which: KernelTime, takes: Sequence[StepInput], state: Any, watermarks: InputWatermarks
) -> list[TimeOfStep]:
    """Return the time of each of some consecutive steps.

    Args:
        state: The payload of the state before the first of them.
        watermarks: Those of the unit's input.
    """
    recorded = None if state is None else payload_of(state)
    assert recorded is None or isinstance(recorded, RunsPayload)
    if which is KernelTime.NONE:
        return [TimeOfStep(StepTime(-1, -1, seed, clock)) for clock, seed in map(clock_of, takes)]
    if which is KernelTime.CLOCK:
        return _by_clock(takes, -1 if recorded is None or recorded.clock is None else recorded.clock)
    passed, newest = (NO_WATERMARK, NO_WATERMARK) if recorded is None or recorded.bounds is None else recorded.bounds
    several = len(watermarks.paths) > 1
    heard = dict.fromkeys(watermarks.paths, newest)
    if several:
        heard = {} if recorded is None else dict(recorded.heard or {})
    times = []
    for take in takes:
        found = watermarks.of(take.inputs)
        before, after = watermarks.least(heard, found)
        heard = watermarks.heard(heard, found)
        now = max(passed, before if which is KernelTime.WATERMARK_BEFORE else after)
        clock, seed = clock_of(take)
        kept = {path: heard.get(path, NO_WATERMARK) for path in watermarks.paths} if several else None
        sent = (before, after) if several else None
        times.append(TimeOfStep(StepTime(passed, now, seed, clock), None, (now, after), kept, sent))
        passed = now
    return times


def _by_clock(takes: Sequence[StepInput], before: int) -> list[TimeOfStep]:
    """Return times by the recorded clock; each is later than the one before, even if the clock is not."""
    times = []
    for take in takes:
        clock, seed = clock_of(take)
        now = max(clock, before + 1)
        times.append(TimeOfStep(StepTime(before, now, seed, now), clock=now))
        before = now
    return times
