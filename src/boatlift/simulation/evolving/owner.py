"""One process that runs a program on the store of a life, from its claim to its end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import Any, cast

from boatlift.runtime.engine import StepResult
from boatlift.runtime.evolution import recorded_as_claimed, refuse_other_division
from boatlift.runtime.graph import division_of, position_of, program_of, source_record
from boatlift.runtime.host.consent import consented, refuse_another_plan
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.log import StoredRuns
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.host.progress import recorded_steps
from boatlift.runtime.host.sinks import SinkCommits, UnrecordedError
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.host.transition import carry_out
from boatlift.runtime.machine import StateMachine, events, instructions
from boatlift.runtime.transition import Transition
from boatlift.simulation.disk import DATAFLOW, FACTS_AN_OBJECT
from boatlift.simulation.evolving.engine import EvolvingEngine, ProcessStore
from boatlift.simulation.evolving.outside import MOST_ROWS, Outside
from boatlift.simulation.evolving.programs import EvolvingProgram
from boatlift.storage.group_commit import GroupCommit
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Determinant, Fact, GarbageCollection
from boatlift.storage.records.history import LogHistory, runs_of_point
from boatlift.storage.records.payloads import names_of_runs, runs_of
from boatlift.storage.records.records import (
    UNITS,
    Claim,
    PointsDropped,
    Record,
    RestorePoint,
    SinkCommit,
    Stopped,
)
from boatlift.times import Frontier, last_of


class EvolvingOwner:
    """An owner. Its construction claims the store, and carries out the transition that was consented to.

    Args:
        store: The process's own way to the disk.
        options: With the consent to a transition, and its modes; empty for none.
        meanwhile: Called where other processes act while this one starts.
        clock: Of the log.
        checked: The machine checks its invariants.

    Raises:
        BoatliftError: the program is refused, or another process has taken over.

    Attributes:
        program: The one that it runs.
        stopped: It has recorded a clean stop.
    """

    def __init__(
        self,
        store: ProcessStore,
        outside: Outside,
        program: EvolvingProgram,
        options: RunOptions,
        rng: random.Random,
        trace: Callable[[object], None],
        meanwhile: Callable[[], None],
        clock: Callable[[], int],
        *,
        checked: bool,
    ) -> None:
        self.program, self._outside, self._rng, self._trace, self._checked = program, outside, rng, trace, checked
        self.stopped = self._finishes = False
        self.outstanding: list[instructions.Instruction | events.Event | Callable[[], None]] = []
        self._plan = program.plan
        self._graph = program_of(self._plan)
        self._engine = cast("Any", EvolvingEngine(program, outside, store))
        self._log = Log.open(store, DATAFLOW, clock=clock, facts_an_object=FACTS_AN_OBJECT)
        transition = consented(self._log, self._engine, options)
        meanwhile()
        self.owner = self._claim(transition, options)
        trace(f"{self.owner} owns the dataflow")
        meanwhile()
        if transition is not None:
            transition = consented(self._log, self._engine, options)
            assert transition is not None
            trace(in_words(transition))
            self._engine.token = self.owner
            carry_out(transition, self._engine, store, self._log, self.owner, 0, options)
            trace(f"{self.owner} has recorded the transition {transition.id}")
        meanwhile()
        self._begin(store, options)

    def _claim(self, transition: Transition | None, options: RunOptions) -> int:
        program = {**self._engine.program(), UNITS: division_of(self._plan)}

        def refuse(history: LogHistory) -> None:
            if transition is not None:
                refuse_another_plan(self._log, self._engine, options)
            else:
                refuse_other_division(history, program)

        evolves = "" if transition is None else transition.id
        return self._log.claim(Claim("", 0, 0, program, {}, evolves=evolves), refuse, recorded_as_claimed)

    def _begin(self, store: ProcessStore, options: RunOptions) -> None:
        """Open the sinks, hand over differences, and recover."""
        history = self._log.history
        self._engine.token = self.owner
        self._cursors = SourceCursors(self._engine, history, self._log.names_taken)
        recorded = recorded_steps(self._plan, self._cursors.recorded, history)
        overrides = Overrides(history, options, recorded, self._plan, self._graph.graph)
        mine = (self._log.store_id, self.owner + history.ahead)
        self._commits = SinkCommits(self._engine, mine, self._graph.graph, history)
        self._commits.begin(overrides, history)
        self._runs = StoredRuns(store, self._engine)
        self._runs.begin(self.owner, set())
        self._pinned = {name: runs_of_point(point) for name, point in history.points.items()}
        for sink in self._plan.sinks:
            self._commits.held[sink] = self._commits.position(sink)
        self._trace(f"sinks hold {self._commits.held}")
        delivered = self._commits.deliver_differences()
        self.machine = StateMachine(
            self._graph,
            overrides.live_records(),
            {name: Frontier.up_to(step) for name, step in self._commits.held.items()},
            checked=self._checked,
            collect_after=self._rng.choice((1, 4, 16)),
            messages_ahead=self._rng.choice((4, 32)),
        )
        self._commit = GroupCommit(self._log)
        self._remembered: list[Record] = []
        first = self.machine.start()
        if records := [*delivered, *self._commits.news_for(history.committed)]:
            self._trace(f"{self.owner} records {records}")
            self._log.append(records)
        self._take_up(first)

    @property
    def history(self) -> LogHistory:
        return self._log.history

    def stop(self, *, drain: bool) -> None:
        """Stop cleanly: steps under way end, and become durable; if so, with all that sources have closed."""
        if not self._finishes:
            self._trace(f"{self.owner} is to stop{', once all is executed' if drain else ''}")
            self._handle(events.StopRequested(drain))

    def keep_point(self, name: str, at: int) -> None:
        """Keep a restore point once no step is under way."""
        if not self._finishes:
            self._trace(f"{self.owner} is to keep the restore point {name}")
            self._point_at = at
            self._handle(events.PointRequested(name))

    def drop_point(self, name: str) -> None:
        """Drop a restore point, if there is one of that name."""
        if not self._finishes and name in self.history.points:
            self._commit.submit([PointsDropped((name,))], lambda error: self._pin(name) if error is None else None)

    def _keep_point(self, order: instructions.KeepPoint) -> None:
        self._pinned[order.name] = self._live()
        records, self._remembered = [*self._remembered, RestorePoint(order.name, self._point_at)], []
        self._commit.submit(records, lambda error: self._pin(order.name) if error is None else None)

    def _pin(self, name: str) -> None:
        """Keep the runs of a restore point, and those alone, as the log says now."""
        point = self.history.points.get(name)
        self._pinned[name] = set() if point is None else runs_of_point(point)

    def wake(self, source: str) -> None:
        """Tell of new rows of a source."""
        if source in self._plan.sources:
            self.outstanding.append(events.SourceWoken(source))

    @property
    def idle(self) -> bool:
        """Whether nothing is left for it to do before it gets new rows."""
        return self.stopped or not (self.outstanding or self._commit.waiting or self._finishes)

    def act(self) -> None:
        """Do any one of the outstanding acts; the log writes in the order of submission.

        Raises:
            CrashError: the process crashes in the act.
            FencedError: another process has taken over.
        """
        count = len(self.outstanding) + bool(self._commit.waiting)
        if not count:
            if self._finishes:
                self._end()
            return
        at = self._rng.randrange(count)
        if at == len(self.outstanding):
            self._write()
        else:
            todo = self.outstanding.pop(at)
            self._trace(f"{self.owner}: {_act_in_words(todo)}")
            self._carry_out(todo)

    def _end(self) -> None:
        if garbage := self._runs.finish(self.history.live_runs()):
            self._log.checkpoint()
            self._runs.delete(garbage)
        self._log.truncate()
        self._log.append([*self._remembered, Stopped()])
        self._trace(f"{self.owner} has stopped")
        self.stopped = True

    def _handle(self, event: events.Event) -> None:
        self._take_up(self.machine.handle(event))

    def _take_up(self, orders: Iterable[instructions.Instruction]) -> None:
        for order in orders:
            match order:
                case instructions.AppendLog():
                    records, self._remembered = self._remembered, []
                    written = partial(self._answered, events.LogDurable(order.number))
                    self._commit.submit([*records, *self._cursors_after(order.facts), *order.facts], written)
                case instructions.PollSource():
                    cursor = self._cursors.cursor(
                        order.source, order.time
                    )  # later it may have closed a step of nothing
                    self.outstanding.append(partial(self._poll, order, cursor))
                case instructions.Finish():
                    self._finishes = True
                case instructions.KeepPoint():
                    self._keep_point(order)
                case instructions.Restore() | instructions.Prepare() | instructions.Cancel():
                    pass
                case _:
                    self.outstanding.append(order)

    def _answered(self, event: events.Event, error: BaseException | None) -> None:
        if error is None:
            self.outstanding.append(event)

    def _cursors_after(self, facts: Iterable[Fact]) -> list[Record]:
        """Note positions that are being recorded, and return the cursors after those that are garbage now."""
        after: list[Record] = []
        for fact in facts:
            if isinstance(fact, Determinant) and fact.processor in self._plan.sources:
                assert isinstance(fact.time, int)
                self._cursors.closed(fact.processor, fact.time, position_of(fact.outcome))
            elif isinstance(fact, GarbageCollection):
                after += self._cursors.collected(fact)
        return after

    def _write(self) -> None:
        group = self._commit.take()
        self._commit.write(group)
        if self._commit.failure is not None:
            raise self._commit.failure
        for records, _, _ in group:
            self._trace(f"{self.owner} has recorded {'a manifest' if records is None else list(records)}")

    def _carry_out(self, todo: instructions.Instruction | events.Event | Callable[[], None]) -> None:
        match todo:
            case instructions.Execute():
                self._run(todo)
            case instructions.Persist(number, processor, payloads):
                self._runs.keep(processor, [run for payload in payloads for run in runs_of(payload)])
                self.outstanding.append(events.Persisted(number))
            case instructions.CommitSink():
                self._place(todo)
            case instructions.ReopenSink(sink, incarnation):
                held = self._commits.held[sink] = self._commits.position(sink)
                self._handle(events.SinkPosition(sink, incarnation, Frontier.up_to(held)))
            case instructions.CollectGarbage():
                self._collect()
            case instructions.Acknowledge(source, frontier):
                self._cursors.acknowledge(source, frontier)
            case (
                events.SourceWoken()
                | events.SourceIdle()
                | events.Persisted()
                | events.LogDurable()
                | events.SinkCommitted()
            ):
                self._handle(todo)
            case _:
                assert callable(todo), f"{todo} is done elsewhere"
                todo()

    def _poll(self, order: instructions.PollSource, cursor: Any) -> None:
        start, rows = cursor["taken"], len(self._outside.rows[self.program.parts[order.source].label])
        if start == rows:
            self._handle(events.SourceIdle(order.source, order.incarnation, order.time))
            return
        position = {"start": start, "end": min(rows, start + self._rng.randint(1, MOST_ROWS))}
        record = source_record(position, 0, 0)
        self._handle(events.EpochClosed(order.source, order.incarnation, order.time, record))

    def _run(self, order: instructions.Execute) -> None:
        """Execute steps, and compare each with what sinks hold."""
        state = order.state
        held = self._commits.held_steps(order)
        for take, holding in zip(order.takes, held, strict=True):
            sent, state, digest = self._engine.step(order.processor, take, state)
            self._commits.compare(order.processor, holding, StepResult(0, digest, sent, state))
            over = take is not order.takes[-1]
            self._handle(
                events.StepDone(
                    order.processor,
                    order.incarnation,
                    take.time,
                    None,
                    sent,
                    state,
                    digest,
                    over=over,
                )
            )
            if over:
                return

    def _place(self, order: instructions.CommitSink) -> None:
        try:
            self._commits.place((order,), self._commits.held[order.sink], self._recorded, lambda _: nullcontext())
        except UnrecordedError as error:
            raise error.cause from error.cause.__cause__
        self._commits.held[order.sink] = last_of(order.frontier)
        if order.sink not in self._commits.ledgers:
            self._remembered.append(SinkCommit(order.sink, last_of(order.frontier)))
        self.outstanding.append(events.SinkCommitted(order.sink, order.incarnation, order.frontier))

    def _recorded(self, record: SinkCommit) -> bool:
        """Write a record, after all that wait."""
        self._commit.submit([record], lambda _: None)
        while self._commit.waiting:
            self._write()
        return True

    def _live(self) -> set[str]:
        return names_of_runs(chain(self.machine.payloads())).union(*self._pinned.values())

    def _collect(self) -> None:
        """Drop files that nothing needs, and let their durable copies be deleted after the next manifest."""
        live = self._live()
        self._engine.discard(live)
        garbage = self._runs.garbage(live)

        def delete() -> None:
            self._log.truncate()
            self._runs.delete(garbage)

        self._log.move_out()
        self._commit.manifest(lambda error: self.outstanding.append(delete) if error is None else None)


def _act_in_words(todo: object) -> str:
    if isinstance(todo, partial):
        return str(todo.args[0])
    return "deletes garbage" if callable(todo) else str(todo)


def in_words(transition: Transition) -> str:
    """Return what a transition does, in one line."""
    changes = (f"{each.name} {each.change.name.lower()}" for each in transition.comparison.processors.values())
    parts = {
        "was": transition.was,
        "cut": {name: transition.cuts[name] for name in sorted(transition.cuts)},
        "fills": transition.fills,
        "empties": transition.empties,
        "sinks": {name: mode.value for name, mode in transition.sinks.items()},
        "undone": transition.undone,
        "emptied": transition.emptied,
        "tainted": transition.tainted,
    }
    if transition.from_copy:
        parts = {"from": "a copy", **parts}
    if transition.back is not None:
        parts = {"back to": transition.back or "the beginning", **parts}
    done = "; ".join(f"{what} {which}" for what, which in parts.items() if which)
    return f"transition {transition.id}: {', '.join(changes)}; {done}"
