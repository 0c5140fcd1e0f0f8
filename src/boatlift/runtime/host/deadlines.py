"""Deadlines of steps and of commits: what makes no progress is reported, and begins again (Falkirk Wheel §4.4).

A call is *stuck* if it makes no progress for the length of its deadline: no task of it has begun, ended or moved rows.
If a task of it is running, the call is cancelled, which ends the task's process, and is made again. A call without a
running task waits for a slot, or works in this process: cancelling it would not help, so it is only reported.

A deadline that the user has not given is a guess. If it was too short, only the work of one call is lost: the next
deadline is twice as long, and such a failure does not count towards the end of the run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import msgspec

from boatlift.errors import UnavailableError
from boatlift.runtime.engine import Activity
from boatlift.runtime.host.context import HostContext
from boatlift.runtime.host.event_loop import Answer
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.events import Event

LEAST_SECONDS = 30.0  # the shortest deadline that is not given by the user
TIMES_LONGEST = 20  # such a deadline is at least so many times the longest of the processor's last calls
REMEMBERED = 100  # so many calls: the longest of them is their 99th percentile
LOOK_SECONDS, SHORTEST_LOOK = 1.0, 0.02
EXAMINE_SECONDS = 5.0  # the engine is asked so often for the progress of a call

logger = logging.getLogger(__name__)

GiveUp = Callable[[UnavailableError], Iterable[Event]]
"""Cancels a call on the host's own thread, and returns the machine's events."""


class StuckCall(msgspec.Struct, frozen=True):
    """A step or a commit without progress.

    Attributes:
        step: The number of its first step.
        since: When it last made progress, in milliseconds since 1970.
        why: Its running tasks, each with job and machine, or what it waits for.
    """

    processor: str
    step: int
    since: int
    why: str


@dataclass(slots=True, eq=False)
class _WatchedCall:
    processor: str
    step: int
    steps: int
    give_up: GiveUp | None
    began: float
    progressed: float
    asked: float
    is_asked: bool = False  # the engine has not answered yet
    mark: object = None
    why: str = ""  # of a call that is stuck
    given_up: float = 0.0  # when it was given up last; 0: never


class Deadlines:
    """Watches the calls of an engine that are under way.

    Laws:
        * A call is given up only while a task of it is running, and again after each further deadline until it ends:
          its task may have begun just after it was cancelled.
        * A call that makes progress is not stuck, however long it takes.

    Args:
        context: Of the host. A `stuck` is reported when a call becomes stuck.
        clock: Milliseconds since 1970.
    """

    def __init__(self, context: HostContext, clock: Callable[[], int]) -> None:
        self._engine, self._queue, self._workers = context.engine, context.queue, context.workers
        self._given, self._watch, self._clock = context.options.step_timeout, context.options.on_progress, clock
        self._lock = threading.Lock()
        self._calls: dict[_WatchedCall, None] = {}
        self._seconds: dict[str, deque[float]] = defaultdict(partial(deque, maxlen=REMEMBERED))
        self._alarms: dict[str, int] = defaultdict(int)
        self._begun: set[str] = set()

    def begin(self) -> None:
        """Look at the calls from now on; the host's own thread calls this."""
        self._queue.after(max(SHORTEST_LOOK, min(LOOK_SECONDS, (self._given or LOOK_SECONDS) / 4)), self._look)

    @contextmanager
    def watched(self, processor: str, step: int, give_up: GiveUp | None, *, steps: int = 1) -> Iterator[None]:
        """Watch a call until the end of the block; any thread.

        Args:
            give_up: None: the call is reported, and goes on.
            steps: The number of steps that the call executes.
        """
        now = time.monotonic()
        call = _WatchedCall(processor, step, steps, give_up, now, now, now)
        with self._lock:
            self._calls[call] = None
        try:
            yield
        finally:
            with self._lock:
                self._calls.pop(call, None)
        with self._lock:
            if processor in self._begun:  # the first call starts workers and compiles plans
                self._seconds[processor].append((time.monotonic() - call.began) / steps)
            self._begun.add(processor)
            self._alarms.pop(processor, None)

    def stuck(self) -> list[StuckCall]:
        """Return the calls that are stuck now; any thread."""
        now, at = time.monotonic(), self._clock()
        with self._lock:
            return [
                StuckCall(each.processor, each.step, at - int(1000 * (now - each.progressed)), each.why)
                for each in self._calls
                if each.why
            ]

    def _deadline(self, call: _WatchedCall) -> float:
        """Return after how many seconds without progress a call is stuck."""
        if self._given is not None:
            return self._given
        longest = max(self._seconds[call.processor], default=0.0)
        return float(max(LEAST_SECONDS, TIMES_LONGEST * longest * call.steps) * 2 ** self._alarms[call.processor])

    def _look(self) -> Iterable[Event]:
        now = time.monotonic()
        with self._lock:
            calls = [(each, self._deadline(each)) for each in self._calls]
        for call, deadline in calls:
            if call.is_asked:
                if now - call.asked > EXAMINE_SECONDS and now - call.progressed > deadline:
                    self._tell(call, now, "Spark does not answer")
            elif now - call.asked >= min(EXAMINE_SECONDS, deadline / 2):
                call.is_asked, call.asked = True, now
                self._workers.submit(self._examine, call)
        self.begin()
        return ()

    def _examine(self, call: _WatchedCall) -> Answer:
        try:
            activity = self._engine.activity(call.processor)
        except Exception as error:  # noqa: BLE001 - the step itself fails if Spark is gone
            logger.info("the progress of %s is unknown: %s", call.processor, error)
            call.is_asked = False
            return list
        return lambda: self._judge(call, activity)

    def _judge(self, call: _WatchedCall, activity: Activity) -> Iterable[Event]:
        now = time.monotonic()
        call.is_asked = False
        with self._lock:
            if call not in self._calls:
                return
            deadline = self._deadline(call)
        if call.mark != activity.mark:
            if call.mark is not None:
                call.progressed, call.why = now, ""
            call.mark = activity.mark
        if now - max(call.progressed, call.given_up) < deadline:
            return
        self._tell(call, now, activity.tasks or "no task of it is running: it waits for a slot, or for its driver")
        if activity.tasks and call.give_up is not None:
            if not call.given_up:
                with self._lock:
                    self._alarms[call.processor] += 1
            call.given_up = now
            why = f"step {call.step} of {call.processor} has made no progress for {now - call.progressed:.0f} s"
            yield from call.give_up(
                UnavailableError("STEP_TIMEOUT", f"{why} ({activity.tasks}): its task was ended; {self._advice}")
            )

    @property
    def _advice(self) -> str:
        if self._given is None:
            return "it is executed again, with twice the time"
        return f"if its function needs longer, give it more than step_timeout={self._given:g}"

    def _tell(self, call: _WatchedCall, now: float, why: str) -> None:
        if not call.why:
            milliseconds = 1000 * (now - call.progressed)
            self._watch(Progress("stuck", call.processor, call.step, durationMs=milliseconds, said=why))
        call.why = why
