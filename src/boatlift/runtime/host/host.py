"""A host: the thin shell around the state machine, in one driver process.

A host carries out instructions on threads, turns their outcome into events, and hands the events to the machine one at
a time. It draws the determinants that need a clock or chance, and decides nothing else.

In reading order: `ownership_term` (claim, recovery, end), `loop`, then the parts that carry instructions out:
`sources`, `steps`, `sinks`, `timers`, `probes`, `log`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from boatlift.runtime.engine import Engine
from boatlift.runtime.host.event_queue import EventQueue
from boatlift.runtime.host.options import RunOptions
from boatlift.runtime.host.ownership_term import OwnershipTerm
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.steady_clock import SteadyClock
from boatlift.runtime.machine import events
from boatlift.storage.store import Store

__all__ = ["Host"]


class Host:
    """Runs a dataflow from what its store and its sinks hold.

    Args:
        engine: Executes steps.
        store: Where everything durable is.
        options: Of the run.
        clock: Milliseconds since 1970; a determinant of each step, which never goes back.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        options: RunOptions | None = None,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._engine, self._store, self._clock = engine, store, SteadyClock(clock, unit=1_000_000)
        self._options = RunOptions() if options is None else options
        self._queue = EventQueue()

    def stop(self) -> None:
        """Request a clean stop; a signal handler may call this."""
        self._queue.put(self._stopping)

    def run(self) -> None:
        """Recover, then run until the input is exhausted or a stop is requested.

        Raises:
            BoatliftError: the cause of the end. A new host on the same store goes on from what is durable, and loses
                nothing.
        """
        try:
            self._engine.reserve()
            OwnershipTerm(self._engine, self._store, self._options, self._queue, self._clock).run()
        finally:
            self._engine.close()

    def _stopping(self) -> Iterable[events.Event]:
        self._options.on_progress(Progress("stopping", self._engine.plan.dataflow, -1))
        self._engine.hasten()
        yield events.StopRequested()
