"""Sources: polls, and what is recorded of them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from boatlift.errors import BoatliftError, FencedError
from boatlift.runtime.engine import Engine
from boatlift.runtime.graph import position_of, source_record
from boatlift.runtime.host.event_queue import Answer, EventQueue
from boatlift.runtime.host.options import RunOptions
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.host.stuck_batches import StuckBatches
from boatlift.runtime.host.unreachable import UnreachableSources
from boatlift.runtime.host.workers import Workers
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import Acknowledge, PollSource
from boatlift.runtime.machine.progress import MachineProgress
from boatlift.storage.records.facts import Determinant, Fact, GarbageCollection
from boatlift.storage.records.records import Cursor

__all__ = ["SourcePolls"]

QUIET_SECONDS = 0.02
"""A source that had nothing is left alone at least so long."""

POLL_PAUSE = 20
"""And at least so many times as long as the poll used a core: a folder of many files then takes a twentieth of one."""

WAIT_PAUSE = 5
"""And at least so many times as long as the poll took: a slow file server is busy a sixth of the time at most."""

LONGEST_QUIET_SECONDS = 1.0
"""But never longer than this, however long the poll took."""

ANNOUNCED_QUIET_SECONDS = 0.25
"""A source that announces new input is polled without an announcement only so often."""


class SourcePolls:
    """Carries out `PollSource` and `Acknowledge`.

    Args:
        engine: Polls sources.
        queue, workers, options: Of the host.
        cursors: Where each source is.
        progress: Where the machine is.
        stuck: Warns of batches, whenever a source has given more.
        clock: Milliseconds since 1970; a determinant of each step.

    Attributes:
        refusals: Errors of polls. The dataflow drains, and then ends with the first.
    """

    def __init__(
        self,
        engine: Engine,
        queue: EventQueue,
        workers: Workers,
        options: RunOptions,
        cursors: SourceCursors,
        progress: MachineProgress,
        stuck: StuckBatches,
        clock: Callable[[], int],
    ) -> None:
        self._engine, self._queue, self._workers, self._options = engine, queue, workers, options
        self._cursors, self._progress, self._stuck, self._clock = cursors, progress, stuck, clock
        retry_for = {name: source.retry_for for name, source in engine.plan.sources.items()}
        self._unreachable = UnreachableSources(retry_for, options.on_progress)
        self.refusals: list[BoatliftError] = []
        self._unproved = {name for name in engine.plan.sources if not engine.plan.keeps_no_rows(name)}
        self._rests: dict[str, int] = dict.fromkeys(engine.plan.sources, 0)
        self._announcing: Collection[str] = () if options.available_now else engine.announce(self._announced)

    def poll(self, order: PollSource) -> None:
        """Poll a source on a thread."""
        cursor = self._cursors.cursor(order.source, order.time)
        unproved: list[Any] = []
        if order.source in self._unproved:
            unproved = self._cursors.recorded_messages(order.source, self._progress.untaken(order.source))
        self._workers.submit(self._poll, order, cursor, unproved)

    def acknowledge(self, order: Acknowledge) -> None:
        """Inform a source of positions that will not be read again."""
        self._cursors.acknowledge(order.source, order.frontier)

    def recorded(self, facts: Iterable[Fact]) -> Iterator[Cursor]:
        """Take note of positions that are being recorded, and return the cursors after those that are garbage now.

        The machine writes the determinant of an epoch exactly if it accepts the poll; so a poll that is void leaves no
        trace here.
        """
        for fact in facts:
            if isinstance(fact, Determinant) and fact.processor in self._engine.plan.sources:
                assert isinstance(fact.time, int)  # sources count epochs
                self._cursors.closed(fact.processor, fact.time, position_of(fact.outcome))
                self._stuck.look(self._progress)
                if fact.outcome is not None:
                    self._options.on_progress(Progress("take", fact.processor, fact.time))
            elif isinstance(fact, GarbageCollection):
                yield from self._cursors.collected(fact)

    def _poll(self, order: PollSource, cursor: Any, unproved: Sequence[tuple[tuple[str, str, int], Any]]) -> Answer:
        """Poll a source.

        Nothing new is recorded before the recorded input that is to be read again is proved to be there: a file that
        has another name now is no new one.
        """
        began, began_to_work = time.monotonic(), time.thread_time()
        try:
            self._engine.prove(order.source, unproved)
            self._unproved.discard(order.source)
            position = self._engine.poll(order.source, cursor)
        except FencedError:
            raise
        except BoatliftError as error:
            cause = error
            return lambda: self._failed(order, cause)
        if position is None:
            pause = _pause_after(time.monotonic() - began, time.thread_time() - began_to_work)
            return lambda: self._idle(order, pause)
        record = source_record(position, self._clock(), secrets.randbits(63))
        gathers = self._engine.gathers(order.source, position)
        return lambda: self._taken(events.EpochClosed(order.source, order.incarnation, order.time, record, gathers))

    def _failed(self, order: PollSource, error: BoatliftError) -> Iterable[events.Event]:
        rest = self._unreachable.rest_after(order.source, error)
        if rest is None:
            self.refusals.append(error)
            yield events.StopRequested(drain=True)
        else:
            self._queue.after(rest, lambda: (events.SourceWoken(order.source),))
        # The source may have more another time: no epoch of a batch ends for this.
        yield events.SourceIdle(order.source, order.incarnation, order.time, ended=rest is None)

    def _taken(self, closed: events.EpochClosed) -> Iterable[events.Event]:
        self._unreachable.reached(closed.source)
        yield closed

    def _announced(self, source: str) -> None:
        self._queue.put(lambda: (events.SourceWoken(source),))

    def _rested(self, source: str, rest: int) -> Iterable[events.Event]:
        """Wake a source, unless it was polled after this rest began: each poll without input begins a rest."""
        if rest == self._rests[source]:
            yield events.SourceWoken(source)

    def _idle(self, order: PollSource, pause: float) -> Iterable[events.Event]:
        self._unreachable.reached(order.source)
        if not self._options.available_now:
            self._rests[order.source] += 1
            rest = ANNOUNCED_QUIET_SECONDS if order.source in self._announcing else pause
            self._queue.after(rest, partial(self._rested, order.source, self._rests[order.source]))
        self._options.on_progress(Progress("idle", order.source, -1, behind=self._progress.steps_to_go()))
        yield events.SourceIdle(order.source, order.incarnation, order.time, ended=self._options.available_now)


def _pause_after(seconds: float, worked: float) -> float:
    """Return the seconds until the next poll of a source that had nothing.

    A poll that waits for a core on a busy machine is no reason to look seldom.

    Args:
        seconds: The duration of the poll.
        worked: The seconds for which it used a core.
    """
    return min(max(QUIET_SECONDS, POLL_PAUSE * worked, WAIT_PAUSE * seconds), LONGEST_QUIET_SECONDS)
