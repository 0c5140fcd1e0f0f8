"""The long-running job of a dataflow: one Spark job that executes many small steps of many units (`decisions/0073`).

It reads, computes and stages with the same functions as the job of one step. So either can execute a step: while the
long-running job is not available, the step gets a job of its own with the same parameters. Steps that wait while a
round is under way share the next round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

import msgspec
from pyspark.sql import DataFrame, SparkSession

from boatlift.dataflow import Plan, Timing
from boatlift.decoders import packed_decoder
from boatlift.errors import UnavailableError
from boatlift.processes.settings import START_SETTINGS
from boatlift.processes.worker_pools import LONG_RUNNING, session_beside, workers_of
from boatlift.runtime.engine import Activity
from boatlift.spark.jobs.barrier import Slots, driver_host, open_listener, shut, slot_count
from boatlift.spark.jobs.job_group import JobGroup
from boatlift.spark.jobs.members import IDLE_TIMEOUT, WIDTH, MakeFrame, Members
from boatlift.spark.jobs.planner import InRound
from boatlift.spark.plans.common_plan import NotRowByRowError
from boatlift.tasks.barrier import RelayAddress
from boatlift.tasks.long_running import (
    PRIME,
    READS,
    TAKES,
    OrderedStep,
    Round,
    RoundAnswer,
)
from boatlift.tasks.parameters import JobParameters


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
        self._ended = False

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

    def round(self, steps: list[OrderedStep], lent: list[int], answered: Callable[[int, bytes, float], None]) -> bool:
        """Execute steps, and report each as soon as it is executed; one thread at a time calls this.

        Args:
            lent: The places of the steps that the source task may execute.
            answered: Takes the place of a step, its report, which is empty if it failed, and its seconds.

        Returns:
            Whether all steps were reported; those that were not have failed with the tasks, or found none.
        """
        with self._lock:
            attempt = self._ready
            if attempt is None:
                return False
            tasks = self._there[attempt]
        left, rows, further = len(steps), b"", True
        try:
            while left:
                if further:
                    with self._lock:
                        if self._ready != attempt:
                            return False
                        self._number += 1
                        number = self._number
                    order = msgspec.msgpack.encode(Round(number, steps, lent=lent))
                    tasks[READS].send_bytes(msgspec.msgpack.encode(Round(number, [], rows)) if rows else order)
                    tasks[TAKES].send_bytes(order)
                    further = False
                for each in wait(tasks.values()) if lent else (tasks[TAKES],):
                    assert isinstance(each, Connection)
                    answer: RoundAnswer = _ANSWERS.decode(each.recv_bytes())
                    if answer.lent:
                        taken = [steps[place] for place in answer.lent]
                        lends = Round(number, taken, lent=answer.lent, lent_rows=answer.lent_rows)
                        tasks[READS].send_bytes(msgspec.msgpack.encode(lends))
                    for place, report, seconds in answer.reports:
                        left -= 1
                        answered(place, report, seconds)
                    if answer.rows:
                        rows, further = answer.rows, True
        except (OSError, EOFError):
            self.disconnect()
            return False
        return True

    def begin(self) -> None:
        """Let tasks join, from now until `end`."""
        self._ended = False

    def end(self) -> None:
        """Disconnect all attempts, and let none join: the job ends though it may only be planned yet."""
        self._ended = True
        self.disconnect()

    def disconnect(self) -> None:
        """Disconnect all attempts: each ends, and a round under way gets no reports."""
        with self._lock:
            there, self._there, self._ready = self._there, {}, None
        for tasks in there.values():
            for connection in tasks.values():
                shut(connection)

    def _join(self, member: int, attempt: int, connection: Connection) -> None:
        with self._lock:
            if self._ended or attempt < max(self._there, default=0):
                connection.close()  # its attempt was given up
                return
            older = [self._there.pop(each) for each in list(self._there) if each < attempt]
            if older:
                self._ready = None
            self._there.setdefault(attempt, {})[member] = connection
        for tasks in older:
            for each in tasks.values():
                shut(each)
        if member == TAKES:
            try:
                connection.recv_bytes()  # the markers that the source task has sent ahead have arrived
            except (OSError, EOFError):
                return
        with self._lock:
            self._primed = attempt if member == TAKES else self._primed
            if self._primed == attempt and len(self._there.get(attempt, {})) == 2:
                self._ready, self._number = attempt, PRIME


logger = logging.getLogger(__name__)

LONG_RUNNING_BYTES = 1 << 18
"""A step with more bytes of input has a job of its own: rows travel in small batches between the two tasks."""

STEPS_BEFORE = 8
"""A long-running job begins after this number of small steps in quick succession."""

QUICK_SECONDS = 5.0
"""Steps at a larger distance are not in quick succession."""

LENT_SECONDS = 0.002
"""Steps are lent to the source task if they took longer than this at the last time: their rows make a detour."""

SLOW_SECONDS, BAD_STEPS = 0.25, 3
"""A member with so many steps in a row that take this long, or fail, has jobs of its own for a while."""

PAUSE = 30.0
"""The number of seconds until such a member goes round again."""

MOST_BACKOFF = 60.0
"""The longest time in seconds from a failure of a long-running job to its next begin."""

END_SECONDS = 1.0
"""The time in which the tasks of a long-running job end by themselves once they are disconnected."""

_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(WIDTH),
    "spark.sql.execution.pandas.udf.buffer.size": "64",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.codegen.maxFields": "100000",
    "spark.sql.codegen.wholeStage": "false",
}
"""Larger buffers of the JVM would hold rows back until later steps; a common expression might be computed for rows of
other branches; the code of a whole stage is one method, which Spark interprets if it is too long."""

_ANSWERS = packed_decoder(RoundAnswer)


def slots_left(plan: Plan) -> int:
    """Return how many slots a long-running job leaves free: one, and one more for batches."""
    return 1 + any(unit.timing is Timing.BATCH for unit in plan.units.values())


def has_workers(spark: SparkSession) -> bool:
    """Return whether a session's Python workers can serve a long-running job; others buffer their output."""
    daemon = spark.sparkContext.getConf().get("spark.python.daemon.module")
    return bool(daemon == START_SETTINGS["spark.python.daemon.module"])


@dataclass(slots=True, eq=False)
class _Member:
    unit: str
    make: MakeFrame
    number: int | None = None  # in the job that runs now
    unfit: bool = False
    alone: int | None = None  # the step that failed here, and needs a job of its own
    cancelled: int = 0
    bad: int = 0  # steps in a row
    seconds: float = 0.0  # of its last step
    apart_until: float = 0.0


@dataclass(slots=True, eq=False)
class _QueuedStep:
    member: _Member
    step: OrderedStep
    cancelled: int
    report: bytes | None = None
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)


def _lent(steps: Sequence[_QueuedStep]) -> list[int]:
    """Return the places of the steps that are lent: every other member, always the same, as each task opens its runs.

    None are if the detour of their rows would take longer than they do, or if the sink task would have none.
    """
    lent = [place for place, each in enumerate(steps) if each.member.number is not None and each.member.number % 2]
    pays = sum(steps[place].member.seconds for place in lent) > LENT_SECONDS
    return lent if pays and len(lent) < len(steps) else []


class LongRunningJob:
    """The long-running job of a dataflow: begins when small steps come quickly, and ends when none come.

    Laws:
        * A step goes on as soon as it is reported; it does not wait for the others of its round.
        * A step whose round fails before has a job of its own, once; the other steps of its unit go round again.
        * A unit whose steps are slow has jobs of its own for a while, if other units would wait for it.

    Args:
        group: The jobs of the dataflow; the long-running job is the one of the unit "".
        left: The number of slots that the job leaves free.
    """

    def __init__(self, spark: SparkSession, group: JobGroup, left: int) -> None:
        self._spark, self._group, self._left = spark, group, left
        self._slots = Slots.of(spark.sparkContext)
        self._relay = LongRunningRelay()
        self._members: list[_Member] = []
        self._waiting: list[_QueuedStep] = []
        self._round: list[_QueuedStep] = []
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._rounding: threading.Thread | None = None
        self._thread: threading.Thread | None = None
        self._quick, self._last, self._failures, self._not_before = 0, 0.0, 0, 0.0
        self._rounds = 0
        self._closed = self._cancelled = False
        self._listening = ExitStack()
        self._address: RelayAddress | None = None
        self._planned: tuple[list[_Member], DataFrame | None] | None = None

    def add(self, unit: str, make: MakeFrame) -> InRound:
        """Add a member to all jobs from now on; return the function that executes a step of it in a round.

        The function returns the step's report, or None if the step needs a job of its own. It raises
        `UnavailableError` (`[STEP_FAILED]`) if the step was cancelled.
        """
        member = _Member(unit, make)
        self._members.append(member)
        return lambda parameters, given: self._step(member, parameters, given)

    def _step(self, member: _Member, parameters: JobParameters, given: bytes) -> bytes | None:
        now = time.monotonic()
        if member.unfit or member.alone == parameters.first or now < member.apart_until:
            return None
        member.alone = None
        mine = _QueuedStep(member, OrderedStep(-1, parameters, given), member.cancelled)
        with self._changed:
            if self._closed:
                return None
            self._quick = self._quick + 1 if now - self._last < QUICK_SECONDS else 0
            self._waiting.append(mine)
            if self._rounding is None:
                self._rounding = threading.Thread(target=self._go_round, name="rounds", daemon=True)
                self._rounding.start()
            self._changed.notify()
        mine.done.wait()
        self._last = time.monotonic()
        if mine.error is not None:
            raise mine.error
        if mine.report is None:
            if member.cancelled != mine.cancelled or self._cancelled:
                raise UnavailableError("STEP_FAILED", f"step {parameters.first} of {member.unit} was cancelled")
            self._begin(now)
        return mine.report

    def _go_round(self) -> None:
        """Execute the steps that wait, round after round, until the job is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
            with self._turn:
                with self._lock:
                    together, self._waiting = self._waiting, []
                    wanted = [each for each in together if each.member.cancelled == each.cancelled]
                    self._round = [each for each in wanted if each.member.number is not None]
                    self._rounds += 1
                    steps = list(self._round)
                try:
                    if steps:
                        self._execute(steps)
                except BaseException as error:  # noqa: BLE001 - the threads of the steps raise it
                    for each in together:
                        each.error = error
                finally:
                    with self._lock:
                        self._round = []
                    for each in together:
                        each.done.set()

    def _execute(self, steps: Sequence[_QueuedStep]) -> None:
        """Execute the steps of a round."""
        left = dict(enumerate(steps))

        def answered(place: int, report: bytes, seconds: float) -> None:
            step = left.pop(place)
            step.report, step.member.seconds = report or None, seconds
            if not report:
                step.member.alone = step.step.parameters.first
            self._judge(step.member, failed=not report, slow=seconds > SLOW_SECONDS)
            with self._lock:
                self._round.remove(step)
            step.done.set()

        ordered = [msgspec.structs.replace(each.step, member=each.member.number) for each in steps]
        was_ready = self._relay.is_ready
        if self._relay.round(ordered, _lent(steps), answered):
            self._failures = 0
        elif was_ready:
            for each in left.values():
                each.member.alone = each.step.parameters.first
                each.member.bad = 0

    def _judge(self, member: _Member, *, failed: bool, slow: bool) -> None:
        """Leave a member out for a while that fails, or that is slow while others wait for it."""
        others = any(each.number is not None and each.unit != member.unit for each in self._members)
        member.bad = member.bad + 1 if failed or (slow and others) else 0
        if member.bad >= BAD_STEPS:
            why = "they fail" if failed else "they are slow"
            logger.info("steps of %s have jobs of their own for %s s: %s in rounds", member.unit, PAUSE, why)
            member.bad = 0
            self._keep_apart(member.unit, PAUSE)

    def _keep_apart(self, unit: str, seconds: float) -> None:
        """Let a unit have jobs of its own for a while, with all of its members: a step may need several."""
        for each in self._members:
            if each.unit == unit:
                each.apart_until = time.monotonic() + seconds

    def activity(self, unit: str) -> Activity | None:
        """Return the progress of a unit's step in a round, or before one; None if it has none."""
        with self._lock:
            rounds, waits = self._rounds, any(each.member.unit == unit for each in self._waiting)
            under_way = any(each.member.unit == unit for each in self._round)
        if under_way:
            job = self._group.activity("")
            return Activity((rounds, job.mark), job.tasks)
        return Activity(rounds, "") if waits else None

    def cancel_steps(self, unit: str) -> None:
        """Cancel the step of a unit that is under way."""
        for member in self._members:
            member.cancelled += member.unit == unit
        with self._lock:
            under_way = any(each.member.unit == unit for each in self._round)
        if under_way:
            self._relay.disconnect()
            threading.Thread(target=self._end_hung, args=(self._thread,), name="end of a job", daemon=True).start()

    def _end_hung(self, job: threading.Thread | None) -> None:
        """Cancel a job whose tasks do not end though they are disconnected: a function in them hangs."""
        if job is not None:
            job.join(END_SECONDS)
            if job.is_alive() and self._thread is job:
                self._group.end("")

    def cancel(self) -> None:
        """Cancel all steps, and let none begin."""
        self._cancelled = True
        self._relay.end()

    def make_room(self) -> None:
        """End the job, because a larger step needs its slot. It begins again when small steps come quickly."""
        self._quick = 0
        self._relay.end()

    def close(self) -> None:
        """End the job, and wait for it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._relay.end()
        if self._thread is not None:
            self._thread.join(IDLE_TIMEOUT)
        self._listening.close()

    def _begin(self, now: float) -> None:
        with self._lock:
            running = self._thread is not None and self._thread.is_alive()
            if running or self._closed or self._cancelled or self._quick < STEPS_BEFORE or now < self._not_before:
                return
            self._relay.begin()
            if self._slots.take(slot_count(self._spark.sparkContext), self._left, self, self._relay.end):
                self._thread = threading.Thread(target=self._run, name="long-running job", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            self._group.join("", f"small steps of {', '.join(dict.fromkeys(each.unit for each in self._members))}")
            context = self._spark.sparkContext
            if self._address is None:  # tasks of all runs have one address, so that a plan serves several runs
                self._address = self._listening.enter_context(self._relay.answering(driver_host(context)))
            with workers_of(LONG_RUNNING, context):
                frame = self._frame(self._address)
            if frame is not None and not (self._closed or self._cancelled):
                frame.collect()
        except Exception as error:  # noqa: BLE001 - steps can have jobs of their own
            logger.info("the long-running job has ended: %s", error)
            self._planned = None  # Spark keeps some failures with a plan
            self._failures += 1
            self._not_before = time.monotonic() + min(MOST_BACKOFF, 2.0**self._failures - 2)
        finally:
            self._relay.disconnect()
            self._quick = 0
            self._slots.give_back(self)

    def _frame(self, address: RelayAddress) -> DataFrame | None:
        """Return the planned frame of all members that can be in one, and number them; None if there are none."""
        if self._planned is None or self._planned[0] != self._there(self._members):
            beside = session_beside(self._spark, _SETTINGS)
            try:
                self._planned = self._together(address, beside, self._members)
            except Exception as error:  # noqa: BLE001 - one member is at fault: each is tried alone
                logger.info("the long-running job is planned again, without the members at fault: %s", error)
                for member in self._members:
                    try:
                        self._together(address, beside, [member])
                    except Exception as own:  # noqa: BLE001 - its steps have jobs of their own
                        logger.info("steps of %s have jobs of their own for %s s: %s", member.unit, MOST_BACKOFF, own)
                        self._keep_apart(member.unit, MOST_BACKOFF)
                self._planned = self._together(address, beside, self._members)
        numbered, frame = self._planned
        with self._turn:  # no round is on its way with older numbers
            for member in self._members:
                member.number = numbered.index(member) if member in numbered else None
        return frame

    @staticmethod
    def _there(members: Sequence[_Member]) -> list[_Member]:
        now = time.monotonic()
        return [each for each in members if not each.unfit and now >= each.apart_until]

    def _together(
        self, address: RelayAddress, beside: SparkSession, members: Sequence[_Member]
    ) -> tuple[list[_Member], DataFrame | None]:
        """Return those of some members that have branches, and the planned frame of them; None if there are none."""
        together, numbered = Members(self._spark), list[_Member]()
        for member in self._there(members):
            try:
                together.add(member.make)
            except NotRowByRowError as error:
                logger.info("steps of %s have jobs of their own: %s", member.unit, error)
                member.unfit = True
            else:
                numbered.append(member)
        return numbered, together.frame(address, beside) if numbered else None
