"""A host: the thin shell around the state machine, in one driver process.

It carries out instructions on threads, turns what comes back into events, and hands them to the machine one at a
time. It makes the determinants that need a clock or chance, and it decides nothing else.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any

from boatlift.errors import BoatliftError, FencedError, UnavailableError, UserCodeError
from boatlift.runtime.engine import Beginning, Engine, StepResult
from boatlift.runtime.graph import program_of, source_record
from boatlift.runtime.host.batch_timers import BatchTimers, asking
from boatlift.runtime.host.beginnings import beginnings
from boatlift.runtime.host.environments import admit
from boatlift.runtime.host.event_queue import Answer, EventQueue
from boatlift.runtime.host.kept_runs import KeptRuns
from boatlift.runtime.host.losses import senders_of_lost
from boatlift.runtime.host.new_input import NewInput
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.host.ownership import LOOK_SECONDS, Ownership
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.recorded import readings, recorded_steps
from boatlift.runtime.host.retries import REST_SECONDS, RETRIES, Retries
from boatlift.runtime.host.sink_commits import Held, SinkCommits
from boatlift.runtime.host.source_cursors import SourceCursors, pause_after
from boatlift.runtime.host.steps_to_go import steps_to_go
from boatlift.runtime.host.stuck_batches import StuckBatches
from boatlift.runtime.machine import StateMachine, events, instructions
from boatlift.storage.group_writer import GroupWriter
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, GarbageCollection, StepDigest, last_number
from boatlift.storage.records.payloads import names_of_runs, runs_of
from boatlift.storage.records.records import Record, SinkCommit, Stopped
from boatlift.storage.store import Store
from boatlift.times import Frontier, last_of

__all__ = ["Host"]

COLLECT_AFTER = 64
"""So many facts become durable before it is asked again what is garbage."""

MESSAGES_AHEAD = 12
"""So many messages may wait behind a source before it is asked for more: bounds what waits in scratch, and what a stop waits for."""

logger = logging.getLogger(__name__)


class Host:
    """Runs a dataflow from what its store and its sinks hold.

    Args:
        engine: What executes steps.
        store: Where everything durable is.
        available_now: Finish when the sources have nothing new.
        accept_released: Let stand what was released of a step that a replay gives differently; on the record.
        skip: Units and their steps that give nothing, whatever they take; on the record.
        watch: Called with each `Progress`, on the host's own thread.
        clock: Milliseconds since 1970; a determinant of each step.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        available_now: bool,
        accept_released: bool = False,
        skip: Collection[tuple[str, int]] = (),
        watch: Callable[[Progress], None] = lambda _: None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._engine = engine
        self._store = store
        self._available_now, self._accept_released, self._skip = available_now, accept_released, skip
        self._watch = watch
        self._clock = clock
        self._program = program_of(engine.plan)
        self._answers = EventQueue()
        self._marks = count()
        self._refusals: list[BoatliftError] = []
        self._manifests: list[Future[None]] = []
        self._memos: list[Record] = []
        self._attempts = Retries(RETRIES, REST_SECONDS)
        self._unended = StuckBatches(engine.plan)
        self._epochs = BatchTimers(engine.plan)
        self._rests: dict[str, float] = {}
        self._running: dict[str, threading.Lock] = defaultdict(threading.Lock)
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
        self._engine.reserve()
        self._log = Log.open(self._store, self._engine.plan.dataflow, clock=self._clock)
        self._owner = Ownership(self._log, self._clock)
        self._token = token = self._owner.claim(self._engine.program(), self._engine.environment())
        for takeover in self._owner.taken_over():
            self._watch(takeover)
        history = self._log.history
        self._resumed = history.resumed  # then what was closed and is not kept was never executed
        self._positions = SourceCursors(self._engine, history)
        plan = self._engine.plan
        self._recorded = recorded_steps(plan, self._positions.recorded, history)
        self._decisions = Overrides(
            history, accept=self._accept_released, skip=self._skip, recorded=self._recorded, plan=plan
        )
        self._deliveries = SinkCommits(self._engine, self._program.graph, self._decisions)
        self._runs = KeptRuns(self._store, self._engine)
        self._runs.begin(history.live_runs(), token)
        self._store.discard_scratch(before=token)
        self._engine.start(
            Beginning(
                self._store,
                self._store.scratch(token),
                self._log.store_id,
                token,
                recorded=self._positions.recorded,
                read=readings(plan, history),
                cursors=self._positions.cursors,
            )
        )
        for name, url in self._engine.listening().items():
            self._watch(Progress("listening", name, -1, where=url))
        self._engine.skip(self._decisions.skipped, self._decisions.passed_over)
        self._pool = ThreadPoolExecutor(max_workers=4 + 2 * len(self._engine.plan.processors))
        self._writer = GroupWriter(self._log)
        try:
            self._deliveries.open()
            self._machine = StateMachine(
                self._program,
                self._decisions.live_records(),
                {name: Frontier.up_to(step) for name, step in self._deliveries.held.items()},
                together=self._engine.together,
                awaited=self._engine.awaited,
                collect_after=COLLECT_AFTER,
                messages_ahead=MESSAGES_AHEAD,
            )
            first = self._machine.start()
            self._recorded = recorded_steps(plan, self._positions.recorded_of(self._machine.processors), history)
            self._new_input = NewInput(plan, self._recorded)
            admitted = admit(self._machine, history, self._engine.environment())
            found = self._deliveries.news_for(history.committed)
            if first_records := [*admitted, *found, *self._decisions.take()]:
                self._log.append(first_records)  # durable before anything of it can be seen
            self._tell_restored()
            self._drive(first)
        except BaseException as error:
            self._engine.cancel()
            # What went wrong may come of a takeover, such as scratch files that are gone; then the takeover is told.
            if isinstance(error, Exception) and (newer := self._owner.newer_after_an_error()):
                raise newer from error
            raise
        finally:
            # Jobs end first: what they answer may still want to write.
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._writer.close()

    # -- before the first step ----------------------------------------------------------------------------------------

    def _tell_restored(self) -> None:
        for name, p in self._machine.processors.items():
            if name in self._engine.plan.units and p.state is not None:
                self._engine.kept(name, runs_of(p.state))
        recorded = {} if self._resumed else self._recorded
        for progress in beginnings(self._engine.plan, self._machine.processors, recorded):
            self._watch(progress)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _drive(self, first: list[instructions.Instruction]) -> None:
        self._carry_out(first)
        self._look_after_epochs()
        self._look_again()
        while not self._finished:
            for event in self._answers.next()():
                self._carry_out(self._machine.handle(event))
            self._look_after_epochs()
        if self._refusals:
            raise self._refusals[0]

    def _look_again(self) -> Iterable[events.Event]:
        self._answers.after(LOOK_SECONDS, partial(self._rested, self._look))
        return ()

    def _look(self) -> Answer:
        self._owner.look()
        return self._look_again

    def _look_after_epochs(self) -> None:
        processors = self._machine.processors
        for name, seconds in self._epochs.to_last(processors, self._clock()):
            self._answers.after(seconds, partial(self._lasted, name))
        for batch, message in self._epochs.to_ask(processors):
            self._answers.after(
                self._rests.pop(batch.name, 0.0),
                partial(self._rested, self._mark, batch.name, batch.incarnation, message),
            )

    def _lasted(self, name: str) -> Iterable[events.Event]:
        processors = self._machine.processors
        over = self._epochs.lasted(name, processors, self._clock())
        return [events.TimerFired(name, processors[name].incarnation)] if over else []

    def _mark(self, batch: str, incarnation: int, message: instructions.Message) -> Answer:
        try:
            mark = self._engine.mark(batch, message)
        except (UnavailableError, UserCodeError) as error:
            cause = error
            return lambda: self._unmarked(batch, message, cause)
        return lambda: self._marked(events.RowsProbed(batch, incarnation, message, mark))

    def _unmarked(self, batch: str, message: instructions.Message, error: BoatliftError) -> Iterable[events.Event]:
        """The rows are asked again after a rest; if they are lost, who sent them sends them again."""
        self._epochs.asked(batch)
        if not self._epochs.still_asks(self._machine.processors, batch, message):
            return []
        self._rests[batch] = self._rest_of(asking(batch), -1, error)
        lost = self._lost([message])
        return [events.ProcessorsFailed(frozenset({batch, *lost}))] if lost else []

    def _marked(self, event: events.RowsProbed) -> Iterable[events.Event]:
        self._epochs.asked(event.processor)
        self._attempts.went_on(asking(event.processor), next(self._marks))
        return [event]

    def _carry_out(self, orders: list[instructions.Instruction]) -> None:
        for order in orders:
            match order:
                case instructions.AppendLog():
                    self._write(order)
                case instructions.PollSource():
                    self._submit(self._close, order, self._positions.cursor(order.source, order.time))
                case instructions.Execute():
                    self._begin(order)
                case instructions.Prepare():
                    self._engine.prepare(order)
                case instructions.Persist():
                    self._submit(self._keep, order)
                case instructions.CommitSink():
                    self._submit(self._place, order, self._deliveries.held[order.sink])
                case instructions.CollectGarbage():
                    self._collect()
                case instructions.Acknowledge(source, frontier):
                    self._positions.acknowledge(source, frontier)
                case instructions.Finish():
                    self._submit(self._finish, names_of_runs(self._machine.durable.contents()))
                case instructions.Cancel(processor):
                    self._engine.call_off(processor)
                case instructions.ReopenSink():
                    self._answers.after(self._rests.pop(order.sink, 0.0), partial(self._rested, self._ask, order))

    def _submit(self, function: Callable[..., Answer], *arguments: Any) -> None:
        def work() -> None:
            try:
                self._answers.put(function(*arguments))
            except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
                self._answers.fail(error)

        self._pool.submit(work)

    # -- sources ------------------------------------------------------------------------------------------------------

    def _close(self, order: instructions.PollSource, cursor: Any) -> Answer:
        source = order.source
        began = time.monotonic()
        try:
            position = self._engine.poll(source, cursor)
        except FencedError:
            raise
        except BoatliftError as error:
            self._refusals.append(error)
            # It may have more another time: no epoch ends for that.
            return lambda: [
                events.StopRequested(drain=True),
                events.SourceIdle(source, order.incarnation, order.time, ended=True),
            ]
        if position is None:
            took = time.monotonic() - began
            return lambda: self._idle(order, took)
        record = source_record(position, self._clock(), secrets.randbits(63))
        return lambda: self._closed(order, record)

    def _closed(self, order: instructions.PollSource, record: dict[str, Any]) -> Iterable[events.Event]:
        if self._is_of_this_life(order.source, order.incarnation):
            self._positions.closed(order.source, order.time, record["position"])
            self._unended.look(self._machine.processors)
            self._watch(Progress("take", order.source, order.time))
        gathers = self._engine.gathers(order.source, record["position"])
        yield events.EpochClosed(order.source, order.incarnation, order.time, record, gathers)

    def _idle(self, order: instructions.PollSource, took: float) -> Iterable[events.Event]:
        if not self._available_now:
            self._answers.after(pause_after(took), lambda: [events.SourceWoken(order.source)])
        self._watch(Progress("idle", order.source, -1, behind=steps_to_go(self._machine.processors.values())))
        yield events.SourceIdle(order.source, order.incarnation, order.time, ended=self._available_now)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _begin(self, order: instructions.Execute) -> None:
        """Begins a run at once, or when a processor that has failed has rested."""
        rest = self._rests.pop(order.processor, 0.0)
        run = self._run, order, self._positions.everything_at(order), self._deliveries.held_of(order)
        if rest:
            self._answers.after(rest, partial(self._rested, *run))
        else:
            self._submit(*run)

    def _rested(self, function: Callable[..., Answer], *arguments: Any) -> Iterable[events.Event]:
        self._submit(function, *arguments)
        return ()

    def _run(self, order: instructions.Execute, cursor: Any, held: Sequence[Held]) -> Answer:
        with self._running[order.processor]:  # one that was called off may not have ended yet
            if not self._is_of_this_life(order.processor, order.incarnation):
                return list
            try:
                results = self._engine.run(order, cursor)
                for holds, result in zip(held, results, strict=False):
                    self._deliveries.compare(order.processor, holds, result)
            except BoatliftError as error:
                if not (isinstance(error, UnavailableError | UserCodeError) or error.condition == "BAD_ROW"):
                    raise
                cause = error
                return lambda: self._failed(order, cause)
        return lambda: self._ran(order, results, held)

    def _failed(self, order: instructions.Execute, error: BoatliftError) -> Iterable[events.Event]:
        """A processor has failed: it goes back, and whoever must; then it is tried again, not for ever."""
        name = order.processor
        if not self._is_of_this_life(name, order.incarnation):
            return
        try:
            self._rests[name] = self._rest_of(name, order.takes[0].number, error)
        except BoatliftError:
            if failed := self._decisions.failed(name, order.takes[0], error):
                self._write_records(failed, list)
            raise
        yield events.ProcessorsFailed(
            frozenset({name, *self._lost(message for take in order.takes for message in take.inputs)})
        )

    def _is_of_this_life(self, processor: str, incarnation: int) -> bool:
        """Tells whether a processor has not failed since it was told something."""
        return incarnation == self._machine.processors[processor].incarnation

    def _rest_of(self, name: str, time: int, error: BoatliftError) -> float:
        """Gives how long one that has failed rests; raises what it failed of if it is not to be tried again."""
        unit = self._engine.plan.units.get(name)
        rest = self._attempts.failed(name, time, error, deterministic=unit is not None and unit.deterministic)
        if rest is None or self._engine.cancelled:
            raise error
        logger.warning("%s failed, and is tried again in %.1f s: %s", name, rest, error)
        self._watch(Progress("failure", name, time))
        return rest

    def _lost(self, messages: Iterable[instructions.Message]) -> set[str]:
        return senders_of_lost(messages, self._engine, self._program.graph)

    def _ask(self, order: instructions.ReopenSink) -> Answer:
        try:
            last = self._deliveries.ask(order.sink)
        except UnavailableError as error:
            cause = error
            return lambda: self._ask_again(order, cause)
        return lambda: self._holds(order, last)

    def _ask_again(self, order: instructions.ReopenSink, error: UnavailableError) -> Iterable[events.Event]:
        if self._is_of_this_life(order.sink, order.incarnation):
            rest = self._rest_of(order.sink, self._deliveries.held[order.sink], error)
            self._answers.after(rest, partial(self._rested, self._ask, order))
        return ()

    def _holds(self, order: instructions.ReopenSink, last: int) -> Iterable[events.Event]:
        self._deliveries.held[order.sink] = last
        self._memos.append(SinkCommit(order.sink, last))  # before whatever rests on it becomes durable
        yield events.SinkPosition(order.sink, order.incarnation, Frontier.up_to(last))

    def _ran(
        self, order: instructions.Execute, results: Sequence[StepResult], held: Sequence[Held]
    ) -> Iterable[events.Event]:
        name, last = order.processor, len(results) - 1
        for at, (take, result) in enumerate(zip(order.takes, results, strict=False)):
            over = at == last and len(results) < len(order.takes)
            if self._is_of_this_life(name, order.incarnation):
                self._decisions.note(name, take.number, result.digest)
            rows, milliseconds = (result.rows_in, result.rows), round(result.seconds * 1000, 3)
            made = (result.sent, result.state, result.digest)
            yield events.StepDone(name, order.incarnation, take.time, None, *made, over, rows[0], milliseconds)
            behind = max(map(len, self._machine.processors[name].waiting.values()))
            replay = not self._resumed and take.number <= self._recorded[name]
            new = self._new_input.rows(name, take, result.rows_in)
            self._watch(Progress("step", name, take.number, *rows, milliseconds, replay, behind, newInputRows=new))
            for sink, time_there in held[at]:
                self._watch(Progress("commit", sink, time_there))
            self._attempts.went_on(name, take.number)
        self._engine.delivered(results)

    def _place(self, order: instructions.CommitSink, last: int) -> Answer:
        try:
            self._deliveries.place(order, last)
        except UnavailableError as error:
            cause = error
            return lambda: self._unsure(order, cause)
        return lambda: self._placed(order)

    def _unsure(self, order: instructions.CommitSink, error: UnavailableError) -> Iterable[events.Event]:
        """A sink did not answer, and may hold what it was handed: it is asked, after a rest, and handed the rest; not for ever."""
        if self._is_of_this_life(order.sink, order.incarnation):
            self._rests[order.sink] = self._rest_of(order.sink, last_of(order.frontier), error)
        yield events.CommitUnknown(order.sink, order.incarnation, order.frontier)

    def _placed(self, order: instructions.CommitSink) -> Iterable[events.Event]:
        for at, _ in order.steps:
            self._watch(Progress("commit", order.sink, at))
        self._deliveries.held[order.sink] = last_of(order.frontier)
        self._attempts.went_on(order.sink, last_of(order.frontier))
        self._memos.append(SinkCommit(order.sink, last_of(order.frontier)))
        yield events.SinkCommitted(order.sink, order.incarnation, order.frontier)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _stopping(self) -> Iterable[events.Event]:
        self._watch(Progress("stopping", self._engine.plan.dataflow, -1))
        self._engine.hasten()
        yield events.StopRequested()

    def _finish(self, named: AbstractSet[str]) -> Answer:
        """Write that all is done to the log, once the last manifest is there, and no run but those that facts name."""
        for manifest in self._manifests:
            manifest.result()
        if garbage := self._runs.finish(named):
            self._writer.manifest()
            self._runs.delete(garbage)
        self._log.truncate()  # also what a crash left before the manifest
        self._write_records((*self._take_memos(), Stopped()), self._end)
        return list

    def _end(self) -> Iterable[events.Event]:
        self._finished = True
        return ()

    # -- the log ------------------------------------------------------------------------------------------------------

    def _write(self, order: instructions.AppendLog) -> None:
        cursors = [
            cursor
            for fact in order.facts
            if isinstance(fact, GarbageCollection)
            for cursor in self._positions.collected(fact)
        ]
        self._write_records((*self._take_memos(), *cursors, *order.facts), lambda: self._durably(order))

    def _durably(self, order: instructions.AppendLog) -> Iterable[events.Event]:
        for fact in order.facts:
            if isinstance(fact, Checkpoint):
                self._watch(Progress("checkpoint", fact.processor, last_number(fact.frontier)))
        yield events.LogDurable(order.number)

    def _write_records(self, records: Sequence[Record], then: Answer) -> None:
        self._writer.submit(records, partial(self._answers.put_or_fail, then))

    def _take_memos(self) -> list[Record]:
        read = [StepDigest(source, time, found.digest, found.rows) for source, time, found in self._engine.read()]
        memos, self._memos = [*self._memos, *self._decisions.take(), *read], []
        return memos

    def _keep(self, order: instructions.Persist) -> Answer:
        runs = [run for content in order.contents for run in runs_of(content)]
        self._runs.keep(order.processor, runs)
        return lambda: [events.Persisted(order.number)]

    def _collect(self) -> None:
        """Writes a manifest, then deletes the runs that nobody can ask for: what is to be kept of them is known now."""
        live = names_of_runs(self._machine.contents()) | self._engine.holds()
        self._engine.discard(live)
        under_way = [each for each in self._manifests if not each.done()]
        self._manifests = [*under_way, self._pool.submit(self._manifest, self._runs.garbage(live))]

    def _manifest(self, garbage: Sequence[str]) -> None:
        try:
            self._writer.manifest()
            self._runs.delete(garbage)
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
            self._answers.fail(error)
