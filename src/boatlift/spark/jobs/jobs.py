"""Shared by the steps of all units: how jobs begin, fail and end, and the results that their receipts add up to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from boatlift.dataflow import Plan
from boatlift.errors import BoatliftError, UnavailableError, UserCodeError
from boatlift.processes.environment import RunningSettings
from boatlift.runtime.engine import StepResult
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.diagnosis import explain, remedy, tries_of_a_task
from boatlift.spark.jobs.inputs import EDGE, Inputs
from boatlift.spark.jobs.job_group import JobGroup
from boatlift.spark.jobs.long_running import LongRunningJob
from boatlift.spark.jobs.planner import Background, StepPlanner
from boatlift.spark.jobs.watermarks import InputWatermarks, Interval
from boatlift.storage.records.payloads import NO_WATERMARK, RunsPayload, StepClock, payload_of, runs_of, to_json
from boatlift.storage.remote_files import removed
from boatlift.tasks.stage import TaskReceipt

Made = TypeVar("Made")


@dataclass(slots=True)
class Jobs:
    """The jobs of a dataflow's steps.

    Attributes:
        files: The files that jobs have left in scratch.
        background: Makes plans ahead of their turn.
        long_running: The long-running job that small steps may share; None if they may not.
        executed: Unit to the last step that was executed before: until then its steps are a replay.
        watermarks: Those of each unit's input.
        batches: Held while a batch is executed: two would take all slots.
    """

    spark: SparkSession
    plan: Plan
    inputs: Inputs
    planner: StepPlanner
    group: JobGroup
    files: ScratchFiles
    background: Background
    long_running: LongRunningJob | None = None
    executed: dict[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, InputWatermarks] = field(default_factory=dict)
    batches: threading.Lock = field(default_factory=threading.Lock)
    _settings: RunningSettings = field(init=False)
    _tries: int = field(init=False)

    def __post_init__(self) -> None:
        context = self.spark.sparkContext
        self._settings = RunningSettings(self.spark)
        self._tries = tries_of_a_task(str(context.master), context.getConf().get("spark.task.maxFailures"))

    def begin(self, unit: str, *takes: StepInput) -> None:
        """Begin a job of steps: from now on the jobs of this thread belong to a unit.

        Raises:
            UnavailableError, BoatliftError: as `check`.
        """
        self.check(unit, takes[0])
        self.join(unit, takes)

    def check(self, unit: str, take: StepInput) -> None:
        """Check that a step may begin. A step that goes round needs no more: calls of Spark are slow.

        Raises:
            UnavailableError: `[STEP_FAILED]` the run is cancelled.
            BoatliftError: a setting on which results depend has changed.
        """
        if self.group.ended:
            raise UnavailableError("STEP_FAILED", f"step {take.number} of {unit} was not begun: the run is cancelled")
        self._settings.check()

    def join(self, unit: str, takes: Sequence[StepInput], *, goes_round: bool = False) -> None:
        """Let the jobs of this thread belong to steps of a unit; steps that go round have none."""
        before = self.executed.get(unit, -1)
        if not goes_round:
            self.group.join(unit, described(takes, before))
        if isinstance(last := takes[-1].number, int):  # else a probe of what was sent in the order of arrival
            self.executed[unit] = max(before, last)

    def make_room(self) -> None:
        """End the long-running job, because a job with large steps needs all slots."""
        if self.long_running is not None:
            self.long_running.make_room()

    def explained(self, unit: CompiledUnit, take: StepInput, job: Callable[[], Made]) -> Made:
        """Run a job, and raise Spark's errors as errors of Boatlift.

        Raises:
            BoatliftError: the job failed.
        """
        try:
            return job()
        except UserCodeError as error:
            message = f"at step {take.number} of {unit.name}, {error.message}"
            raise UserCodeError("USER_CODE", message) from error.__cause__
        except BoatliftError:
            raise
        except Exception as error:
            do = remedy(self.plan, unit.name, take.number)
            # Spark has tried the task several times already: deterministic code fails again at the next attempt.
            lasting = self._tries > 1 and unit.unit.deterministic and not unit.unit.records_answers
            inputs = self.inputs.positions(take)
            raise explain(error, unit.name, take.number, inputs, unit.functions, do, lasting=lasting) from error

    def step(
        self, unit: CompiledUnit, take: StepInput, job: Callable[[], Sequence[TaskReceipt]], state: Any = None
    ) -> StepResult:
        """Execute a step that does not change its state.

        Args:
            job: Runs the step's job and returns the receipts of its tasks.

        Raises:
            BoatliftError: the step failed.
        """
        began = time.perf_counter()

        def begun() -> Sequence[TaskReceipt]:
            self.begin(unit.name, take)
            return job()

        receipts = self.explained(unit, take, begun)
        return self.result(unit, take, receipts, state, time.perf_counter() - began)

    def skipped(self, unit: CompiledUnit, take: StepInput, state: Any) -> StepResult:
        """Return the result of a step that is skipped: no rows, and no event time passes for a unit that goes by it."""
        bounds = None
        if unit.top is not None and unit.top.goes_by_event_time:
            recorded = None if state is None else payload_of(state)
            known = recorded.bounds if isinstance(recorded, RunsPayload) else None
            newest = NO_WATERMARK if known is None else known[1]
            bounds = newest, newest
        return self.result(unit, take, (), state, 0.0, bounds=bounds)

    def result(
        self,
        unit: CompiledUnit,
        take: StepInput,
        receipts: Sequence[TaskReceipt],
        state: Any,
        seconds: float,
        *,
        bounds: Interval | None = None,
        determinant: Any = None,
    ) -> StepResult:
        """Return the result of a step; the files of its logged messages are kept until the result is delivered.

        Args:
            receipts: The receipts of the step's tasks; empty if the step has no output.
            state: The payload of the state after the step.
            bounds: The watermarks before and after the step; None: those of its input, path by path.
            determinant: The answers of the external system, for a unit that records them.
        """
        by_path: dict[str, Interval] = {}
        if bounds is None and unit.columns.has_watermark:
            by_path = self.watermarks[unit.name].of(take.inputs)
            if len(self.watermarks[unit.name].paths) == 1:
                bounds, by_path = next(iter(by_path.values()), None), {}
        digest = f"{sum(receipt.digest for receipt in receipts) % 2**64:016x}"
        clock = clock_of(take)

        def sent_to(outlet: str, **watermarks: Any) -> dict[str, Any]:
            runs = tuple(run for receipt in receipts if (run := receipt.staged[outlet]) is not None)
            rows = sum(run.rows for run in runs)
            return to_json(RunsPayload(runs, rows, digest, clock.clock, clock.seed, **watermarks))

        sent = {edge_name(unit.name, sink.name): sent_to(sink.name) for sink in unit.unit.sinks}
        if unit.unit.materialised:
            kept = sent_to(EDGE, bounds=bounds, bounds_by=by_path or None)
            readers = [other for other in self.plan.units.values() if unit.name in other.reads]
            sent |= {edge_name(unit.name, reader.name): kept for reader in readers}
        made = StepResult(
            sum(receipt.rows for receipt in receipts),
            digest,
            sent,
            state,
            sum(receipt.rows_in for receipt in receipts),
            seconds,
            determinant,
            len(receipts),
        )
        self.files.made(run.name for payload in sent.values() for run in runs_of(payload))
        return made


def described(takes: Sequence[StepInput], executed: int) -> str:
    """Return what a job of steps is for, in words, as Spark's page shows it.

    Args:
        executed: The last step that the unit has executed before.
    """
    first, last = takes[0].number, takes[-1].number
    if isinstance(first, tuple):  # an edge, and a number on it
        return f"rows of step {first[1]:,} of {first[0].partition('->')[0]}"
    what = ("replays step" if last <= executed else "step") + ("" if first == last else "s")
    numbers = f"{first:,}" if first == last else f"{first:,} to {last:,}"
    payloads = [message.payload for take in takes for message in take.inputs if message.payload is not None]
    rows = [payload.get("rows") for payload in payloads]
    known = bool(rows) and None not in rows  # of a source's step they are known once it is read
    return f"{what} {numbers}" + (f" · {sum(rows):,} rows" if known else "")


def clock_of(take: StepInput) -> StepClock:
    """Return the clock and the seed of a step, which are those of its last message."""
    return payload_of(take.inputs[-1].payload).step_clock


class ScratchFiles:
    """An engine's files of runs in scratch, by name; safe to use from several threads.

    Laws:
        * A file that was made and not yet delivered stays, because the host does not know it yet.
        * Every other file stays as long as the caller of `discard` names it.

    Args:
        folder: The folder of the files; the last part of a run's name is the name of its file.
        files: The runs that are there already.
        memory: The folder of states in memory; None if there are none.
    """

    def __init__(self, folder: Path, files: Collection[str] = (), memory: Path | None = None) -> None:
        self._folder, self._memory = folder, memory
        self._lock = threading.Lock()
        self._files = set(files)
        self._fresh: set[str] = set()
        self._kept = set(files)  # what is adopted is an object already, if tasks upload their files

    def made(self, names: Iterable[str]) -> None:
        """Record runs whose result is about to be delivered."""
        names = set(names)
        with self._lock:
            self._files |= names
            self._fresh |= names

    def delivered(self, names: Iterable[str]) -> None:
        """Record that the host has the results with these runs."""
        with self._lock:
            self._fresh.difference_update(names)

    @property
    def fresh(self) -> AbstractSet[str]:
        """The runs that were made and not yet delivered."""
        with self._lock:
            return set(self._fresh)

    def discard(self, live: Collection[str]) -> None:
        """Delete every file whose run is neither live nor fresh."""
        with self._lock:
            gone = {name for name in self._files - self._fresh if name not in live}
            self._files -= gone
            kept, self._kept = self._kept & gone, self._kept - gone
        for name in kept:
            (self._folder / Path(name).name).unlink(missing_ok=True)
        removed(self._folder / Path(name).name for name in gone - kept)
        if self._memory is not None:
            for name in gone:
                (self._memory / Path(name).name).unlink(missing_ok=True)

    def kept(self, names: Iterable[str]) -> None:
        """Record runs that are objects of the store from now on: only the store deletes them."""
        with self._lock:
            self._kept.update(names)
