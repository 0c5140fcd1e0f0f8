"""What the steps of all units share: jobs that begin, fail and end, and the results that their receipts add up to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from boatlift.dataflow import Plan
from boatlift.errors import BoatliftError, UnavailableError, UserCodeError
from boatlift.runtime.engine import StepResult
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.background import Background
from boatlift.spark.jobs.diagnosis import explain, remedy, tries_of_a_task
from boatlift.spark.jobs.edges import EDGE
from boatlift.spark.jobs.inputs import Inputs
from boatlift.spark.jobs.job_groups import JobGroup
from boatlift.spark.jobs.planner import StepPlanner
from boatlift.spark.jobs.scratch_files import ScratchFiles
from boatlift.spark.session.environment import RunningSettings
from boatlift.spark.tasks.stage import TaskReceipt
from boatlift.storage.records.payloads import RunsPayload, StepClock, payload_of, runs_of, to_json

Made = TypeVar("Made")


@dataclass(slots=True)
class Jobs:
    """The jobs of a dataflow's steps.

    Attributes:
        inputs: The rows that steps take.
        planner: Makes the plans of steps.
        group: The dataflow's jobs, which can be made to end.
        files: The files that jobs have left in scratch.
        background: Where plans are made ahead of their turn.
        long_running: Whether small steps may share a job that lives.
        batches: Held while a batch is executed, because two would take all slots.
    """

    spark: SparkSession
    plan: Plan
    inputs: Inputs
    planner: StepPlanner
    group: JobGroup
    files: ScratchFiles
    background: Background
    long_running: bool = True
    batches: threading.Lock = field(default_factory=threading.Lock)
    _settings: RunningSettings = field(init=False)
    _tries: int = field(init=False)

    def __post_init__(self) -> None:
        context = self.spark.sparkContext
        self._settings = RunningSettings(self.spark)
        self._tries = tries_of_a_task(str(context.master), context.getConf().get("spark.task.maxFailures"))

    def begin(self, unit: str, take: StepInput) -> None:
        """Let a job begin: from now on the jobs of this thread are those of a unit.

        Raises:
            UnavailableError: `[STEP_FAILED]` the run is cancelled.
            BoatliftError: a setting that results depend on was changed.
        """
        if self.group.ended:
            raise UnavailableError("STEP_FAILED", f"step {take.number} of {unit} was not begun: the run is cancelled")
        self._settings.check()
        self.group.join(unit)

    def explained(self, unit: CompiledUnit, take: StepInput, job: Callable[[], Made]) -> Made:
        """Run a job; an error of Spark's is raised as what it means for the user.

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
            # Spark has tried the task several times already: code that repeats itself raises it the next time too.
            lasting = self._tries > 1 and unit.unit.deterministic and not unit.unit.records_answers
            inputs = self.inputs.positions(take)
            raise explain(error, unit.name, take.number, inputs, unit.functions, do, lasting=lasting) from error

    def step(
        self, unit: CompiledUnit, take: StepInput, job: Callable[[], Sequence[TaskReceipt]], state: Any = None
    ) -> StepResult:
        """Execute a step that leaves its state as it is.

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

    def result(
        self,
        unit: CompiledUnit,
        take: StepInput,
        receipts: Sequence[TaskReceipt],
        state: Any,
        seconds: float,
        *,
        bounds: tuple[int, int] | None = None,
        determinant: Any = None,
    ) -> StepResult:
        """Return the result of a step; the files of its messages are kept until it is delivered.

        Args:
            receipts: Those of its tasks; none if the step gives no rows.
            state: The payload of the state after the step.
            bounds: The bounds of event time before and after the step; None: those that its input carries.
            determinant: The answers of the outside, of a unit that records them.
        """
        if bounds is None and unit.columns.has_watermark:
            bounds = watermarks_of(take)
        digest = f"{sum(receipt.digest for receipt in receipts) % 2**64:016x}"
        clock = clock_of(take)

        def sent_to(outlet: str, bounds: tuple[int, int] | None = None) -> dict[str, Any]:
            runs = tuple(run for receipt in receipts if (run := receipt.staged[outlet]) is not None)
            rows = sum(run.rows for run in runs)
            return to_json(RunsPayload(runs, rows, digest, clock.clock, clock.seed, bounds=bounds))

        sent = {edge_name(unit.name, sink.name): sent_to(sink.name) for sink in unit.unit.sinks}
        if unit.unit.materialised:
            kept = sent_to(EDGE, bounds)
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
        )
        self.files.made(run.name for payload in sent.values() for run in runs_of(payload))
        return made


def watermarks_of(take: StepInput) -> tuple[int, int] | None:
    """Return the bounds of event time before and after a step; None if no message of its input carries any."""
    payloads = [None if each.payload is None else payload_of(each.payload) for each in take.inputs]
    carried = [each.bounds for each in payloads if isinstance(each, RunsPayload) and each.bounds is not None]
    return (min(before for before, _ in carried), min(after for _, after in carried)) if carried else None


def clock_of(take: StepInput) -> StepClock:
    """Return the clock and the seed of a step: those of its last message."""
    return payload_of(take.inputs[-1].payload).step_clock
