"""The resident job of a unit: one job that lives for many small steps (`docs/decisions/0047`).

It reads, computes and stages what the job of each step would, in the same functions. So a step may be executed by
either: whenever the resident job does not answer, the step has a job of its own, under the same parameters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from boatlift.dataflow import FrameOfTask
from boatlift.dataflow.columns import MARK
from boatlift.errors import UnavailableError
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.job_groups import JobGroup
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.long_running_eligibility import EXPRESSIONS, needs_own_jobs, slots_left
from boatlift.spark.jobs.long_running_relay import LongRunningRelay
from boatlift.spark.jobs.planner import RECEIPTS, ArrowTask, LastStage
from boatlift.spark.jobs.slots import Slots, slot_count
from boatlift.spark.jobs.task_listener import driver_host
from boatlift.spark.plans.catalyst import map_in_arrow, optimised
from boatlift.spark.plans.marked import is_a_stream, marked
from boatlift.spark.session.beside import session_beside
from boatlift.spark.session.settings import START_SETTINGS
from boatlift.spark.session.worker_pools import LONG_RUNNING, workers_of
from boatlift.spark.tasks.long_running import SinkTask, SourceTask, blank_row
from boatlift.spark.tasks.parameters import JobParameters
from boatlift.spark.tasks.relay_connection import RelayAddress

logger = logging.getLogger(__name__)

LONG_RUNNING_BYTES = 1 << 18
"""A step with more input than this has a job of its own: rows travel in small batches between the parts."""

WIDTH = 64
"""So many rows travel together."""

STEPS_BEFORE = 8
"""After so many small steps in quick succession a resident job begins."""

QUICK_SECONDS = 1.0
"""Steps that are further apart do not follow quickly; their jobs may as well begin and end."""

PATIENCE = 10.0
"""A resident job ends after so many seconds without a step."""

LONGEST_REST = 60.0
"""A resident job that failed begins again after a rest, which is never longer than this."""

_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(WIDTH),
    "spark.sql.execution.pandas.udf.buffer.size": "64",
}
"""Else rows wait in the JVM's buffers for those of later steps."""

MakeFrame = Callable[[FrameOfTask, LastStage], DataFrame]
"""Makes the planned frame of a small step, of the frame of the rows that are read, and with a last stage."""


class LongRunningJob:
    """The resident job of one unit: begins when small steps come quickly, and ends when none come.

    Args:
        make: Makes the frame of a small step.
        left: How many slots the job has to leave to others.
    """

    def __init__(self, unit: CompiledUnit, group: JobGroup, spark: SparkSession, make: MakeFrame, left: int) -> None:
        self._unit, self._group, self._spark, self._make, self._left = unit, group, spark, make, left
        self._slots = Slots.of(spark.sparkContext)
        self._relay = LongRunningRelay()
        self._living: threading.Thread | None = None
        self._quick, self._last, self._rests, self._not_before = 0, 0.0, 0, 0.0
        self._cannot = self._closed = False
        self._called_off = 0

    def step(self, parameters: JobParameters) -> bytes | None:
        """Execute a step, and return its report; None if it needs a job of its own.

        Raises:
            UnavailableError: `[STEP_FAILED]` the step was called off, or the run is cancelled.
        """
        now = time.monotonic()
        self._quick = self._quick + 1 if now - self._last < QUICK_SECONDS else 0
        before = self._called_off
        report = self._relay.step(parameters)
        self._last = time.monotonic()
        if report is not None:
            self._rests = 0
            return report
        if self._group.ended or self._called_off != before:
            raise UnavailableError("STEP_FAILED", f"step {parameters.first} of {self._unit.name} was called off")
        if self._quick >= STEPS_BEFORE and now >= self._not_before:
            self._begin()
        return None

    def cancel_steps(self) -> None:
        """Let the step under way end soon; it is not wanted any more."""
        self._called_off += 1
        self._relay.part()

    def make_room(self) -> None:
        """End the job soon: a larger step wants its slot. It begins again when small steps come quickly."""
        self._quick = 0
        self._relay.part()

    def close(self) -> None:
        """End the job, and wait for it."""
        self._closed = True
        self._relay.part()
        living = self._living
        if living is not None:
            living.join(PATIENCE)

    def _begin(self) -> None:
        if self._cannot or self._closed or (self._living is not None and self._living.is_alive()):
            return
        slots = slot_count(self._spark.sparkContext)
        if self._slots.take(slots, self._left, self, self._relay.part):
            self._living = threading.Thread(target=self._live, name=f"resident {self._unit.name}", daemon=True)
            self._living.start()

    def _live(self) -> None:
        name = self._unit.name
        try:
            self._group.join(name)
            with self._relay.answering(driver_host(self._spark.sparkContext)) as address:
                frame = self._frame(address)
                if frame is None:
                    logger.info("%s has no resident job: %s", name, EXPRESSIONS)
                    self._cannot = True
                    return
                if not self._closed:
                    frame.collect()
        except Exception as error:  # noqa: BLE001 - each step can do without it
            logger.info("the resident job of %s has ended: %s", name, error)
            self._rests += 1
            self._not_before = time.monotonic() + min(LONGEST_REST, 2.0**self._rests)
        finally:
            self._quick = 0
            self._slots.give_back(self)

    def _frame(self, relay: RelayAddress) -> DataFrame | None:
        """Return the planned frame of the job; None if the unit's expressions do not let marks pass."""
        name, spark = self._unit.name, self._spark
        beside = session_beside(spark, _SETTINGS)

        def frame_of(task: ArrowTask, schema: StructType) -> DataFrame:
            arrow: pa.Schema = to_arrow_schema(schema, timezone=spark.conf.get("spark.sql.session.timeZone"))
            part = SourceTask(name, task, relay, blank_row(arrow), WIDTH, PATIENCE)
            with_mark = StructType([*schema.fields, StructField(MARK, IntegerType(), nullable=False)])
            return spark.range(0, 1, 1, 1).mapInArrow(part, with_mark)

        def last_stage(frame: DataFrame, columns: Sequence[str], task: ArrowTask) -> DataFrame:
            passing = marked(frame, beside)
            if passing is None:
                raise _CannotStayError
            return optimised(map_in_arrow(passing, [*columns, MARK], SinkTask(name, task, relay), RECEIPTS))

        try:
            with workers_of(LONG_RUNNING, spark.sparkContext):
                made = self._make(frame_of, last_stage)
        except _CannotStayError:
            return None
        return made if is_a_stream(made) else None


def long_running_job(unit: CompiledUnit, jobs: Jobs, make: MakeFrame) -> LongRunningJob | None:
    """Return the resident job of a unit; None if the unit has none, whatever its expressions."""
    daemon = jobs.spark.sparkContext.getConf().get("spark.python.daemon.module")
    if not jobs.long_running or daemon != START_SETTINGS["spark.python.daemon.module"]:  # else workers write late
        return None
    if needs_own_jobs(unit, jobs.plan) is not None:
        return None
    return LongRunningJob(unit, jobs.group, jobs.spark, make, slots_left(jobs.plan))


class _CannotStayError(Exception):
    """The unit's expressions do not let marks pass."""
