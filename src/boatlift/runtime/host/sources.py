"""Sources: polls, the positions that they record, and the warning about batches that never end."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from boatlift.dataflow import Plan, batch_of
from boatlift.dataflow.processors import describe_policy
from boatlift.errors import BoatliftError, FencedError
from boatlift.runtime.graph import position_of, source_record
from boatlift.runtime.host.context import HostContext, handles
from boatlift.runtime.host.event_loop import Answer
from boatlift.runtime.host.failures import UnreachableSources
from boatlift.runtime.host.overrides import source_named
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import Acknowledge, PollSource
from boatlift.runtime.machine.progress import MachineProgress
from boatlift.storage.records.facts import Determinant, Fact, GarbageCollection
from boatlift.storage.records.records import Cursor

WARN_AFTER = 1000
"""The first warning comes with so many waiting steps, but not before ten times as many as the policy asks for.

Each further warning comes with ten times as many.
"""

LEAST_PAUSE_SECONDS = 0.02  # the least pause after a poll without input

WORK_PAUSE = 20
"""The pause is at least so many times the poll's CPU time: a folder of many files then takes a twentieth of a core."""

WAIT_PAUSE = 5
"""The pause is at least so many times the poll's duration: a slow file server is busy a sixth of the time at most."""

LONGEST_PAUSE_SECONDS = 1.0  # the longest pause, however long the poll took
ANNOUNCED_PAUSE_SECONDS = 0.25  # the pause of a source that announces new input

logger = logging.getLogger(__name__)


class StuckBatches:
    """Warns of a batch whose epoch does not end, each time that ten times as many steps wait for it as ever before."""

    def __init__(self, plan: Plan) -> None:
        self._policies = {name: batch for name, unit in plan.units.items() if (batch := batch_of(unit.policy))}
        self._warn_at = {name: max(WARN_AFTER, 10 * (policy.epochs or 1)) for name, policy in self._policies.items()}

    def look(self, progress: MachineProgress) -> None:
        for name, policy in self._policies.items():
            waiting = progress.open_epoch(name)
            if waiting >= self._warn_at[name]:
                while waiting >= self._warn_at[name]:
                    self._warn_at[name] *= 10
                logger.warning(
                    "%s waits for the end of its epoch, which %d steps have not brought: %s asks for more; its result "
                    "stays as it was until then",
                    name,
                    waiting,
                    describe_policy(policy),
                )


class SourcePolls:
    """Carries out `PollSource` and `Acknowledge`.

    Args:
        clock: Milliseconds since 1970; a determinant of each step.

    Attributes:
        refusals: Errors of polls. The dataflow drains, and then ends with the first.
    """

    def __init__(self, context: HostContext, cursors: SourceCursors, clock: Callable[[], int]) -> None:
        self._engine, self._plan = context.engine, context.plan
        self._queue, self._workers = context.queue, context.workers
        self._available_now, self._watch = context.options.available_now, context.options.on_progress
        self._paused = {source_named(context.plan, name) for name in context.options.pause}
        self._counters = context.counters
        self._cursors, self._progress, self._clock = cursors, context.progress, clock
        self._stuck, self._unreachable = StuckBatches(context.plan), UnreachableSources(context)
        self.refusals: list[BoatliftError] = []
        self._unproved = {name for name in self._plan.sources if not self._plan.keeps_no_rows(name)}
        self._pauses: dict[str, int] = dict.fromkeys(self._plan.sources, 0)
        self._announcing: Collection[str] = ()
        if not self._available_now:
            self._announcing = self._engine.announce(
                lambda source: self._queue.put(lambda: (events.SourceWoken(source),))
            )

    @handles(PollSource)
    def poll(self, order: PollSource) -> None:
        cursor = self._cursors.cursor(order.source, order.time)
        unproved: list[Any] = []
        if order.source in self._unproved:
            unproved = self._cursors.recorded_messages(order.source, self._progress.untaken(order.source))
        self._workers.submit(self._poll, order, cursor, unproved)

    @handles(Acknowledge)
    def acknowledge(self, order: Acknowledge) -> None:
        self._cursors.acknowledge(order.source, order.frontier)

    def recorded(self, facts: Iterable[Fact]) -> Iterator[Cursor]:
        """Note the positions that are being recorded, and return the cursors after positions that are garbage now.

        The machine writes the determinant of an epoch only if it accepts the poll; so a void poll leaves no trace here.
        """
        for fact in facts:
            if isinstance(fact, Determinant) and fact.processor in self._plan.sources:
                assert isinstance(fact.time, int)  # sources count epochs
                self._cursors.closed(fact.processor, fact.time, position_of(fact.outcome))
                self._stuck.look(self._progress)
                if fact.outcome is not None:
                    self._counters.sources[fact.processor].steps += 1
                    self._watch(Progress("take", fact.processor, fact.time))
            elif isinstance(fact, GarbageCollection):
                yield from self._cursors.collected(fact)

    def _poll(self, order: PollSource, cursor: Any, unproved: Sequence[tuple[tuple[str, str, int], Any]]) -> Answer:
        """Poll a source.

        Recorded input that is to be read again is proved unchanged before anything new is recorded: a file that was
        renamed is no new file.
        """
        began, began_to_work = time.monotonic(), time.thread_time()
        try:
            self._engine.prove(order.source, unproved)
            self._unproved.discard(order.source)
            position = None if order.source in self._paused else self._engine.poll(order.source, cursor)
        except FencedError:
            raise
        except BoatliftError as error:
            return partial(self._failed, order, error)
        if position is None:
            pause = _pause_after(time.monotonic() - began, time.thread_time() - began_to_work)
            return lambda: self._idle(order, pause)
        record = source_record(position, self._clock(), secrets.randbits(63))
        gathers = self._engine.gathers(order.source, position)
        return lambda: self._closed(events.EpochClosed(order.source, order.incarnation, order.time, record, gathers))

    def _failed(self, order: PollSource, error: BoatliftError) -> Iterable[events.Event]:
        backoff = self._unreachable.backoff_after(order.source, error)
        if backoff is None:
            self.refusals.append(error)
            yield events.StopRequested(drain=True)
        else:
            self._queue.after(backoff, lambda: (events.SourceWoken(order.source),))
        # The source may have more later, so no epoch of a batch ends because of this.
        yield events.SourceIdle(order.source, order.incarnation, order.time, ended=backoff is None)

    def _closed(self, closed: events.EpochClosed) -> Iterable[events.Event]:
        self._unreachable.reached(closed.source)
        yield closed

    def _idle(self, order: PollSource, pause: float) -> Iterable[events.Event]:
        source = order.source
        self._unreachable.reached(source)
        if not self._available_now:
            number = self._pauses[source] = self._pauses[source] + 1

            def end_pause() -> Iterable[events.Event]:
                if number == self._pauses[source]:  # else the source was polled meanwhile
                    yield events.SourceWoken(source)

            self._queue.after(ANNOUNCED_PAUSE_SECONDS if source in self._announcing else pause, end_pause)
        self._watch(Progress("idle", source, -1, behind=self._progress.steps_to_go()))
        yield events.SourceIdle(source, order.incarnation, order.time, ended=self._available_now)


def _pause_after(seconds: float, worked: float) -> float:
    """Return the seconds until the next poll of a source that had no input, after a poll of such duration and CPU time.

    A poll that waits for a core on a busy machine does not make polls rare.
    """
    return min(max(LEAST_PAUSE_SECONDS, WORK_PAUSE * worked, WAIT_PAUSE * seconds), LONGEST_PAUSE_SECONDS)
