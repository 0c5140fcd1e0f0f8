"""An ownership term: the time for which one process owns a dataflow, from its claim to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from boatlift.dataflow.contracts import place_in
from boatlift.errors import FLOW_AND_STORE, DataError, FencedError
from boatlift.runtime.engine import Beginning, Engine
from boatlift.runtime.graph import division_of, program_of
from boatlift.runtime.host.admission import admit, check_places
from boatlift.runtime.host.clock import HostTimers, SteadyClock, clock_of
from boatlift.runtime.host.consent import consented, refuse_another_plan
from boatlift.runtime.host.context import HostContext, RunOptions, handlers_of
from boatlift.runtime.host.counters import Counters
from boatlift.runtime.host.deadlines import Deadlines
from boatlift.runtime.host.event_loop import Answer, EventQueue, Workers, run_loop
from boatlift.runtime.host.failures import Failures
from boatlift.runtime.host.health import Health
from boatlift.runtime.host.inserts import RowsOfCommands
from boatlift.runtime.host.log import LogCalls, StoredRuns
from boatlift.runtime.host.members import MemberHolding, gather
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.host.ownership import LOOK_SECONDS, Ownership
from boatlift.runtime.host.points import RestorePoints
from boatlift.runtime.host.progress import Progress, RecordedSteps, beginnings, left_behind, readings, recorded_steps
from boatlift.runtime.host.run_events import RunEvents
from boatlift.runtime.host.run_report import RunReports
from boatlift.runtime.host.sinks import SinkCalls, SinkCommits, carriers_of, unawaited_of
from boatlift.runtime.host.soft_checkpoints import Adopted, SoftFile, adopt, head_of
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.host.sources import SourcePolls
from boatlift.runtime.host.steps import Probes, StepRuns
from boatlift.runtime.host.transition import carry_out
from boatlift.runtime.machine import StateMachine, events
from boatlift.runtime.machine.instructions import Instruction
from boatlift.runtime.machine.progress import MachineProgress
from boatlift.runtime.peers.holding import HeldTail, Holders
from boatlift.runtime.peers.owner import OwnerLink
from boatlift.storage.bad_rows import drop_bad_rows
from boatlift.storage.group_commit import GroupWriter, StreamEntry
from boatlift.storage.identities import secret_of
from boatlift.storage.journal import Journal
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.codec import SoftHead, encode_tail
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import UNITS, Membership, Override, Record, Settled, SinkCommit
from boatlift.storage.records.soft_checkpoints import SoftCheckpoint
from boatlift.storage.records.stream import FoundEntries, Tail, found_behind
from boatlift.storage.store import Store
from boatlift.times import Frontier, read_frontier

COLLECT_AFTER = 64  # the durable facts from one garbage collection to the next

MESSAGES_AHEAD = 12
"""A source is not polled while so many messages wait behind it.

This bounds the runs that wait in scratch, and the duration of a stop.
"""


@contextmanager
def _told_of_copies() -> Iterator[None]:
    """Let what a sink refuses say what to do if the store is an older copy."""
    try:
        yield
    except (FencedError, DataError) as error:
        if error.condition in ("FENCED", "NO_CONSISTENT_FRONTIER"):
            error.remedy = f"if the store is an older copy, boatlift rewind {FLOW_AND_STORE} --from-copy shows the way"
        raise


class OwnershipTerm:
    """A dataflow that this process has claimed, and whose engine has started.

    Its construction fences every earlier owner of the log.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        owner: Ownership,
        options: RunOptions,
        queue: EventQueue,
        clock: SteadyClock,
        link: OwnerLink,
        after: int | None,
        health: Health,
        tail: HeldTail | None,
        is_over: Callable[[], bool],
    ) -> None:
        self._events = RunEvents(clock)
        options = replace(options, on_progress=self._events.watched(options.on_progress))
        self._engine, self._options, self._queue, self._clock = engine, options, queue, clock
        self._health = health
        self._plan = engine.plan
        self._program = program_of(self._plan)
        self._log, self._owner, self._link = owner.log, owner, link
        clock.at_least(self._log.written_at)  # no recorded reading is later
        if not after:  # else the owner had them open
            check_places(self._plan, self._log.store_id, self._log.history)
        program = {**engine.program(), UNITS: division_of(self._plan)}
        environment = engine.environment()
        self._carriers, self._depths = carriers_of(engine, store), self._plan.depths()
        self._unawaited = unawaited_of(engine)
        self._calls: LogCalls | None = None
        self._workers: Workers | None = None
        self._asking = False
        self.has_begun = False
        transition = consented(self._log, engine, options)
        if after and transition is not None:
            check_places(self._plan, self._log.store_id, self._log.history)
        token = self._owner.claim(
            program,
            environment,
            options.bytes_in_flight,
            link.address,
            after,
            "" if transition is None else transition.id,
            lambda _history: refuse_another_plan(self._log, engine, options),
            link.fingerprint,
            engine.advertised(),
            rides=self._shows_ahead,
            sinks={name: place_in(each.sink.describe()) for name, each in self._plan.sinks.items()},
        )
        members = None if options.from_copy else self._log.members  # those of the original hold nothing of a copy's
        may_be_carried = self._may_be_carried = self._log.may_be_carried
        self._holding = link.holding = MemberHolding(queue, self._record_members, self._ask_for_a_newer_owner)
        secret = secret_of(store, create=True)
        assert secret is not None
        link.begin(secret, self._log.store_id, self._log.dataflow, owner.make_beat)  # at once: else others suspect
        clock.at_least(self._log.written_at)  # of objects that the former owner wrote until now
        takeovers = list(self._owner.taken_over())
        for takeover in takeovers:
            options.on_progress(takeover)
        cause = "takeover" if takeovers else "start"
        self._counters = Counters(self._plan, clock, cause)
        self._events.begins(cause)
        if transition is not None:
            transition = consented(self._log, engine, options)  # an owner may have gone on until the claim
            assert transition is not None
            with _told_of_copies():
                carry_out(transition, engine, store, self._log, token, self._clock(), options)
        self._history = self._log.history
        mine = (self._log.store_id, token + self._history.ahead)
        self._commits = SinkCommits(engine, mine, self._program.graph, self._history, self._unawaited)
        with self._commits.opening():  # beside the rest: a sink elsewhere takes its time
            head = head_of(program, environment)
            if may_be_carried:
                with _told_of_copies():
                    tails = list(self._commits.carried())
                lost = list[str]()
                if members is not None:
                    held, lost = gather(
                        members,
                        tail,
                        mine[1],
                        self._holding.promised,
                        lambda held: self._commits.tell_rests() and not self._found([*tails, *held]).lacks,
                        owner.look,
                        lambda said: options.on_progress(Progress("members", self._plan.dataflow, -1, said=said)),
                        is_over,
                        waits=after is not None,
                        accepts_lost=options.accept_lost,
                    )
                    tails += held
                found = self._found(tails)
                if lost:
                    self._refuse_unexplained(store, found)
                    said = f"went on without {', '.join(lost)}, which may have held what the log lacks"
                    options.on_progress(Progress("lost", self._plan.dataflow, -1, said=said))
                    found = replace(
                        found, records=(*found.records, *(Override("lost", each, found.end, said) for each in lost))
                    )
                else:
                    found.refuse_gap()
                clock.at_least(found.at)
                adopted = self._begin_scratch(store, token, head, adopts=not found.undoes)
                if found.records:
                    self._store_carried(found.records)
            else:
                adopted = self._begin_scratch(store, token, head, adopts=True)
            if self._history.rewound:
                drop_bad_rows(store, {name: self._history.last_closed(name) for name in self._plan.sources})
            self._cursors = SourceCursors(engine, self._history, self._log.names_taken)
            recorded = recorded_steps(self._plan, self._cursors.recorded, self._history)
            self._overrides = Overrides(self._history, options, recorded, self._plan, self._program.graph)
            self._commits.begin(self._overrides, self._history)
            self._begin_engine(store, token, adopted)

    @property
    def _shows_ahead(self) -> bool:
        """Whether sinks may show what the log lacks."""
        return bool(self._carriers or self._unawaited)

    def _refuse_unexplained(self, store: Store, found: FoundEntries) -> None:
        """Refuse to go on without members, before anything is written, while a sink holds what cannot be repeated.

        Raises:
            DataError: `[NO_CONSISTENT_FRONTIER]`.
        """
        log = LogReader(store, self._log.dataflow)
        log.load()
        for record in found.records:
            log.history.apply(record)
        self._commits.begin_ledgers(log.history)
        with _told_of_copies():
            self._commits.opened()
            held = {name: Frontier.up_to(step) for name, step in self._commits.held.items()}
            records = log.history.live_records
            StateMachine(program_of(self._plan), records, held, collect_after=1, messages_ahead=1).start()

    def _found(self, tails: Iterable[Tail]) -> FoundEntries:
        begun = self._log.begun + self._history.ahead
        return found_behind(tails, self._log.store_id, begun, self._log.entries)

    def _record_members(self, change: Membership) -> None:
        if self._calls is not None:
            self._calls.record_members(change)

    def _ask_for_a_newer_owner(self) -> None:
        """Look whether a standby that says so is promised to a newer owner; once at a time."""

        def look() -> Answer:
            if newer := self._owner.newer_after_an_error():
                raise newer
            self._asking = False
            return tuple

        if self._workers is not None and not self._asking:
            self._asking = True
            self._workers.submit(look)

    def _store_carried(self, records: Sequence[Record]) -> None:
        """Store what the acts of the owner before carry, before anything of this one can be seen."""
        self._soft.write(self._log.last + 1, 0)  # each object of the log has its entry
        self._log.append(records)
        said = f"{len(records)} records that sinks carried or standbys held, and the log lacked, are in it now"
        self._options.on_progress(Progress("carried", self._plan.dataflow, -1, said=said))

    def _begin_scratch(self, store: Store, token: int, head: SoftHead, *, adopts: bool) -> Adopted:
        """Adopt what the owner before has left, and begin a scratch folder."""
        self._scratch, self._journal = store.scratch(token), Journal(store, token)
        options = self._options
        again = options.skip or options.set_aside or options.accept_released  # then recorded steps run otherwise
        if again or not adopts:
            adopted = Adopted(SoftCheckpoint())
        else:
            adopted = adopt(store, self._log, self._scratch, head)
        self._memory = adopted.memory
        self._soft = SoftFile(self._scratch, token, head, self._memory.frame())
        store.discard_scratch(before=token)  # from now on no older owner begins to make a run durable
        return adopted

    def _begin_engine(self, store: Store, token: int, adopted: Adopted) -> None:
        """Start the engine."""
        options, engine = self._options, self._engine
        self._linger = store.requests.linger
        self._runs = StoredRuns(store, engine)
        self._runs.begin(token, adopted.files)
        beginning = Beginning(
            store,
            self._scratch,
            self._log.store_id,
            token,
            recorded=self._cursors.recorded,
            read=readings(self._plan, self._history),
            cursors=self._cursors.cursors,
            files=adopted.files,
            executed={}
            if self._history.resumed or self._history.stopped
            else {name: self._history.last_executed(name) for name in self._plan.units},
            in_memory=True,
        )
        with self._soft.kept_unless_spoilt():
            engine.start(beginning)
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
            closing(self._soft),
            self._soft.kept_unless_spoilt(),
            closing(self._new_writer()) as writer,
            self._settling(writer),
            closing(Workers(self._queue, 5 + 3 * len(self._plan.processors))) as workers,
        ):
            try:
                self._recover_and_run(writer, workers)
            except BaseException as error:
                self._engine.cancel()
                # A takeover may be the cause, such as of scratch files that are gone; then the takeover is reported.
                if isinstance(error, Exception) and (newer := self._owner.newer_after_an_error()):
                    raise newer from error
                raise

    def _new_writer(self) -> GroupWriter:
        told = None
        if self._depths:
            known_as = self._log.owner + self._history.ahead

            def encode(place: int, entry: StreamEntry) -> bytes:
                return encode_tail(Tail(self._log.store_id, known_as, place, self._clock(), (entry,)))

            told = self._holding
            told.begin(Holders(self._log.owner, known_as, min(self._depths.values()), encode))
        return GroupWriter(self._log, self._soft, self._linger, self._counters.log.add, told)

    @contextmanager
    def _settling(self, writer: GroupWriter) -> Iterator[None]:
        """Record after an error, once no act is under way, that the log has all that sinks carry."""
        try:
            yield
        except BaseException:
            if (self._shows_ahead or self._depths) and self._log.stored and not self._history.stopped:
                writer.submit([Settled()], lambda _error: None)
            raise

    def _recover_and_run(self, writer: GroupWriter, workers: Workers) -> None:
        with _told_of_copies():
            self._commits.opened()
        delivered = self._deliver_differences()
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
            carriers=self._carriers,
            depths=self._depths,
            unawaited=self._unawaited,
        )
        with _told_of_copies():
            first = self._start(machine)
        steps = self._record_beginning(machine.progress, delivered)
        context = HostContext(
            self._engine,
            self._plan,
            self._log,
            self._queue,
            workers,
            machine.progress,
            self._options,
            self._link,
            self._counters,
        )
        failures = Failures(context, self._program.graph)
        sources = SourcePolls(context, self._cursors, self._clock)
        deadlines = Deadlines(context, self._clock)
        log = LogCalls(
            context,
            writer,
            self._runs,
            self._overrides,
            sources.recorded,
            machine.payloads,
            self._soft,
            self._clock,
            self._holding if self._depths else None,
        )
        self._calls, self._workers = log, workers
        points = RestorePoints(context, log, self._clock)
        handlers = handlers_of(
            sources,
            StepRuns(context, failures, log, self._cursors, self._commits, steps, deadlines),
            Probes(context, failures),
            SinkCalls(context, failures, log, self._commits, deadlines),
            log,
            points,
            HostTimers(context, self._clock),
        )
        points.begin()
        self._link.change_points = points.ask
        self._link.take_rows = RowsOfCommands(self._plan).take
        reports = RunReports(
            context,
            self._cursors,
            self._commits.held,
            deadlines,
            self._scratch,
            self._clock,
            self._events,
            self._journal,
        )
        reports.begin()
        deadlines.begin()
        self._look_for_a_newer_owner(workers)
        self._health.owns(deadlines.stuck)
        self._beat()
        self.has_begun = True
        try:
            run_loop(machine, self._queue, handlers, first, lambda: log.finished)
            if sources.refusals:
                raise sources.refusals[0]
        except Exception as error:
            is_fenced = isinstance(error, FencedError) or (self._journal.goes_on and self._owner.newer_after_an_error())
            if not is_fenced:  # else the newer owner goes on
                self._events.ended(self._plan.dataflow, error)
            raise
        finally:
            self._options.on_progress(Progress("over", self._plan.dataflow, -1))
            reports.end()
        for left in left_behind(self._plan, machine.progress):
            self._options.on_progress(left)

    def _deliver_differences(self) -> list[SinkCommit]:
        """Hand sinks what a transition has computed for them; return the records that they hold it."""
        delivered = self._commits.deliver_differences()
        for each in delivered:
            self._options.on_progress(
                Progress("corrected", each.sink, each.time, said="holds what the new program gives")
            )
        return delivered

    def _start(self, machine: StateMachine) -> list[Instruction]:
        """Recover; the engine is informed which runs of adopted states are durable."""
        first, records = machine.start(self._memory), self._history.live_records
        for name, part in self._memory.parts.items():
            checkpoint = records.checkpoint_within(name, read_frontier(part.done))
            if checkpoint is not None:
                self._engine.kept(name, runs_of(checkpoint.payload))
        return first

    def _record_beginning(self, progress: MachineProgress, delivered: Iterable[SinkCommit]) -> RecordedSteps:
        """Record what this run changes before any effect of it can be seen, and report where it begins."""
        ahead = self._may_be_carried and bool(self._unawaited)
        admitted = admit(progress, self._history, self._engine.environment(), shown_ahead=ahead)
        positions = self._commits.news_for(self._history.committed)
        records = [*admitted, *delivered, *positions, *self._overrides.take()]
        begins = self._may_be_carried or self._shows_ahead or self._depths  # tails count of the newest begun owner
        if records or (begins and not self._log.stored):
            self._soft.write(self._log.last + 1, 0)  # each object of the log has its entry
            self._log.append(records)
        recorded = recorded_steps(self._plan, self._cursors.recorded_after(progress), self._history)
        steps = RecordedSteps(self._plan, recorded, self._history)
        self._counters.furthest.update(steps.replayed)
        for beginning in beginnings(self._plan, progress, steps.replayed, self._memory.parts):
            self._options.on_progress(beginning)
        self._events.begun()
        return steps

    def _beat(self) -> Iterable[events.Event]:
        """Report now and then that the event loop turns."""
        self._owner.turned = time.monotonic()
        self._health.turns()
        self._options.on_progress(Progress("beat", self._plan.dataflow, -1))
        self._queue.after(LOOK_SECONDS, self._beat)
        return ()

    def _look_for_a_newer_owner(self, workers: Workers) -> None:
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
