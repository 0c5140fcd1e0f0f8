"""Rehearsals: a standby executes a copy of its dataflow now and then, so that its first step after a takeover is quick.

A rehearsal goes on from a copy of the store, as a run would that takes over now: it restores states, executes recorded
steps again, and new ones. So the JVM has compiled its code, Python workers have made their imports, and the system has
the files of the states in memory. The results are discarded.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from boatlift.api.registry import ON_SPARK
from boatlift.connectors.kit import SinkWrapper
from boatlift.dataflow import Committed, Delivery, Outcome, Plan, Sink, SinkContext
from boatlift.runtime.engine import Beginning
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.spark.engine import SparkEngine
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.history import LogHistory
from boatlift.storage.store import SCRATCH, Store
from boatlift.tasks.staging import ArrowStager

STEPS, SECONDS, MOST_SECONDS, IDLE_SECONDS = 200, 15.0, 60.0, 1.0
"""A rehearsal ends after so many steps, so many seconds after its first step, so many seconds, or without input."""

PAUSE_SECONDS = 300.0
"""From one rehearsal to the next."""

READY_SECONDS = 90.0
"""A standby counts as ready after so long, whatever became of its rehearsal."""

END_SECONDS = 10.0
"""A standby that stops waits so long for the end of its rehearsal."""

FOLDER = "rehearsal-"
"""The beginning of the names of the folders in scratch with a copy."""

_COPIED = ("dataflow", "begun", "truncated", "log", "facts", "names", "runs", "fetched")

logger = logging.getLogger(__name__)


class Rehearsals:
    """Rehearses a dataflow, on a thread, until `end`.

    Laws:
        * Nothing is written but a copy beside the owner's scratch, made by links and removed at the end. A state that
          is in memory elsewhere is in place here, so that the memory need not hold it twice.
        * No sink is opened, no input acknowledged, and no source of the real run asked. A source that cannot be copied
          gives recorded input alone.
        * A failed rehearsal harms nobody: the next one may succeed.

    A dataflow with pushed rows, with functions that ask external systems, or on a store that is no folder, is not
    rehearsed.
    """

    def __init__(self, plan: Plan, store: Store, spark: SparkSession, bytes_in_flight: int) -> None:
        self._plan, self._spark, self._most_bytes = plan, spark, bytes_in_flight
        self._began, self._once = time.monotonic(), False
        self._over = threading.Event()
        self._beginning = threading.Lock()
        self._engine: SparkEngine | None = None
        self._thread: threading.Thread | None = None
        pushed = any(each.source.capabilities.store_backed is not None for each in plan.sources.values())
        asks = any(unit.records_answers or not unit.deterministic for unit in plan.units.values())
        if isinstance(store, LocalStore) and not pushed and not asks:
            self._thread = threading.Thread(
                target=self._work, args=[store.root], name="boatlift-rehearsal", daemon=True
            )
            self._thread.start()

    def are_done(self) -> bool:
        """Return whether there was a rehearsal, or none is to be waited for."""
        return self._once or self._thread is None or time.monotonic() - self._began > READY_SECONDS

    def end(self, *, wait: bool) -> None:
        """End the rehearsal under way.

        Args:
            wait: Whether to wait until its copy is removed.
        """
        with self._beginning:
            self._over.set()
        if self._engine is not None:
            self._engine.cancel()
        if self._thread is not None and wait:
            self._thread.join(END_SECONDS)

    def _work(self, root: Path) -> None:
        remove_leftovers(root / SCRATCH, FOLDER)
        folder = root / SCRATCH / f"{FOLDER}{socket.gethostname()}-{os.getpid()}"
        while not self._over.is_set():
            try:
                folder.mkdir(parents=True)
                self._rehearse(root, folder)
            except Exception as error:
                logger.debug("a rehearsal failed", exc_info=error)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            self._once = True
            self._over.wait(PAUSE_SECONDS)

    def _rehearse(self, root: Path, folder: Path) -> None:
        for name in _COPIED:
            _link(root / name, folder / name, self._over.is_set)
        copy = LocalStore.open(folder, create=False)
        log = Log.open(copy, self._plan.dataflow)
        rehearsed, paused = _copied(self._plan, log.history)
        with self._beginning:
            if self._over.is_set():
                return
            self._engine = engine = _RehearsedEngine(self._spark, rehearsed, ON_SPARK)
        end, stopped = _RehearsalEnd(time.monotonic()), threading.Event()

        def watch(progress: Progress) -> None:
            due = end.is_due(progress, time.monotonic()) or self._over.is_set()
            if due and not stopped.is_set():
                stopped.set()
                host.stop()

        no_input = paused == rehearsed.sources.keys()
        options = RunOptions(no_input, on_progress=watch, bytes_in_flight=self._most_bytes, pause=tuple(paused))
        host = Host(engine, copy, options)
        host.claim(after=log.owner)
        host.run()


class _RehearsalEnd:
    """When a rehearsal ends; times are seconds of one steady clock."""

    def __init__(self, now: float) -> None:
        self._until, self._steps, self._active = now + MOST_SECONDS, 0, now

    def is_due(self, progress: Progress, now: float) -> bool:
        """Return whether it ends, given its next progress."""
        if progress.what == "step":
            self._until = self._until if self._steps else min(self._until, now + SECONDS)
            self._steps += 1
        idle = progress.what == "idle" and not progress.behind
        if not idle and progress.what != "beat":
            self._active = now
        return self._steps >= STEPS or now > self._until or (idle and now - self._active >= IDLE_SECONDS)


def remove_leftovers(scratch: Path, begin: str) -> None:
    """Remove folders that end in the number of a process of this host that is gone."""
    for left in scratch.glob(f"{begin}{socket.gethostname()}-*"):
        with suppress(OSError, ValueError):
            if not Path(f"/proc/{int(left.name.rpartition('-')[2])}").exists():
                shutil.rmtree(left)


def _link(origin: Path, target: Path, is_over: Callable[[], bool]) -> None:
    """Copy an object, or a folder of objects, by links; what is deleted meanwhile is left out."""
    if origin.is_file():
        target.hardlink_to(origin)
    elif origin.is_dir():
        target.mkdir()
        for each in sorted(os.scandir(origin), key=lambda entry: entry.name):
            if is_over():
                return
            with suppress(FileNotFoundError):
                _link(Path(each.path), target / each.name, is_over)


def _copied(plan: Plan, history: LogHistory) -> tuple[Plan, set[str]]:
    """Return a plan with copies of the sources and without effects, and the sources that take nothing new."""
    sources, paused = dict(plan.sources), set[str]()
    for name, spec in plan.sources.items():
        try:
            sources[name] = replace(spec, source=deepcopy(spec.source))
        except Exception as error:
            logger.debug("%s cannot be copied", name, exc_info=error)
            paused.add(name)
    sinks = {
        name: replace(spec, sink=_Discards(spec.sink, history.own_number(name))) for name, spec in plan.sinks.items()
    }
    units = {
        name: replace(unit, sinks=tuple(sinks[sink.name] for sink in unit.sinks)) for name, unit in plan.units.items()
    }
    processors = {**plan.processors, **sources, **sinks}
    return replace(plan, sources=sources, sinks=sinks, units=units, processors=processors), paused


class _Discards(SinkWrapper):
    """A sink that holds what the log says, and takes no row."""

    def __init__(self, sink: Sink, held: int) -> None:
        super().__init__(sink)
        self._held = held

    def open(self, context: SinkContext) -> Committed | None:
        self._schema = context.schema
        return None if self._held < 0 or self.delivery is Delivery.AT_LEAST_ONCE else Committed(self._held, 0, "")

    def stager(self) -> ArrowStager:
        return ArrowStager(self._schema)

    def commit(self, *_: object) -> Outcome:
        return Outcome.APPENDED

    def close(self) -> None:
        pass


class _RehearsedEngine(SparkEngine):
    def start(self, beginning: Beginning) -> None:
        super().start(replace(beginning, in_memory=False))  # memory has room for the owner's states

    def commit_together(self, *_: object) -> None:
        pass

    def acknowledge(self, *_: object) -> None:
        pass
