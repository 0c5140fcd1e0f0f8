"""The long-running job of a dataflow: one Spark job that executes many small steps of many units (`decisions/0047`).

It reads, computes and stages with the same functions as the job of one step. So either can execute a step: while the
long-running job is not available, the step gets a job of its own with the same parameters. Steps that wait while a
round is under way share the next round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow import FrameOfTask, Plan, Timing
from boatlift.dataflow.columns import POSITION
from boatlift.decoders import packed_decoder
from boatlift.errors import UnavailableError
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.barrier import Slots, driver_host, open_listener, shut, slot_count
from boatlift.spark.jobs.planner import RECEIPTS, ArrowTask, LastStage
from boatlift.spark.jobs.steps import HasSteps
from boatlift.spark.plans.branches import Branch, Branches, NotRowByRowError, is_a_stream
from boatlift.spark.plans.catalyst import empty_frame, map_in_arrow, optimised, plan_of
from boatlift.spark.session.settings import START_SETTINGS
from boatlift.spark.session.worker_pools import LONG_RUNNING, session_beside, workers_of
from boatlift.spark.tasks.barrier import RelayAddress
from boatlift.spark.tasks.long_running import (
    PRIME,
    READS,
    TAKES,
    LeafRows,
    ParameterizedTask,
    Round,
    SinkPart,
    SinkTask,
    SourceTask,
)
from boatlift.spark.tasks.parameters import JobParameters
from boatlift.storage.records.payloads import StepClock


class LongRunningRelay:
    """Sends rounds to the one source task and the one sink task of a long-running job.

    Laws:
        * A round is sent to one attempt of the job, under a number of its own. So reports always belong to the round
          that they answer.
        * An attempt that does not answer gets no further round.
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

    def round(self, steps: list[tuple[int, JobParameters]]) -> list[tuple[bytes, float]] | None:
        """Execute steps, and return their reports and seconds; None if no task is available.

        One thread at a time calls this.
        """
        with self._lock:
            attempt = self._ready
            if attempt is None:
                return None
            tasks = self._there[attempt]
            self._number += 1
            order = msgspec.msgpack.encode(Round(self._number, steps))
        try:
            for each in (READS, TAKES):
                tasks[each].send_bytes(order)
            reports: list[tuple[bytes, float]] = _REPORTS.decode(tasks[TAKES].recv_bytes())
        except (OSError, EOFError):
            self.disconnect()
            return None
        return reports

    def disconnect(self) -> None:
        """Disconnect all attempts: each ends, and a round under way gets no reports."""
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

SLOW_SECONDS, SLOW_STEPS = 0.25, 3
"""A part with so many steps in a row that take this long has jobs of its own for a while: others wait for it."""

SLOW_PAUSE = 30.0
"""The number of seconds until such a part goes round again."""

MOST_BACKOFF = 60.0
"""The longest time in seconds from a failure of a long-running job to its next begin."""

_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(WIDTH),
    "spark.sql.execution.pandas.udf.buffer.size": "64",
    "spark.sql.subexpressionElimination.enabled": "false",
}
"""Larger buffers of the JVM would hold rows back until later steps; a common expression might be computed for rows of
other branches."""

_REPORTS = packed_decoder(list[tuple[bytes, float]])

MakeFrame: TypeAlias = Callable[[FrameOfTask, LastStage], DataFrame]
"""Makes the frame of a small step from the frames of its rows, and hands it to the last stage."""


def needs_own_jobs(unit: CompiledUnit, plan: Plan) -> str | None:
    """Return why each step of a unit needs a job of its own; None if only the unit's expressions can require it."""
    if unit.unit.timing is Timing.BATCH:
        return "it is a batch"
    if unit.of_step or not unit.unit.deterministic:
        return "its steps cannot share a Spark plan, as with bl.now(), bl.rand() or deterministic=False"
    if unit.unit.records_answers:
        return "it asks an external system, and a step that is executed twice would ask twice"
    for leaf in unit.leaves:
        if leaf in plan.sources and plan.sources[leaf].source.capabilities.parameterized_read is None:
            return f"its Spark plan names the input of {leaf}, which is another in each step"
    return None


def long_running(units: Mapping[str, CompiledUnit], plan: Plan, spark: SparkSession) -> dict[str, str | None]:
    """Return for each unit why steps of it have jobs of their own, whatever the number of slots; None if none have."""
    return {name: needs_own_jobs(unit, plan) or _needed_by_expressions(unit, spark) for name, unit in units.items()}


def _needed_by_expressions(unit: CompiledUnit, spark: SparkSession) -> str | None:
    leaves: set[int] = set()

    def empty(schema: StructType) -> DataFrame:
        frame = empty_frame(spark, schema)
        leaves.add(int(plan_of(frame).rdd().id()))
        return frame

    rows = {}
    for leaf, columns in unit.leaves.items():
        position = [StructField(POSITION, LongType())] if columns.positioned else []
        rows[leaf] = empty(StructType([*columns.weighted_schema.fields, *position]))
    decisive: object = unit.decisive
    own = decisive if isinstance(decisive, HasSteps) else None
    branches = Branches(spark)
    try:
        frames = iter([unit.frame(rows, StepClock(0, 0))]) if own is None else own.small_frames(unit, rows, empty)
        for frame in frames:
            branches.add(frame, frame.columns, leaves)
    except NotRowByRowError as error:
        return str(error)
    return None


def slots_left(plan: Plan) -> int:
    """Return how many slots a long-running job leaves free: one, and one more for batches."""
    return 1 + any(unit.timing is Timing.BATCH for unit in plan.units.values())


def has_workers(spark: SparkSession) -> bool:
    """Return whether a session's Python workers can serve a long-running job; others buffer their output."""
    daemon = spark.sparkContext.getConf().get("spark.python.daemon.module")
    return bool(daemon == START_SETTINGS["spark.python.daemon.module"])


class Parts:
    """Collects the parts of a long-running job: their branches, and the tasks around them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._zone = spark.conf.get("spark.sql.session.timeZone")
        self.branches = Branches(spark)
        self.sources: list[tuple[LeafRows, ...]] = []
        self.sinks: list[SinkPart] = []

    def add(self, name: str, make: MakeFrame) -> None:
        """Add a part.

        Args:
            name: The unit.

        Raises:
            NotRowByRowError: an expression of the part needs several rows, or Python.
        """
        leaves: dict[int, tuple[ParameterizedTask, StructType]] = {}
        branches: list[Branch] = []

        def frame_of(task: ParameterizedTask, schema: StructType) -> DataFrame:
            frame = empty_frame(self._spark, schema)
            leaves[int(plan_of(frame).rdd().id())] = task, schema
            return frame

        def last_stage(frame: DataFrame, columns: Sequence[str], task: ArrowTask) -> DataFrame:
            branches.extend(self.branches.add(frame, columns, leaves))
            self.sinks.append(SinkPart(name, tuple(each.rows for each in branches), task))
            return frame

        make(frame_of, last_stage)
        self.sources.append(tuple(self._rows(task, schema, leaf, branches) for leaf, (task, schema) in leaves.items()))

    def _rows(self, task: ParameterizedTask, schema: StructType, leaf: int, branches: Sequence[Branch]) -> LeafRows:
        readers = tuple((each.rows.number, each.registers) for each in branches if each.leaf == leaf)
        return LeafRows(task, to_arrow_schema(schema, timezone=self._zone), readers)

    def frame(self, relay: RelayAddress, spark: SparkSession) -> DataFrame:
        """Return the planned frame of the job.

        Args:
            spark: A session with small buffers.

        Raises:
            NotRowByRowError: Spark's plan holds rows back.
        """
        given = self.branches.registers
        _, _, *registers = to_arrow_schema(given, timezone=self._zone)
        source = SourceTask(tuple(self.sources), pa.schema(registers), relay, WIDTH, IDLE_TIMEOUT)
        rows = spark.range(0, 1, 1, 1).mapInArrow(source, given)
        sink = SinkTask(tuple(self.sinks), relay)
        frame = optimised(map_in_arrow(self.branches.plan(rows, spark), self.branches.results, sink, RECEIPTS))
        if not is_a_stream(frame):
            raise NotRowByRowError("Spark's plan holds rows back")
        return frame


@dataclass(slots=True, eq=False)
class _Part:
    unit: str
    make: MakeFrame
    number: int | None = None  # in the job that runs now
    unfit: bool = False
    alone: int | None = None  # the step that failed here, and needs a job of its own
    cancelled: int = 0
    slow: int = 0  # steps in a row
    apart_until: float = 0.0


@dataclass(slots=True, eq=False)
class _QueuedStep:
    part: _Part
    parameters: JobParameters
    done: bool = False
    report: bytes | None = None


class LongRunningJob:
    """The long-running job of a dataflow: begins when small steps come quickly, and ends when none come.

    Laws:
        * A step whose round fails has a job of its own, once; the other steps of its unit go round again.
        * A unit whose steps are slow has jobs of its own for a while, if other units would wait for it.

    Args:
        left: The number of slots that the job leaves free.
    """

    def __init__(self, spark: SparkSession, join: Callable[[], None], left: int) -> None:
        self._spark, self._join, self._left = spark, join, left
        self._slots = Slots.of(spark.sparkContext)
        self._relay = LongRunningRelay()
        self._parts: list[_Part] = []
        self._waiting: list[_QueuedStep] = []
        self._round: list[_QueuedStep] = []
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._quick, self._last, self._failures, self._not_before = 0, 0.0, 0, 0.0
        self._closed = self._cancelled = False

    def add(self, unit: str, make: MakeFrame) -> Callable[[JobParameters], bytes | None]:
        """Add a part to all jobs from now on; return the function that executes a step of it in a round.

        The function returns the step's report, or None if the step needs a job of its own. It raises
        `UnavailableError` (`[STEP_FAILED]`) if the step was cancelled.
        """
        part = _Part(unit, make)
        self._parts.append(part)
        return lambda parameters: self._step(part, parameters)

    def _step(self, part: _Part, parameters: JobParameters) -> bytes | None:
        now, before = time.monotonic(), part.cancelled
        if part.unfit or part.alone == parameters.first or now < part.apart_until:
            return None
        part.alone = None
        mine = _QueuedStep(part, parameters)
        with self._lock:
            self._quick = self._quick + 1 if now - self._last < QUICK_SECONDS else 0
            self._waiting.append(mine)
        with self._turn:
            if not mine.done:
                self._go_round()
        self._last = time.monotonic()
        if mine.report is None:
            if part.cancelled != before or self._cancelled:
                raise UnavailableError("STEP_FAILED", f"step {parameters.first} of {part.unit} was cancelled")
            self._begin(now)
        return mine.report

    def _go_round(self) -> None:
        """Execute all steps that wait."""
        with self._lock:
            together, self._waiting = self._waiting, []
            self._round = [each for each in together if each.part.number is not None]
        numbered = [(each.part.number, each.parameters) for each in self._round if each.part.number is not None]
        was_ready = self._relay.is_ready
        reports = self._relay.round(numbered) if numbered else None
        for each, (report, seconds) in zip(self._round, reports or [(b"", 0.0)] * len(numbered), strict=True):
            each.report = report or None
            if was_ready and not report:
                each.part.alone = each.parameters.first
            self._time(each.part, seconds)
        if reports is not None:
            self._failures = 0
        with self._lock:
            self._round = []
        for each in together:
            each.done = True

    def _time(self, part: _Part, seconds: float) -> None:
        """Leave a slow part out for a while, unless it keeps no other part waiting."""
        part.slow = part.slow + 1 if seconds > SLOW_SECONDS else 0
        if part.slow == SLOW_STEPS and sum(each.number is not None for each in self._parts) > 1:
            logger.info("steps of %s have jobs of their own for %s s: they are slow", part.unit, SLOW_PAUSE)
            part.slow, part.apart_until = 0, time.monotonic() + SLOW_PAUSE

    def cancel_steps(self, unit: str) -> None:
        """Cancel the step of a unit that is under way."""
        for part in self._parts:
            part.cancelled += part.unit == unit
        with self._lock:
            under_way = any(each.part.unit == unit for each in self._round)
        if under_way:
            self._relay.disconnect()

    def cancel(self) -> None:
        """Cancel all steps, and let none begin."""
        self._cancelled = True
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

    def _begin(self, now: float) -> None:
        with self._lock:
            running = self._thread is not None and self._thread.is_alive()
            if running or self._closed or self._cancelled or self._quick < STEPS_BEFORE or now < self._not_before:
                return
            if self._slots.take(slot_count(self._spark.sparkContext), self._left, self, self._relay.disconnect):
                self._thread = threading.Thread(target=self._run, name="long-running job", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            self._join()
            with self._relay.answering(driver_host(self._spark.sparkContext)) as address:
                with workers_of(LONG_RUNNING, self._spark.sparkContext):
                    frame = self._frame(address)
                if frame is not None and not (self._closed or self._cancelled):
                    frame.collect()
        except Exception as error:  # noqa: BLE001 - steps can have jobs of their own
            logger.info("the long-running job has ended: %s", error)
            self._failures += 1
            self._not_before = time.monotonic() + min(MOST_BACKOFF, 2.0**self._failures - 2)
        finally:
            self._quick = 0
            self._slots.give_back(self)

    def _frame(self, address: RelayAddress) -> DataFrame | None:
        """Return the planned frame of all parts that can be in one; None if there are none."""
        beside = session_beside(self._spark, _SETTINGS)
        try:
            return self._together(address, beside, self._parts)
        except Exception as error:  # noqa: BLE001 - one part is at fault: each is tried alone
            logger.info("the long-running job is planned again, without the parts at fault: %s", error)
        for part in self._parts:
            try:
                self._together(address, beside, [part])
            except Exception as error:  # noqa: BLE001 - its steps have jobs of their own
                self._leave_out(part, error)
        return self._together(address, beside, self._parts)

    def _together(self, address: RelayAddress, beside: SparkSession, parts: Sequence[_Part]) -> DataFrame | None:
        """Return the planned frame of those of some parts that have branches, and number them."""
        together, numbered = Parts(self._spark), list[_Part]()
        for part in parts:
            if part.unfit:
                continue
            try:
                together.add(part.unit, part.make)
            except NotRowByRowError as error:
                self._leave_out(part, error)
            else:
                numbered.append(part)
        frame = together.frame(address, beside) if numbered else None
        with self._turn:  # no round is on its way with older numbers
            for part in self._parts:
                part.number = numbered.index(part) if part in numbered else None
        return frame

    @staticmethod
    def _leave_out(part: _Part, error: Exception) -> None:
        logger.info("steps of %s have jobs of their own: %s", part.unit, error)
        part.unfit = True
