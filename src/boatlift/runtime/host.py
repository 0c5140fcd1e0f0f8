"""A host: the thin shell around the state machine, in one driver process.

It carries out instructions on threads, turns what comes back into events, and hands them to the machine one at a
time. It makes the determinants that need a clock or chance, and it decides nothing else.
"""

from __future__ import annotations

import os
import queue
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boatlift.errors import BoatliftError, DataError, FencedError
from boatlift.runtime.engine import Engine, StepResult
from boatlift.runtime.graph import edge_name, last_closed, program_of, source_record
from boatlift.runtime.regimes import StateMachine
from boatlift.runtime.regimes import acts as do
from boatlift.storage.contents import runs_of
from boatlift.storage.facts import Collected, Maximal, State
from boatlift.storage.group_writer import GroupWriter
from boatlift.storage.log import Log
from boatlift.storage.records import Claim, Committed, Cursor, Record, Stopped
from boatlift.storage.standing import Standing
from boatlift.storage.store import Store
from boatlift.times import Frontier, last_of

__all__ = ["Host", "Progress"]

QUIET_SECONDS = 0.02
"""A source that had nothing is left alone at least so long."""

POLL_PAUSE = 20
"""And at least so many times as long as asking it took: a folder of many files then takes a twentieth of a core."""

LONGEST_QUIET_SECONDS = 1.0
"""But never longer than this, however long asking it takes."""

COLLECT_AFTER = 64
"""So many facts become durable before it is asked again what is garbage."""

MESSAGES_AHEAD = 12
"""So many messages may wait behind a source before it is asked for more: bounds what waits in scratch, and what a stop waits for."""


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


Answer = Callable[[], Iterable[do.Event]]
"""What became of an instruction: called on the host's own thread, it gives the machine's next events."""


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
        self._watch = watch
        self._clock = clock
        self._program = program_of(engine.plan)
        self._answers: queue.SimpleQueue[Answer | _Failed] = queue.SimpleQueue()
        self._wakes: dict[str, float] = {}
        self._refusals: list[BoatliftError] = []
        self._durable: set[str] = set()
        self._keeping: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._manifests: list[Future[None]] = []
        self._memos: list[Record] = []
        self._placing: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._finished = False

    def stop(self) -> None:
        """Asks for a clean stop; may be called from a signal handler."""
        self._answers.put(self._stopping)

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
        self._resumed = history.resumed  # then what was closed and is not kept was never executed
        self._delete_orphans(history.live_runs())
        self._store.discard_scratch(before=token)
        self._recorded = {source: last_closed(history, source) for source in self._engine.plan.sources}
        self._engine.start(self._store, self._store.scratch(token), self._log.store_id, token, self._recorded)
        self._pool = ThreadPoolExecutor(max_workers=4 + 2 * len(self._engine.plan.processors))
        self._writer = GroupWriter(self._log)
        try:
            self._held = self._open_sinks()
            self._machine = StateMachine(
                self._program,
                Standing.of(history.standing.facts()),
                {name: Frontier.up_to(step) for name, step in self._held.items()},
                together=self._engine.together,
                collect_after=COLLECT_AFTER,
                messages_ahead=MESSAGES_AHEAD,
            )
            first = self._machine.start()
            self._check_environment(history.environment)
            self._tell_restored()
            self._stable_cursors = dict(history.cursors)
            self._unacknowledged = {source: self._recorded_positions(source) for source in self._recorded}
            self._cursors = {source: self._folded(source, self._recorded[source]) for source in self._recorded}
            self._drive(first)
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

    def _check_environment(self, recorded: Mapping[str, Any]) -> None:
        now = self._engine.environment()
        changed = {
            key: (recorded.get(key), now.get(key)) for key in {*recorded, *now} if recorded.get(key) != now.get(key)
        }
        if changed and self._machine.replays and not self._resumed:
            raise DataError(
                "ENVIRONMENT_CHANGED",
                "recorded steps must be replayed, but "
                + ", ".join(f"{key} was {was} and is {now}" for key, (was, now) in sorted(changed.items()))
                + ": run once under the recorded environment with --available-now, then change it",
            )

    def _tell_restored(self) -> None:
        for name, p in self._machine.processors.items():
            if name in self._engine.plan.units and p.state is not None:
                self._engine.kept(name, runs_of(p.state))
                self._watch(Progress("restore", name, last_of(p.done)))

    def _delete_orphans(self, live: set[str]) -> None:
        """Deletes runs that dead owners left and no fact names; a newer owner's names have a larger token."""
        for name in self._store.list("runs/"):
            if name in live:
                self._durable.add(name)
            elif Path(name).name < f"{self._token:012d}":
                self._store.delete(name)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _drive(self, first: list[do.Instruction]) -> None:
        self._carry_out(first)
        while not self._finished:
            answer = self._next_answer()
            if isinstance(answer, _Failed):
                raise answer.error
            for event in answer():
                self._carry_out(self._machine.handle(event))
        if self._refusals:
            raise self._refusals[0]

    def _next_answer(self) -> Answer | _Failed:
        while True:
            wait = max(0.0, min(self._wakes.values()) - time.monotonic()) if self._wakes else None
            try:
                return self._answers.get(timeout=wait)
            except queue.Empty:
                source = min(self._wakes, key=lambda name: self._wakes[name])
                del self._wakes[source]
                return lambda: [do.Wake(source)]

    def _carry_out(self, instructions: list[do.Instruction]) -> None:
        for order in instructions:
            match order:
                case do.Write():
                    self._write(order)
                case do.Close():
                    self._submit(self._close, order)
                case do.Run():
                    self._submit(self._run, order)
                case do.Prepare():
                    self._engine.prepare(order)
                case do.Keep():
                    self._submit(self._keep, order)
                case do.Place():
                    self._submit(self._place, order)
                case do.Collect():
                    self._collect()
                case do.Acknowledge():
                    self._acknowledge(order)
                case do.Finish():
                    self._submit(self._finish)
                case do.Cancel() | do.Ask():
                    raise NotImplementedError(order)

    def _submit(self, function: Callable[..., Answer], *arguments: Any) -> None:
        def work() -> None:
            try:
                self._answers.put(function(*arguments))
            except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
                self._answers.put(_Failed(error))

        self._pool.submit(work)

    # -- sources ------------------------------------------------------------------------------------------------------

    def _close(self, order: do.Close) -> Answer:
        source = order.source
        time_before, cursor = self._cursors[source]
        assert time_before == order.time - 1
        began = time.monotonic()
        try:
            position = self._engine.poll(source, cursor)
        except FencedError:
            raise
        except BoatliftError as error:
            self._refusals.append(error)
            return lambda: [do.Idle(source, order.life, order.time, ended=True), do.Stop(drain=True)]
        if position is None:
            took = time.monotonic() - began
            return lambda: self._idle(order, took)
        self._cursors[source] = (order.time, self._engine.advance(source, cursor, position))
        record = source_record(position, self._clock(), secrets.randbits(63))
        self._unacknowledged[source][order.time] = position
        return lambda: [do.Closed(source, order.life, order.time, record)]

    def _idle(self, order: do.Close, took: float) -> Iterable[do.Event]:
        if not self._available_now:
            pause = min(max(QUIET_SECONDS, POLL_PAUSE * took), LONGEST_QUIET_SECONDS)
            self._wakes[order.source] = time.monotonic() + pause
        self._watch(Progress("idle", order.source, -1))
        yield do.Idle(order.source, order.life, order.time, ended=self._available_now)

    def _acknowledge(self, order: do.Acknowledge) -> None:
        """Tells a source which positions will not be read again: those that this process knows of."""
        last = last_of(order.frontier)
        positions = self._unacknowledged[order.source]
        for at in sorted(at for at in positions if at <= last):
            self._engine.acknowledge(order.source, positions.pop(at))

    # -- steps --------------------------------------------------------------------------------------------------------

    def _run(self, order: do.Run) -> Answer:
        results = self._engine.run(order)
        for take, result in zip(order.takes, results, strict=False):
            self._compare(order.processor, take.time, result)
        return lambda: self._ran(order, results)

    def _compare(self, unit: str, at: int, result: StepResult) -> None:
        """Hands a step that sinks hold already to them, to be compared."""
        for sink in self._engine.plan.units[unit].sinks:
            if at <= self._held[sink.name]:
                with self._placing[sink.name]:
                    self._engine.commit(sink.name, at, result.sent[edge_name(unit, sink.name)])

    def _ran(self, order: do.Run, results: Sequence[StepResult]) -> Iterable[do.Event]:
        name, last = order.processor, len(results) - 1
        recorded = -1 if self._resumed else self._recorded[self._engine.plan.source_of(name)]
        for at, (take, result) in enumerate(zip(order.takes, results, strict=False)):
            over = at == last and len(results) < len(order.takes)
            yield do.Ran(name, order.life, take.time, None, result.sent, result.state, result.digest, over)
            behind = max(map(len, self._machine.processors[name].waiting.values()))
            rows, milliseconds = (result.rows_in, result.rows), result.seconds * 1000
            self._watch(Progress("step", name, take.time, *rows, milliseconds, take.time <= recorded, behind))
            for sink in self._engine.plan.units[name].sinks:
                if take.time <= self._held[sink.name]:
                    self._watch(Progress("commit", sink.name, take.time))
        self._engine.delivered(results)

    def _place(self, order: do.Place) -> Answer:
        with self._placing[order.sink]:
            for at, messages in order.steps:
                (message,) = messages
                self._engine.commit(order.sink, at, message.content)
        return lambda: self._placed(order)

    def _placed(self, order: do.Place) -> Iterable[do.Event]:
        for at, _ in order.steps:
            self._watch(Progress("commit", order.sink, at))
        self._memos.append(Committed(order.sink, last_of(order.frontier)))
        yield do.Placed(order.sink, order.life, order.frontier)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _stopping(self) -> Iterable[do.Event]:
        self._watch(Progress("stopping", self._engine.plan.dataflow, -1))
        self._engine.hasten()
        yield do.Stop()

    def _finish(self) -> Answer:
        """Says in the log that all is done, once the last manifest is there."""
        for manifest in self._manifests:
            manifest.result()
        self._write_records((*self._take_memos(), Stopped()), self._end)
        return list

    def _end(self) -> Iterable[do.Event]:
        self._finished = True
        return ()

    # -- the log ------------------------------------------------------------------------------------------------------

    def _write(self, order: do.Write) -> None:
        cursors = [cursor for fact in order.facts if isinstance(fact, Collected) for cursor in self._cursors_of(fact)]
        self._write_records((*self._take_memos(), *cursors, *order.facts), lambda: self._durably(order))

    def _durably(self, order: do.Write) -> Iterable[do.Event]:
        for fact in order.facts:
            if isinstance(fact, State):
                self._watch(Progress("checkpoint", fact.processor, _last(fact.frontier)))
        yield do.Durable(order.number)

    def _write_records(self, records: tuple[Record, ...], then: Answer) -> None:
        self._writer.submit(records, lambda error: self._answers.put(_Failed(error) if error else then))

    def _take_memos(self) -> list[Record]:
        memos, self._memos = self._memos, []
        return memos

    def _cursors_of(self, garbage: Collected) -> Iterable[Record]:
        """Gives the cursors after the positions that are garbage now."""
        for source in self._engine.plan.sources:
            last = _last(garbage.choices.get(source, ()))
            if last > self._stable_cursors.get(source, (-1, None))[0]:
                self._stable_cursors[source] = self._folded(source, last)
                yield Cursor(source, *self._stable_cursors[source])

    def _folded(self, source: str, last: int) -> tuple[int, Any]:
        """Gives the cursor after a time, from the last that is in the log."""
        chosen = self._machine.durable.standing.chosen.get(source, {})
        begin, cursor = self._stable_cursors.get(source, (-1, self._engine.first_cursor(source)))
        for each in range(begin + 1, last + 1):
            cursor = self._engine.advance(source, cursor, chosen[each].outcome["position"])
        return last, cursor

    def _recorded_positions(self, source: str) -> dict[int, Any]:
        """Gives the positions of times that are not garbage."""
        chosen = self._machine.durable.standing.chosen.get(source, {})
        done = self._stable_cursors.get(source, (-1, None))[0]
        return {
            time: fact.outcome["position"] for time, fact in chosen.items() if isinstance(time, int) and time > done
        }

    def _keep(self, order: do.Keep) -> Answer:
        runs = [run for content in order.contents for run in runs_of(content)]
        with self._keeping[order.processor]:
            for run in runs:
                if run.name not in self._durable:
                    self._store.create(run.name, self._engine.path(run))
                    self._durable.add(run.name)
        self._engine.kept(order.processor, runs)
        return lambda: [do.Kept(order.number)]

    def _collect(self) -> None:
        """Writes a manifest, then deletes the runs that nobody can ask for: what is to be kept of them is known now."""
        live = {run.name for content in self._machine.contents() for run in runs_of(content)} | self._engine.holds()
        self._engine.discard(live)
        garbage = sorted(self._durable.copy() - live)
        self._durable.difference_update(garbage)
        self._manifests.append(self._pool.submit(self._manifest, garbage))

    def _manifest(self, garbage: Sequence[str]) -> None:
        try:
            self._writer.manifest()
            for name in garbage:
                self._store.delete(name)
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
            self._answers.put(_Failed(error))


def _last(frontier: Maximal) -> int:
    """Gives the last epoch of a frontier as it is written, -1 if it is empty."""
    return max((time for time in frontier if isinstance(time, int)), default=-1)
