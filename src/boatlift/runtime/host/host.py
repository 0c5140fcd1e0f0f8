"""A host: it runs a dataflow in one process, first perhaps as a standby."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from boatlift.errors import FencedError
from boatlift.runtime.engine import Engine
from boatlift.runtime.graph import division_of
from boatlift.runtime.host.clock import SteadyClock
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.event_loop import EventQueue
from boatlift.runtime.host.health import Health
from boatlift.runtime.host.ownership import Ownership, refuse_running_owner
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.run_events import failure_of
from boatlift.runtime.host.standby import Standby
from boatlift.runtime.host.term import OwnershipTerm
from boatlift.runtime.machine import events
from boatlift.runtime.peers.holding import HeldTail
from boatlift.runtime.peers.owner import OwnerLink
from boatlift.storage.journal import note_failed_start
from boatlift.storage.log import Log
from boatlift.storage.records.records import UNITS
from boatlift.storage.store import Store

BEFORE_FIRST = " (the start ended before its first step)"


class Host:
    """Runs a dataflow from the content of its store and its sinks.

    Args:
        clock: Milliseconds since 1970; a determinant of each step, which never goes back.
        tail: Of a standby: what it holds of owners' entries. Its next host, after a claim that failed, has the same.
        health: Is told what the host does.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        options: RunOptions | None = None,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        tail: HeldTail | None = None,
        health: Health | None = None,
    ) -> None:
        self._tail, self._heir = tail, "" if tail is None else tail.life
        self._engine, self._store, self._clock = engine, store, SteadyClock(clock, unit=1_000_000)
        self._options = RunOptions() if options is None else options
        self._health = Health() if health is None else health
        self._health.begins(anew=True)
        self._queue = EventQueue()
        self._owner: Ownership | None = None
        self._term: OwnershipTerm | None = None
        self._link: OwnerLink | None = None
        self._followed: Log | None = None
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Request a clean stop; a signal handler may call this."""
        self._stopping.set()
        self._health.stops()

        def stopping() -> Iterable[events.Event]:
            self._options.on_progress(Progress("stopping", self._engine.plan.dataflow, -1))
            self._engine.hasten()
            yield events.StopRequested()

        self._queue.put(stopping)

    def stand_by(self, ready: Callable[[], bool] = lambda: True, *, has_followed: bool = False) -> int | None:
        """Follow the owner until the dataflow has to be claimed; return the owner's token, None once stopped.

        Args:
            ready, has_followed: As for `Standby`.

        Raises:
            DataError: as `Standby.wait`.
        """
        assert self._tail is not None, "it is a standby"
        try:
            self._followed = log = self._open_log()
            program = {**self._engine.program(), UNITS: division_of(self._engine.plan)}
            standby = Standby(
                self._store,
                log,
                program,
                self._engine.environment(),
                tail=self._tail,
                handover_only=self._options.for_handover,
                replica=self._options.replica,
                available_now=self._options.available_now,
                report=self._options.on_progress,
                stopping=self._stopping,
                ready=ready,
                turned=self._health.turns,
                redirect=self._engine.redirect,
                has_followed=has_followed,
            )
            self._health.follows(lambda: ready() and not standby.waits_in_vain)
            after = standby.wait()
            self._heir = standby.heir
        except BaseException:
            self._end()
            raise
        if after is None:
            self._end()
        return after

    def _open_log(self) -> Log:
        return Log.open(self._store, self._engine.plan.dataflow, clock=self._clock)

    def claim(self, after: int | None = None) -> None:
        """Claim the dataflow, and start the engine; `run` does so if it was not done before.

        Args:
            after: The token of the owner that a standby takes over from; None: of any that does not run on this host.

        Raises:
            InvalidError: `[STORE_IN_USE]` a run on this host owns the dataflow.
            FencedError: `[FENCED]` another standby has taken over.
            BoatliftError: as `run`.
        """
        self._health.begins()
        opened = False  # the store may be another dataflow's
        try:
            self._engine.reserve()
            self._link = OwnerLink(self.stop, self._options.listen, plain=self._options.plain)
            log = self._followed or self._open_log()
            opened = True
            if after is None and not self._options.take_over:
                refuse_running_owner(log)
            self._owner = Ownership(log, self._clock, self._heir)
            self._term = OwnershipTerm(
                self._engine,
                self._store,
                self._owner,
                self._options,
                self._queue,
                self._clock,
                self._link,
                after,
                self._health,
                self._tail,
                self._stopping.is_set,
            )
        except BaseException as error:
            try:
                if opened and (after is None or not self.may_follow_on):
                    self._note(error)
            finally:
                self._end()
            raise

    def run(self) -> None:
        """Recover, then run until the input is exhausted or a stop is requested.

        Raises:
            BoatliftError: the cause of the end. A new host on the same store resumes from what is durable, and loses
                nothing.
        """
        if self._term is None:
            self.claim()
        assert self._term is not None
        if self._options.goes_back:
            self._queue.put(lambda: (events.StopRequested(),))
        try:
            self._term.run()
        except BaseException as error:
            if not self._term.has_begun:  # else it is noted with the last report
                self._note(error)
            raise
        finally:
            self._end()

    @property
    def may_follow_on(self) -> bool:
        """Whether a standby whose host has failed is needed: it has not claimed, or not begun with what it holds."""
        has_claimed = self._owner is not None and self._owner.token > 0
        return not has_claimed or (self._term is None and self._tail is not None and self._tail.holds)

    def _note(self, error: BaseException) -> None:
        """Write into the journal why a start has failed."""
        goes_on = isinstance(error, FencedError) or getattr(error, "condition", "") == "STORE_IN_USE"
        if not isinstance(error, Exception) or goes_on:  # another process has the dataflow
            return
        note_failed_start(self._store, failure_of(self._clock(), self._engine.plan.dataflow, error, BEFORE_FIRST))

    def _end(self) -> None:
        self._health.begins()
        if self._link is not None:
            self._link.close()
        self._engine.close()
        if self._owner is not None:
            self._owner.end()
