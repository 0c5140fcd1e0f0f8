"""A host: the thin shell around the state machine, in one driver process.

It carries out instructions on threads, turns what comes back into events, and hands them to the machine one at a
time. It makes the determinants that need a clock or chance, and it decides nothing else.
"""

from __future__ import annotations

import os
import queue
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boatlift.errors import BoatliftError, DataError, FencedError, InternalError
from boatlift.runtime import events as ev
from boatlift.runtime import instructions as do
from boatlift.runtime.engine import Engine
from boatlift.runtime.machine import Machine
from boatlift.runtime.saved_runs import SavedRuns
from boatlift.storage.group_writer import GroupWriter
from boatlift.storage.log import Log
from boatlift.storage.records import Checkpoint, Claim, Record, RunRef
from boatlift.storage.store import Store

__all__ = ["Host", "Progress"]

QUIET_SECONDS = 0.02
"""A source that had nothing is left alone at least so long."""

POLL_PAUSE = 20
"""And at least so many times as long as asking it took: a folder of many files then takes a twentieth of a core."""

LONGEST_QUIET_SECONDS = 1.0
"""But never longer than this, however long asking it takes."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One thing that was done, for people and programs that watch.

    Attributes:
        what: `step`, `commit`, `checkpoint`, `restore`, `idle` or `stopping`.
        processor: Whose; the dataflow's name when it is stopping.
        time: At which logical time.
        numInputRows, numOutputRows: Rows in and out of a step.
        durationMs: How long it took, in milliseconds.
        replay: Whether it repeats what was done before a crash.
        behind: How many closed times the processor has still to run.
    """

    what: str
    processor: str
    time: int
    numInputRows: int = 0  # noqa: N815 - Spark's own name
    numOutputRows: int = 0  # noqa: N815
    durationMs: float = 0.0  # noqa: N815
    replay: bool = False
    behind: int = 0


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


class Host:
    """Runs a dataflow from what its store and its sinks hold.

    Args:
        engine: What executes steps.
        store: Where everything durable is.
        available_now: Finish when the sources have nothing new.
        watch: Called with each `Progress`, on the host's own thread.
        clock: Milliseconds since 1970; a determinant of each step.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        available_now: bool,
        watch: Callable[[Progress], None] = lambda _: None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._engine = engine
        self._store = store
        self._available_now = available_now
        self._took: dict[str, float] = {}
        self._watch = watch
        self._clock = clock
        self._events: queue.SimpleQueue[ev.Event | _Failed] = queue.SimpleQueue()
        self._wakes: dict[str, float] = {}
        self._saved_runs = SavedRuns()
        self._refusals: list[BoatliftError] = []
        self._finished = False

    def stop(self) -> None:
        """Asks for a clean stop; may be called from a signal handler."""
        self._events.put(ev.StopRequested())

    def run(self) -> None:
        """Recovers, then runs until the input is exhausted or a stop is asked for.

        Raises:
            BoatliftError: what stopped it; everything done is durable, and the same call goes on from there.
        """
        try:
            self._take_over_and_run()
        finally:
            self._engine.close()

    def _take_over_and_run(self) -> None:
        self._log = Log.open(self._store, self._engine.plan.dataflow)
        self._token = token = self._log.claim(self._claim())
        history = self._log.history
        self._delete_orphans()
        self._saved_runs.saved(history.live_runs())
        self._store.discard_scratch(before=token)
        self._engine.start(self._store, self._store.scratch(token), self._log.store_id, token)
        self._pool = ThreadPoolExecutor(max_workers=4 + 2 * len(self._engine.plan.processors))
        self._writer = GroupWriter(self._log)
        try:
            held = self._open_sinks()
            plan, together = self._engine.plan, self._engine.together
            groups = self._log.last - self._log.manifest
            machine = Machine(plan, history, held, together, available_now=self._available_now, groups=groups)
            self._check_environment(history.environment, machine)
            self._restore(machine, history.checkpoints)
            self._cursors = self._fold_cursors(history)
            self._drive(machine)
        except BaseException as error:
            self._engine.cancel()
            if isinstance(error, Exception) and (newer := self._newer_owner()):
                raise newer from error
            raise
        finally:
            # Jobs end first: what they answer may still want to write.
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._writer.close()

    def _newer_owner(self) -> FencedError | None:
        """What went wrong may come of a takeover, such as scratch files that are gone; then it is that which is told."""
        with suppress(BoatliftError):  # of looking; the error at hand is the one to raise
            return self._log.newer_owner()
        return None

    # -- before the first step ----------------------------------------------------------------------------------------

    def _claim(self) -> Claim:
        return Claim(
            socket.gethostname(), os.getpid(), self._clock(), self._engine.program(), self._engine.environment()
        )

    def _open_sinks(self) -> dict[str, int]:
        held = {}
        for name in self._engine.plan.sinks:
            committed = self._engine.open_sink(name)
            held[name] = -1 if committed is None else committed.step
        return held

    def _check_environment(self, recorded: Mapping[str, Any], machine: Machine) -> None:
        now = self._engine.environment()
        changed = {
            key: (recorded.get(key), now.get(key)) for key in {*recorded, *now} if recorded.get(key) != now.get(key)
        }
        if changed and machine.replays:
            raise DataError(
                "ENVIRONMENT_CHANGED",
                "recorded steps must be replayed, but "
                + ", ".join(f"{key} was {was} and is {now}" for key, (was, now) in sorted(changed.items()))
                + ": run once under the recorded environment with --available-now, then change it",
            )

    def _restore(self, machine: Machine, checkpoints: Mapping[str, Mapping[int, Any]]) -> None:
        for unit, at in machine.checkpoints().items():
            self._engine.restore(checkpoints[unit][at])
            self._watch(Progress("restore", unit, at))

    def _fold_cursors(self, history: Any) -> dict[str, Any]:
        cursors = {}
        for source in self._engine.plan.sources:
            _, cursor = history.cursors.get(source, (-1, self._engine.first_cursor(source)))
            for _, made in sorted(history.inputs.get(source, {}).items()):
                cursor = self._engine.advance(source, cursor, made.position)
            cursors[source] = cursor
        return cursors

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _drive(self, machine: Machine) -> None:
        self._carry_out(machine.start())
        while not self._finished:
            event = self._next_event()
            if isinstance(event, _Failed):
                raise event.error
            self._report(event, machine)
            self._carry_out(machine.handle(event))
            if isinstance(event, ev.StopRequested):
                self._engine.hasten()
        if self._refusals:
            raise self._refusals[0]

    def _next_event(self) -> ev.Event | _Failed:
        while True:
            wait = max(0.0, min(self._wakes.values()) - time.monotonic()) if self._wakes else None
            try:
                return self._events.get(timeout=wait)
            except queue.Empty:
                source = min(self._wakes, key=lambda name: self._wakes[name])
                del self._wakes[source]
                return ev.Wake(source)

    def _carry_out(self, instructions: list[do.Instruction]) -> None:
        for order in instructions:
            match order:
                case do.Append(records):
                    self._append(records)
                case do.Poll(source, at):
                    self._submit(self._poll, source, at)
                case do.Run():
                    self._submit(self._run, order)
                case do.Prepare(ahead):
                    self._engine.prepare(ahead)
                case do.Commit():
                    self._submit(self._commit, order)
                case do.Save(unit, at):
                    # Named now, before the unit's next step adds to its state; made durable while that step runs.
                    self._submit(self._save, unit, at, self._engine.capture(unit))
                case do.Manifest():
                    self._submit(self._manifest)
                case do.Acknowledge(source, _, position):
                    self._engine.acknowledge(source, position)
                case do.Free(unit, at):
                    self._engine.free(unit, at)
                case do.Finish():
                    self._finished = True

    def _append(self, records: tuple[Record, ...]) -> None:
        self._writer.submit(records, lambda error: self._answer(error or ev.Durable(records)))

    def _submit(self, function: Callable[..., ev.Event], *arguments: Any) -> None:
        def work() -> None:
            try:
                self._answer(function(*arguments))
            except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
                self._answer(error)

        self._pool.submit(work)

    def _answer(self, answer: ev.Event | BaseException) -> None:
        self._events.put(_Failed(answer) if isinstance(answer, BaseException) else answer)

    # -- what worker threads do ---------------------------------------------------------------------------------------

    def _poll(self, source: str, at: int) -> ev.Event:
        began = time.monotonic()
        try:
            position = self._engine.poll(source, self._cursors[source])
        except FencedError:
            raise
        except BoatliftError as error:
            self._refusals.append(error)
            return ev.Refused(source)
        self._took[source] = time.monotonic() - began
        if position is None:
            return ev.Nothing(source)
        self._cursors[source] = self._engine.advance(source, self._cursors[source], position)
        return ev.Proposed(source, at, position, self._clock(), secrets.randbits(63))

    def _run(self, order: do.Run) -> ev.Event:
        return ev.Ran(order.unit, order.time, self._engine.run(order))

    def _commit(self, order: do.Commit) -> ev.Event:
        return ev.Placed(order.sink, order.time, self._engine.commit(order))

    def _save(self, unit: str, at: int, runs: tuple[tuple[RunRef, Any], ...]) -> ev.Event:
        self._saved_runs.save(run.name for run, _ in runs)
        for run, path in runs:
            if run.name not in self._saved_runs:
                if path is None:
                    raise InternalError("INTERNAL", f"run {run.name} of {unit} is neither durable nor in scratch")
                self._store.create(run.name, path)
                self._saved_runs.saved([run.name])
        refs = tuple(run for run, _ in runs)
        self._engine.saved(unit, refs)
        return ev.Saved(unit, at, refs)

    def _manifest(self) -> ev.Event:
        self._writer.manifest(self._advance)
        for name in self._saved_runs.take_garbage(self._log.history.live_runs):
            self._store.delete(name)
        return ev.Manifested()

    def _delete_orphans(self) -> None:
        """Deletes runs that dead owners left and no checkpoint names; a newer owner's names have a larger token."""
        live = self._log.history.live_runs()
        for name in self._store.list("runs/"):
            if name not in live and Path(name).name < f"{self._token:012d}":
                self._store.delete(name)

    def _advance(self, source: str, cursor: Any, position: Any) -> Any:
        before = self._engine.first_cursor(source) if cursor is None else cursor
        return self._engine.advance(source, before, position)

    def _report(self, event: ev.Event, machine: Machine) -> None:
        match event:
            case ev.Durable(records):
                for record in records:
                    if isinstance(record, Checkpoint):
                        self._saved_runs.named(run.name for run in record.runs)
            case ev.Ran(unit, first, results):
                for at, result in enumerate(results, first):
                    replay, behind = machine.is_replay(unit, at), machine.behind(unit, at)
                    rows, milliseconds = (result.rows_in, result.rows), result.seconds * 1000
                    self._watch(Progress("step", unit, at, *rows, milliseconds, replay, behind))
            case ev.Placed(sink, at, _):
                self._watch(Progress("commit", sink, at))
            case ev.Saved(unit, at, _):
                self._watch(Progress("checkpoint", unit, at))
            case ev.StopRequested():
                self._watch(Progress("stopping", machine.plan.dataflow, -1))
            case ev.Nothing(source):
                if not self._available_now:
                    pause = min(max(QUIET_SECONDS, POLL_PAUSE * self._took[source]), LONGEST_QUIET_SECONDS)
                    self._wakes[source] = time.monotonic() + pause
                self._watch(Progress("idle", source, -1))
