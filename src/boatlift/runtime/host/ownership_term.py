"""A tenure: the time for which one process owns a dataflow, from its claim to its end."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from boatlift.runtime.division import division_of
from boatlift.runtime.engine import Beginning, Engine
from boatlift.runtime.graph import program_of
from boatlift.runtime.host.environments import admit
from boatlift.runtime.host.event_queue import Answer, EventQueue
from boatlift.runtime.host.failures import Failures
from boatlift.runtime.host.kept_runs import KeptRuns
from boatlift.runtime.host.log import LogCalls
from boatlift.runtime.host.loop import EventLoop, Handlers
from boatlift.runtime.host.new_input import NewInput
from boatlift.runtime.host.options import RunOptions
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.host.ownership import LOOK_SECONDS, Ownership
from boatlift.runtime.host.places import check_places
from boatlift.runtime.host.probes import Probes
from boatlift.runtime.host.progress import Progress, beginnings, left_behind
from boatlift.runtime.host.recorded import readings, recorded_steps
from boatlift.runtime.host.sink_commits import SinkCommits
from boatlift.runtime.host.sinks import SinkCalls
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.host.sources import SourcePolls
from boatlift.runtime.host.steady_clock import SteadyClock
from boatlift.runtime.host.steps import StepRuns
from boatlift.runtime.host.stuck_batches import StuckBatches
from boatlift.runtime.host.timers import HostTimers, clock_of
from boatlift.runtime.host.waiting_input import WaitingInputs
from boatlift.runtime.host.workers import Workers
from boatlift.runtime.machine import StateMachine, events, instructions
from boatlift.storage.group_commit import GroupWriter
from boatlift.storage.log import Log
from boatlift.storage.records.division import UNITS
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.store import Store
from boatlift.times import Frontier

__all__ = ["COLLECT_AFTER", "MESSAGES_AHEAD", "OwnershipTerm"]

COLLECT_AFTER = 64
"""Garbage is looked for after so many durable facts."""

MESSAGES_AHEAD = 12
"""A source is not polled while so many messages wait behind it.

This bounds the runs that wait in scratch, and how long a stop takes.
"""


class OwnershipTerm:
    """A dataflow that this process has claimed, and whose engine has started.

    Its construction fences every earlier owner of the log.

    Args:
        engine: Executes steps.
        store: Where everything durable is.
        options: Of the run.
        queue: Answers, and requests to stop.
        clock: Milliseconds since 1970; a determinant of each step.
    """

    def __init__(
        self, engine: Engine, store: Store, options: RunOptions, queue: EventQueue, clock: SteadyClock
    ) -> None:
        self._engine, self._options, self._queue, self._clock = engine, options, queue, clock
        self._store = store
        self._plan = plan = engine.plan
        self._program = program_of(plan)
        self._log = Log.open(store, plan.dataflow, clock=clock)
        clock.at_least(self._log.written_at)  # no recorded reading is later
        check_places(plan, self._log.store_id, self._log.history)
        self._owner = Ownership(self._log, clock)
        program = {**engine.program(), UNITS: division_of(plan)}
        self._token = token = self._owner.claim(program, engine.environment(), options.bytes_in_flight)
        for takeover in self._owner.taken_over():
            options.on_progress(takeover)
        self._history = history = self._log.history
        self._cursors = SourceCursors(engine, history, self._log.names_taken)
        self._overrides = Overrides(
            history,
            accept=options.accept_released,
            skip=options.skip,
            set_aside=options.set_aside,
            recorded=recorded_steps(plan, self._cursors.recorded, history),
            plan=plan,
            graph=self._program.graph,
        )
        self._commits = SinkCommits(engine, self._program.graph, self._overrides, history.committed)
        self._runs = KeptRuns(store, engine)
        self._runs.begin(history.live_runs(), token)
        store.discard_scratch(before=token)
        engine.start(
            Beginning(
                store,
                store.scratch(token),
                self._log.store_id,
                token,
                recorded=self._cursors.recorded,
                read=readings(plan, history),
                cursors=self._cursors.cursors,
            )
        )
        for name, url in engine.listening().items():
            options.on_progress(Progress("listening", name, -1, where=url))
        engine.skip(self._overrides.skips)

    def run(self) -> None:
        """Recover, then run until the input is exhausted or a stop is requested.

        Raises:
            BoatliftError: the cause of the end; a newer owner, if there is one.
        """
        # Jobs end before the writer does: their answers may still want to write.
        with (
            closing(GroupWriter(self._log)) as writer,
            Workers(self._queue, 4 + 2 * len(self._plan.processors)) as workers,
        ):
            try:
                self._recover_and_run(writer, workers)
            except BaseException as error:
                self._engine.cancel()
                # A takeover may be the cause, such as of scratch files that are gone; then the takeover is reported.
                if isinstance(error, Exception) and (newer := self._owner.newer_after_an_error()):
                    raise newer from error
                raise

    def _recover_and_run(self, writer: GroupWriter, workers: Workers) -> None:
        self._commits.open()
        machine = StateMachine(
            self._program,
            self._overrides.live_records(),
            {name: Frontier.up_to(step) for name, step in self._commits.held.items()},
            steps_per_job=self._engine.steps_per_job,
            awaited=self._engine.awaited,
            clock_of=clock_of,
            collect_after=COLLECT_AFTER,
            messages_ahead=MESSAGES_AHEAD,
            bytes_ahead=self._options.bytes_in_flight,
            size_of=lambda payload: sum(run.size for run in runs_of(payload)),
        )
        first = machine.start()
        admitted = admit(machine.progress, self._history, self._engine.environment())
        positions = self._commits.news_for(self._history.committed)
        if records := [*admitted, *positions, *self._overrides.take()]:
            self._log.append(records)  # durable before anything of it can be seen
        recorded = recorded_steps(self._plan, self._cursors.recorded_after(machine.progress), self._history)
        # Recorded steps that nobody has executed are no replay; after a clean stop, none beyond a checkpoint has been.
        executed = {name: min(last, self._history.last_executed(name)) for name, last in recorded.items()}
        replayed = {} if self._history.resumed else executed
        for progress in beginnings(self._plan, machine.progress, replayed):
            self._options.on_progress(progress)

        watch = self._options.on_progress
        failures = Failures(self._engine, self._program.graph, watch)
        stuck = StuckBatches(self._plan)
        sources = SourcePolls(
            self._engine, self._queue, workers, self._options, self._cursors, machine.progress, stuck, self._clock
        )
        log = LogCalls(
            self._log,
            writer,
            self._runs,
            self._engine,
            self._queue,
            workers,
            overrides=self._overrides,
            cursors=sources.recorded,
            payloads=machine.payloads,
            watch=watch,
        )
        steps = StepRuns(
            self._engine,
            workers,
            failures,
            log,
            cursors=self._cursors,
            commits=self._commits,
            overrides=self._overrides,
            progress=machine.progress,
            replayed=replayed,
            new_input=NewInput(self._plan, recorded),
            watch=watch,
        )
        sinks = SinkCalls(self._commits, workers, failures, log, watch)
        probes = Probes(self._engine, self._queue, workers, failures)
        timers = HostTimers(self._queue, self._clock)
        handlers: Handlers = {
            instructions.PollSource: sources.poll,
            instructions.Acknowledge: sources.acknowledge,
            instructions.SetTimer: timers.set,
            instructions.ProbeRows: probes.probe,
            instructions.Restore: steps.restore,
            instructions.Execute: steps.execute,
            instructions.Prepare: steps.prepare,
            instructions.Cancel: steps.cancel,
            instructions.Persist: log.persist,
            instructions.AppendLog: log.append,
            instructions.CommitSink: sinks.commit,
            instructions.ReopenSink: sinks.reopen,
            instructions.CollectGarbage: log.collect,
            instructions.Finish: log.finish,
        }
        WaitingInputs(self._plan, self._cursors.newest, self._store.scratch(self._token), workers, self._clock).begin()
        self._watch(workers)
        EventLoop(machine, self._queue, handlers).run(first, lambda: log.finished)
        if sources.refusals:
            raise sources.refusals[0]
        for left in left_behind(self._plan, machine.progress):
            watch(left)

    def _watch(self, workers: Workers) -> None:
        """Look now and then for a newer owner, and whether Spark is there.

        A write and a step find out too, but there may be nothing to write or to execute.
        """

        def look() -> Answer:
            self._owner.look()
            self._engine.check()
            return look_later

        def look_later() -> Iterable[events.Event]:
            workers.submit_after(LOOK_SECONDS, look)
            return ()

        look_later()
