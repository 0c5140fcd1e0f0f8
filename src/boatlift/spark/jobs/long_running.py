"""The long-running job of a unit: one Spark job that executes many small steps (`docs/decisions/0047`).

It reads, computes and stages with the same functions as the job of one step. So either can execute a step: while the
long-running job is not available, the step gets a job of its own with the same parameters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from boatlift.dataflow import FrameOfTask, Plan, Timing
from boatlift.dataflow.columns import MARK, POSITION
from boatlift.errors import UnavailableError
from boatlift.spark.compile.keyed import CompiledKeyed
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.barrier import Slots, driver_host, open_listener, shut, slot_count
from boatlift.spark.jobs.jobs import JobGroup, Jobs
from boatlift.spark.jobs.planner import RECEIPTS, ArrowTask, LastStage
from boatlift.spark.plans.catalyst import map_in_arrow, optimised
from boatlift.spark.plans.marked import is_a_stream, marked
from boatlift.spark.session.settings import START_SETTINGS
from boatlift.spark.session.worker_pools import LONG_RUNNING, session_beside, workers_of
from boatlift.spark.tasks.barrier import RelayAddress
from boatlift.spark.tasks.long_running import PRIME, READS, TAKES, LongRunningOrder, SinkTask, SourceTask, blank_row
from boatlift.spark.tasks.parameters import JobParameters
from boatlift.storage.records.payloads import StepClock

EXPRESSIONS = "it has an expression over several rows, or one in Python"


def needs_own_jobs(unit: CompiledUnit, plan: Plan) -> str | None:
    """Return why each step of a unit needs a job of its own; None if only the unit's expressions can require it."""
    (first, *others) = unit.leaves
    if others or first not in plan.sources:
        return "it reads another processor, or several sources"
    if plan.sources[first].source.capabilities.parameterized_read is None:
        return f"its Spark plan names the input of {first}, which is another in each step"
    if unit.unit.timing is not Timing.EPOCHS:
        return "its steps are not those of its source"
    if unit.apart or not unit.unit.deterministic:
        return "its steps cannot share a Spark plan, as with bl.now(), bl.rand() or deterministic=False"
    if unit.unit.records_answers:
        return "it asks an external system, and a step that is executed twice would ask twice"
    return None


def slots_left(plan: Plan) -> int:
    """Return how many slots a long-running job leaves free: one, and one more for batches."""
    return 1 + any(unit.timing is Timing.BATCH for unit in plan.units.values())


def long_running(units: Mapping[str, CompiledUnit], plan: Plan, spark: SparkSession) -> dict[str, str | None]:
    """Return for each unit why it cannot have a long-running job, whatever the number of slots; None if it can."""
    found: dict[str, str | None] = {}
    for name, unit in units.items():
        found[name] = needs_own_jobs(unit, plan)
        if found[name] is None and not _passes_markers(unit, spark):
            found[name] = EXPRESSIONS
    return found


def _passes_markers(unit: CompiledUnit, spark: SparkSession) -> bool:
    top = unit.top
    if not (top is None or top.row_wise or isinstance(top, CompiledKeyed) or unit.unit.keeps_state):
        return False
    (leaf,) = unit.leaves
    columns = unit.leaves[leaf]
    position = [StructField(POSITION, LongType())] if columns.positioned else []
    schema = StructType([*columns.weighted_schema.fields, *position, StructField(MARK, IntegerType(), nullable=False)])
    rows = spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, schema).drop(MARK)
    passing = marked(unit.frame({leaf: rows}, StepClock(0, 0)), spark)
    return passing is not None and is_a_stream(optimised(passing))


class LongRunningRelay:
    """Sends steps to the one source task and the one sink task of a long-running job.

    Laws:
        * A step is sent to one attempt of the job, under a number of its own. So a report always belongs to the step
          that it answers.
        * An attempt that does not answer gets no further step.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: dict[int, dict[int, Connection]] = {}  # attempt to its tasks
        self._ready: int | None = None
        self._primed: int | None = None  # the attempt whose first markers arrived, maybe before its source task joined
        self._number = PRIME

    @contextmanager
    def answering(self, host: str) -> Iterator[RelayAddress]:
        """Let tasks connect to an address of this machine until the end of the block."""
        with open_listener(host, self._join) as address:
            try:
                yield address
            finally:
                self.disconnect()

    @property
    def is_ready(self) -> bool:
        with self._lock:
            return self._ready is not None

    def step(self, parameters: JobParameters) -> bytes | None:
        """Execute a step; return its report, or None if no task is available. One thread at a time calls this."""
        with self._lock:
            attempt = self._ready
            if attempt is None:
                return None
            tasks = self._there[attempt]
            self._number += 1
            order = msgspec.msgpack.encode(LongRunningOrder(self._number, parameters))
        try:
            for each in (READS, TAKES):
                tasks[each].send_bytes(order)
            return tasks[TAKES].recv_bytes()
        except (OSError, EOFError):
            self.disconnect()
            return None

    def disconnect(self) -> None:
        """Disconnect all attempts: each ends, and a step under way gets no report."""
        with self._lock:
            there, self._there, self._ready = self._there, {}, None
        for tasks in there.values():
            for connection in tasks.values():
                shut(connection)

    def _join(self, part: int, attempt: int, connection: Connection) -> None:
        with self._lock:
            if attempt < max(self._there, default=0):
                connection.close()  # its attempt was given up
                return
            older = [self._there.pop(each) for each in list(self._there) if each < attempt]
            if older:
                self._ready = None
            self._there.setdefault(attempt, {})[part] = connection
        for tasks in older:
            for each in tasks.values():
                shut(each)
        if part == TAKES:
            try:
                connection.recv_bytes()  # the markers that the source task has sent ahead have arrived
            except (OSError, EOFError):
                return
        with self._lock:
            self._primed = attempt if part == TAKES else self._primed
            if self._primed == attempt and len(self._there.get(attempt, {})) == 2:
                self._ready, self._number = attempt, PRIME


logger = logging.getLogger(__name__)

LONG_RUNNING_BYTES = 1 << 18
"""A step with more bytes of input has a job of its own: rows travel in small batches between the two tasks."""

WIDTH = 64
"""The number of rows in such a batch."""

STEPS_BEFORE = 8
"""A long-running job begins after this number of small steps in quick succession."""

QUICK_SECONDS = 1.0
"""Steps at a larger distance are not in quick succession."""

IDLE_TIMEOUT = 10.0
"""A long-running job ends after this number of seconds without a step."""

MOST_BACKOFF = 60.0
"""The longest time in seconds from a failure of a long-running job to its next begin."""

_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(WIDTH),
    "spark.sql.execution.pandas.udf.buffer.size": "64",
}
"""Larger buffers of the JVM would hold rows back until later steps."""

MakeFrame = Callable[[FrameOfTask, LastStage], DataFrame]
"""Makes the planned frame of a small step from the frame of its rows and its last stage."""


class LongRunningJob:
    """The long-running job of one unit: begins when small steps come quickly, and ends when none come.

    Args:
        left: The number of slots that the job leaves free.
    """

    def __init__(self, unit: CompiledUnit, group: JobGroup, spark: SparkSession, make: MakeFrame, left: int) -> None:
        self._unit, self._group, self._spark, self._make, self._left = unit, group, spark, make, left
        self._slots = Slots.of(spark.sparkContext)
        self._relay = LongRunningRelay()
        self._thread: threading.Thread | None = None
        self._quick, self._last, self._failures, self._not_before = 0, 0.0, 0, 0.0
        self._unfit = self._closed = False
        self._cancelled = 0

    def step(self, parameters: JobParameters) -> bytes | None:
        """Execute a step, and return its report; None if the step needs a job of its own.

        Raises:
            UnavailableError: `[STEP_FAILED]` the step or the run was cancelled.
        """
        now = time.monotonic()
        self._quick = self._quick + 1 if now - self._last < QUICK_SECONDS else 0
        before = self._cancelled
        report = self._relay.step(parameters)
        self._last = time.monotonic()
        if report is not None:
            self._failures = 0
            return report
        if self._group.ended or self._cancelled != before:
            raise UnavailableError("STEP_FAILED", f"step {parameters.first} of {self._unit.name} was cancelled")
        if self._quick >= STEPS_BEFORE and now >= self._not_before:
            self._begin()
        return None

    def cancel_steps(self) -> None:
        """Cancel the step under way."""
        self._cancelled += 1
        self._relay.disconnect()

    def make_room(self) -> None:
        """End the job, because a larger step needs its slot. It begins again when small steps come quickly."""
        self._quick = 0
        self._relay.disconnect()

    def close(self) -> None:
        """End the job, and wait for it."""
        self._closed = True
        self._relay.disconnect()
        if self._thread is not None:
            self._thread.join(IDLE_TIMEOUT)

    def _begin(self) -> None:
        if self._unfit or self._closed or (self._thread is not None and self._thread.is_alive()):
            return
        slots = slot_count(self._spark.sparkContext)
        if self._slots.take(slots, self._left, self, self._relay.disconnect):
            self._thread = threading.Thread(target=self._run, name=f"long-running {self._unit.name}", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        name = self._unit.name
        try:
            self._group.join(name)
            with self._relay.answering(driver_host(self._spark.sparkContext)) as address:
                frame = self._frame(address)
                if frame is None:
                    logger.info("%s has no long-running job: %s", name, EXPRESSIONS)
                    self._unfit = True
                    return
                if not self._closed:
                    frame.collect()
        except Exception as error:  # noqa: BLE001 - steps can have jobs of their own
            logger.info("the long-running job of %s has ended: %s", name, error)
            self._failures += 1
            self._not_before = time.monotonic() + min(MOST_BACKOFF, 2.0**self._failures)
        finally:
            self._quick = 0
            self._slots.give_back(self)

    def _frame(self, relay: RelayAddress) -> DataFrame | None:
        """Return the planned frame of the job; None if the unit's expressions do not pass markers on."""
        name, spark = self._unit.name, self._spark
        beside = session_beside(spark, _SETTINGS)

        def frame_of(task: ArrowTask, schema: StructType) -> DataFrame:
            arrow: pa.Schema = to_arrow_schema(schema, timezone=spark.conf.get("spark.sql.session.timeZone"))
            part = SourceTask(name, task, relay, blank_row(arrow), WIDTH, IDLE_TIMEOUT)
            with_mark = StructType([*schema.fields, StructField(MARK, IntegerType(), nullable=False)])
            return spark.range(0, 1, 1, 1).mapInArrow(part, with_mark)

        def last_stage(frame: DataFrame, columns: Sequence[str], task: ArrowTask) -> DataFrame:
            passing = marked(frame, beside)
            if passing is None:
                raise _MarkersLostError
            return optimised(map_in_arrow(passing, [*columns, MARK], SinkTask(name, task, relay), RECEIPTS))

        try:
            with workers_of(LONG_RUNNING, spark.sparkContext):
                made = self._make(frame_of, last_stage)
        except _MarkersLostError:
            return None
        return made if is_a_stream(made) else None


def long_running_job(unit: CompiledUnit, jobs: Jobs, make: MakeFrame) -> LongRunningJob | None:
    """Return the long-running job of a unit; None if the unit cannot have one, whatever its expressions."""
    daemon = jobs.spark.sparkContext.getConf().get("spark.python.daemon.module")
    if not jobs.long_running or daemon != START_SETTINGS["spark.python.daemon.module"]:  # other workers buffer output
        return None
    if needs_own_jobs(unit, jobs.plan) is not None:
        return None
    return LongRunningJob(unit, jobs.group, jobs.spark, make, slots_left(jobs.plan))


class _MarkersLostError(Exception):
    """The unit's expressions do not pass markers on."""
