"""The state machine: events in, instructions out. No I/O, no clock, no chance.

It drives any number of processors, each in its time domain and with its policy. There is no barrier: each goes on as soon as what it takes
is there; a sink is handed what no failure can take back any more (design, section 4, question 3); what is garbage is collected, inputs
are acknowledged; after a failure of some processors, those go back that must, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, islice, takewhile
from typing import Any

from boatlift.dataflow import Eager
from boatlift.errors import DivergedError, InternalError
from boatlift.recovery import Kind, Monitor
from boatlift.runtime.machine import events, instructions, keeping
from boatlift.runtime.machine.backpressure import Backpressure
from boatlift.runtime.machine.building import build
from boatlift.runtime.machine.durable import DurableFacts
from boatlift.runtime.machine.invariants import check
from boatlift.runtime.machine.kinds.arrival import ArrivalOrdered
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.ends import SinkEnd, SourceEnd
from boatlift.runtime.machine.kinds.processor import Processor, Step
from boatlift.runtime.machine.program import Program
from boatlift.runtime.machine.recover import carry_out
from boatlift.runtime.machine.release_gate import ReleaseGate
from boatlift.runtime.machine.transition_log import TransitionLog
from boatlift.storage.records.facts import Determinant, GarbageCollection, LoopEnd, StepDigest
from boatlift.storage.records.live import LiveRecords
from boatlift.times import AnyFrontier, frontier_of

__all__ = ["StateMachine"]

COLLECT_AFTER = 16
"""So many facts become durable before it is asked again what is garbage."""

AT_ONCE = 16
"""A run covers at the most so many times: bounds how long a stop waits, and what a failure costs."""

MESSAGES_AHEAD = 32
"""So many messages may wait behind a source before it is asked for more."""


class StateMachine:
    """Drives processors from what is durable of them.

    Args:
        program: What is driven; the records of choices in it are this machine's from now on.
        standing: The facts that are durable; this machine's from now on.
        held: Sink to what the outside holds, once no earlier owner can change it any more.
        checked: Check the invariants after every transition.
        together: How many of the times that a processor could take are better executed as one run: 1 or more; at once.
        awaited: Whether somebody waits until what sources gave is stable: that is looked after whenever nothing moves; at once.
        collect_after, messages_ahead: As the constants.

    Raises:
        DataError: `[NO_CONSISTENT_FRONTIER]` what the sinks hold cannot come from what is durable.
    """

    def __init__(
        self,
        program: Program,
        standing: LiveRecords,
        held: Mapping[str, AnyFrontier],
        *,
        checked: bool = False,
        together: Callable[[str, Sequence[instructions.StepInput]], int] = lambda _processor, _takes: 1,
        awaited: Callable[[], bool] = lambda: False,
        collect_after: int = COLLECT_AFTER,
        messages_ahead: int = MESSAGES_AHEAD,
    ) -> None:
        self.program, self.graph = program, program.graph
        self.transitions = TransitionLog()
        self.monitor = Monitor(program.graph, program.orders, checked=checked)
        self.processors = build(program, standing)
        self.sources = tuple(p for p in self.processors.values() if isinstance(p, SourceEnd))
        self.sinks = tuple(p for p in self.processors.values() if isinstance(p, SinkEnd))
        self.durable = DurableFacts(program.graph, self.monitor, standing)
        self._leave = ReleaseGate(program.graph, self.processors, self.durable)
        for sink, frontier in held.items():
            self.monitor.committed(sink, frontier)
        self.finished = False
        self._stopping = self._at_once = False
        self._checked, self._together, self._awaited = checked, together, awaited
        self._collect_after = collect_after
        self.backpressure = Backpressure(self.processors, messages_ahead)
        self._durable_since = 0
        self._garbage = standing.collected
        self._place_of = {name: place for place, name in enumerate(program.graph.order)}
        self._moved: set[str] = set()
        self._touched: set[str] = set()
        self._failed: set[str] = set()
        self._given: list[instructions.Instruction] = []

    def start(self) -> list[instructions.Instruction]:
        """Recovers from what is durable, and gives the first instructions."""
        self._recover(self.processors.keys())
        self._acknowledge(self._garbage)  # again: who was told before may not have heard
        return self._next()

    def handle(self, event: events.Event) -> list[instructions.Instruction]:
        """Takes one event in and gives what is to be done now.

        Raises:
            DivergedError: `[DIVERGED]` a time that was executed before gave something else.
            InternalError: the event does not fit what was instructed, or an invariant is broken.
        """
        self.transitions.tell("event", event)
        match event:
            case events.EpochClosed():
                self._closed(event)
            case events.SourceIdle(source, incarnation, time, ended):
                end = self._living(source, incarnation)
                if isinstance(end, SourceEnd) and end.closing and time == end.following:
                    end.rest(ended=ended)
            case events.SourceWoken(source):
                end = self.processors[source]
                assert isinstance(end, SourceEnd)
                end.wake()
                self._moved.add(source)
            case events.TimerFired(processor, incarnation) | events.RowsProbed(processor, incarnation):
                if isinstance(batch := self._living(processor, incarnation), BatchEpochs):
                    batch.learn(event)
                    self._moved.add(processor)
            case events.StepDone():
                self._ran(event)
            case events.Persisted(number):
                self.durable.kept(number)
            case events.LogDurable(number):
                self._became_durable(number)
            case events.SinkCommitted(sink, incarnation, frontier):
                end = self._living(sink, incarnation)
                if isinstance(end, SinkEnd) and end.placing == frontier:
                    self._hold(end, frontier)
            case events.CommitUnknown(sink, incarnation, frontier):
                end = self._living(sink, incarnation)
                if isinstance(end, SinkEnd) and end.placing == frontier:
                    self._ask(end)
            case events.SinkPosition(sink, incarnation, frontier):
                end = self._living(sink, incarnation)
                if isinstance(end, SinkEnd) and end.asked:
                    self._hold(end, frontier)
            case events.ProcessorsFailed(processors):
                self._fail(processors)
            case events.StopRequested(drain):
                self._stopping, self._at_once = True, not drain
        return self._next()

    def contents(self) -> Iterator[Any]:
        """Gives all states and messages that something may still ask for: what they name must not be dropped."""
        for p in self.processors.values():
            yield from p.contents()
        yield from self.durable.contents()

    # -- what an event means ------------------------------------------------------------------------------------------

    def _living(self, name: str, incarnation: int) -> Processor | None:
        """Gives the processor if an answer is to its present incarnation; else it is void."""
        processor = self.processors[name]
        if incarnation > processor.incarnation:
            raise InternalError(
                "INTERNAL", f"{name} has incarnation {processor.incarnation}, not {incarnation}; {self.transitions}"
            )
        return processor if incarnation == processor.incarnation else None

    def _closed(self, event: events.EpochClosed) -> None:
        end = self._living(event.source, event.incarnation)
        if not isinstance(end, SourceEnd) or not end.closing or event.time != end.following:
            return
        step = Step(event.time, (), event.time)
        end.positions, end.gathers = event.positions, event.gathers
        self._did(end, step, dict.fromkeys(end.sent, end.positions), None)
        self.durable.add(end.name, keeping.facts_of(end, step, end.positions, {}, None, self.durable))

    def _ran(self, event: events.StepDone) -> None:
        p = self._living(event.processor, event.incarnation)
        if p is None or not p.running or p.running[0].time != event.time:
            return
        step = p.running.popleft()
        if event.over:
            p.running.clear()
        self._compare(p, step, event)
        if p.rebuild:
            p.rebuild.popleft()
            p.state = event.state
            self._moved.add(p.name)
            return
        self._pass_over_before(p, step)
        self._did(p, step, event.sent, event.state)
        result = None
        if event.digest is not None:
            result = StepDigest(p.name, step.key, event.digest, event.rows, event.milliseconds)
        self.durable.add(p.name, keeping.facts_of(p, step, event.outcome, event.sent, result, self.durable))
        if p.vertex.kind is Kind.STATEFUL:
            p.hold_state()
            self.monitor.holds(p.name, [held.frontier for held in p.states])

    def _compare(self, p: Processor, step: Step, event: events.StepDone) -> None:
        recorded = self.durable.live_records.results.get(p.name, {}).get(step.key)
        if recorded is not None and event.digest is not None and recorded.digest != event.digest:
            raise DivergedError(
                "DIVERGED",
                f"{p.name} at time {step.time} gave digest {event.digest} on replay, but {recorded.digest} is recorded: something in "
                f"it is not deterministic",
            )

    def _did(self, p: Processor, step: Step, sent: Mapping[str, Any], state: Any) -> None:
        """Notes a step, and passes on what it sent."""
        p.take(step)
        p.state = state
        for edge, receiver in p.receivers:
            content = sent.get(edge.name)
            self.monitor.sent(edge.name, step.time)
            p.sent[edge.name][step.time] = content
            receiver.put(edge, step.time, content)
        self._done(p)

    def _done(self, p: Processor) -> None:
        if p.vertex.kind is not Kind.SINK:  # of a sink only what has left is done
            self.monitor.completed(p.name, p.done)
        self._moved.add(p.name)
        self._moved.update(receiver.name for _, receiver in p.receivers)
        if isinstance(p.durability.policy, Eager):
            self._moved.update(sink.name for sink in self.sinks if sink.waits)

    def _became_durable(self, number: int) -> None:
        for fact in self.durable.durable(number):
            self._durable_since += 1
            if isinstance(fact, GarbageCollection):
                self._collected(fact)
        self._moved.update(sink.name for sink in self.sinks if sink.waits)

    def _hold(self, sink: SinkEnd, frontier: AnyFrontier) -> None:
        sink.hold(frontier)
        self.monitor.committed(sink.name, frontier)
        self._moved.update(end.name for end in self.sinks)

    def _ask(self, sink: SinkEnd) -> None:
        sink.call_off()
        sink.asked = True
        self._given.append(instructions.ReopenSink(sink.name, sink.incarnation))

    def _fail(self, processors: AbstractSet[str]) -> None:
        """Recovers at once, unless it is not known what a sink holds."""
        self._failed |= processors
        for p in self.processors.values():
            if p.name in processors:
                self._call_off(p)
            if isinstance(p, SinkEnd) and p.placing is not None and not p.asked:
                self._ask(p)

    def _call_off(self, p: Processor) -> None:
        if p.running:
            self._given.append(instructions.Cancel(p.name, p.incarnation))
        asked = isinstance(p, SinkEnd) and p.asked
        p.call_off()
        if asked:
            assert isinstance(p, SinkEnd)
            self._ask(p)

    def _recover(self, failed: AbstractSet[str]) -> None:
        plan = self.monitor.plan(failed)
        self.transitions.tell("plan", plan.describe())
        self.monitor.recovered(plan)
        self.durable.cut(plan)
        self._given += carry_out(plan, self.processors, self.durable.live_records)
        self._failed = set()
        self._moved = set(self.processors)

    # -- what can be done now -----------------------------------------------------------------------------------------

    def _next(self) -> list[instructions.Instruction]:
        if self._failed and not any(sink.asked for sink in self.sinks):
            self._recover(frozenset(self._failed))
        if not self._failed and not self.finished:
            self._moved.update(source.name for source in self.sources if not source.closing)  # less may wait now
            self._advance_all(hasten=False)
            self._collect()
            if self._quiet():
                self._hasten()
        given, self._given = self._given, []
        write = self.durable.write()
        if write is not None:
            given.insert(0, write)
        given += self.durable.keep()
        for instruction in given:
            self.transitions.tell("do", instruction)
        if self._checked and not self._failed:
            check(self, self._touched)
            self._touched.clear()
        return given

    def _advance_all(self, *, hasten: bool) -> None:
        while self._moved:
            name = min(self._moved, key=self._place_of.__getitem__)
            self._moved.discard(name)
            self._touched.add(name)
            self._advance(self.processors[name], hasten=hasten)

    def _advance(self, p: Processor, *, hasten: bool) -> None:
        if isinstance(p, SourceEnd):
            self._advance_source(p, hasten=hasten)
            return
        if p.rebuild and not p.running:
            self._rebuild(p)
        while not (p.running or p.rebuild or (self._at_once and p.stops_at_once)):
            over = hasten and not (self._stopping or p.expects) and self._gives_no_more(p)
            upcoming = p.upcoming(self._chosen(p), hasten=over)
            step = next(upcoming, None)
            if step is None:
                self._pass_over(p, p.over())
                break
            self._pass_over_before(p, step)
            self._begin(p, step, upcoming)
        if p.running and not p.prepared and not p.rebuild:
            self._prepare(p)
        if isinstance(p, SinkEnd):
            self._place(p)

    def _advance_source(self, source: SourceEnd, *, hasten: bool) -> None:
        """Sends again what it closed before, then asks it for more, as long as not too much waits behind it."""
        while self._may_go_on(source, hasten=hasten):
            step = next(source.upcoming(self._chosen(source), hasten=hasten), None)
            if step is None:
                early = source.gathers and source.underway and not hasten
                if not (source.closing or source.idle or self._stopping or early):
                    source.closing = True
                    self._given.append(
                        instructions.PollSource(source.name, source.incarnation, source.following, source.positions)
                    )
                return
            source.positions = self._chosen(source)[step.key].outcome
            self._did(source, step, dict.fromkeys(source.sent, source.positions), None)

    def _chosen(self, p: Processor) -> Mapping[Any, Determinant]:
        return self.durable.live_records.chosen.get(p.name, {})

    def _begin(self, p: Processor, step: Step, upcoming: Iterator[Step]) -> None:
        """Executes a step, unless what it gives is known; and some that come after it with it, if that is better."""
        if isinstance(p, SinkEnd):
            self._did(p, step, {}, None)
        elif (known := self._known(p, step)) is not None:
            self._did(p, step, known, None)
        else:
            prepared, p.prepared = p.prepared, ()
            steps = prepared if prepared and prepared[0] == step else self._order(p, chain([step], upcoming))
            p.running.extend(steps)
            self._given.append(instructions.Execute(p.name, p.incarnation, self._takes(p, steps), p.state))

    def _prepare(self, p: Processor) -> None:
        """Tells what comes after what is under way, if that is known."""
        upcoming = p.upcoming(self._chosen(p), hasten=False)
        p.prepared = self._order(p, islice(upcoming, len(p.running), None))
        if p.prepared:
            self._given.append(instructions.Prepare(p.name, p.incarnation, self._takes(p, p.prepared)))

    def _order(self, p: Processor, upcoming: Iterator[Step]) -> tuple[Step, ...]:
        """Gives the first of some steps, and those that are better executed with it."""
        steps = tuple(islice(takewhile(lambda step: self._known(p, step) is None, upcoming), AT_ONCE))
        return steps[: self._together(p.name, self._takes(p, steps))] if len(steps) > 1 else steps

    def _takes(self, p: Processor, steps: Iterable[Step]) -> tuple[instructions.StepInput, ...]:
        return tuple(self._take(p, step) for step in steps)

    def _known(self, p: Processor, step: Step) -> dict[str, Any] | None:
        return keeping.messages_known(p, step, self.durable.live_records)

    def _take(self, p: Processor, step: Step) -> instructions.StepInput:
        chosen = self._chosen(p).get(step.key)
        event = step.key if isinstance(p, ArrivalOrdered) else None
        return instructions.StepInput(step.time, step.inputs, None if chosen is None else chosen.outcome, event)

    def _rebuild(self, p: Processor) -> None:
        taken = p.rebuild[0]
        time: Any = taken.time
        key = p.order.event(time) if isinstance(p, ArrivalOrdered) else time
        p.running.append(Step(taken.time, (), key))
        messages = tuple(instructions.Message(*message) for message in taken.messages)
        take = instructions.StepInput(
            taken.time, messages, taken.outcome, key if isinstance(p, ArrivalOrdered) else None
        )
        self._given.append(instructions.Execute(p.name, p.incarnation, (take,), p.state, again=True))

    def _pass_over_before(self, p: Processor, step: Step) -> None:
        domain = p.vertex.domain
        self._pass_over(p, p.done | frontier_of(domain, domain.below(step.time)))

    def _pass_over(self, p: Processor, over: AnyFrontier) -> None:
        """Notes times that are over with nothing to do: that nothing was sent is known of them, as a message would be."""
        if over <= p.done:
            return
        for last in p.rounds_ended(over):
            self.durable.add(p.name, [LoopEnd(p.name, last)])
            self.monitor.ended(p.name, last)
        for time in p.empty_times(over):
            self.durable.add(p.name, keeping.facts_of_nothing(p, time))
            for edge, receiver in p.receivers:
                self.monitor.sent(edge.name, time)
                p.sent[edge.name][time] = None
                receiver.put(edge, time, None)
        p.done = over
        self._done(p)

    def _may_go_on(self, source: SourceEnd, *, hasten: bool) -> bool:
        """Whether not too much waits behind a source; when nothing else moves, also if something waits for it."""
        return not self.backpressure.crowded(source.name) or (hasten and source.name in self.backpressure.wanted())

    def _source(self, name: str) -> SourceEnd:
        source = self.processors[name]
        assert isinstance(source, SourceEnd)
        return source

    def _place(self, sink: SinkEnd) -> None:
        if sink.busy or not sink.waits:
            return
        limit = self._leave.limit(sink.name)
        prefixes = [prefix for prefix in sink.prefixes() if limit is None or prefix <= limit]
        at_once = self.monitor.releasable(sink.name, prefixes) if prefixes else None
        frontier = None if at_once is None else self.monitor.one_epoch_at_a_time(sink.name, at_once)
        if frontier is not None:
            sink.placing = frontier
            steps = tuple((t, came) for t, came in sink.staged.items() if frontier.contains(t))
            self._given.append(instructions.CommitSink(sink.name, sink.incarnation, frontier, steps))

    def _collect(self) -> None:
        if self._durable_since >= self._collect_after:
            self._durable_since = 0
            garbage = keeping.garbage(self.processors, self.monitor)
            if garbage != self._garbage:
                self._garbage = garbage
                self.durable.add("", [garbage])

    def _collected(self, garbage: GarbageCollection) -> None:
        """What is garbage is durably known to be: now it can go."""
        self._given.append(instructions.CollectGarbage())
        self.program.forget(garbage)
        self._acknowledge(garbage)

    def _acknowledge(self, garbage: GarbageCollection) -> None:
        for source in self.sources:
            frontier = frontier_of(source.vertex.domain, garbage.choices.get(source.name, ()))
            if not frontier <= source.acknowledged:
                source.acknowledged = frontier
                self._given.append(instructions.Acknowledge(source.name, frontier))

    # -- when nothing is under way ------------------------------------------------------------------------------------

    def _quiet(self) -> bool:
        """Whether nothing is under way that an event would end."""
        return self.durable.idle and not any(p.busy for p in self.processors.values())

    def _hasten(self) -> None:
        """Nothing moves by itself.

        Then what blocks sinks is made durable; batches take what there is, if nothing more will ever come; or else sources go on beyond what may
        wait; and if there is nothing of that to do, all is done.
        """
        if any(sink.waits for sink in self.sinks):
            for p in self.processors.values():
                self.durable.add(p.name, keeping.everything_of(p, self.durable))
        if self.durable.idle:
            self._moved = set(self.processors)
            self._advance_all(hasten=True)
        if self._quiet():
            self._rest()

    def _gives_no_more(self, p: Processor) -> bool:
        """Whether nothing will come to a processor that is not on its way, as sources stand."""
        return self._exhausted() or all(self._source(source).ended for source in self.backpressure.above(p.name))

    def _exhausted(self) -> bool:
        """Whether no source will give more: it has ended, or what it gave waits for one that has."""
        others = [source.name for source in self.sources if not source.ended]
        wanted = self.backpressure.wanted() if others else set()
        return len(others) < len(self.sources) and all(
            self.backpressure.crowded(name) and name not in wanted for name in others
        )

    def _rest(self) -> None:
        """Waits for sources; if they have ended, or a stop was asked for, makes everything durable, collects, and finishes.

        If somebody waits until what they gave is stable it does all of that but the last.
        """
        stuck = [sink.name for sink in self.sinks if sink.waits]
        if stuck or not (self._stopping or any(source.idle for source in self.sources)):
            raise InternalError(
                "INTERNAL", f"nothing can be done, though {stuck or 'sources'} wait; {self.transitions}"
            )
        over = self._stopping or (self._exhausted() and not any(p.expects for p in self.processors.values()))
        if not (over or self._awaited()):
            return
        for p in self.processors.values():
            self.durable.add(p.name, keeping.state_of(p, self.durable))
            if over:
                p.states.clear()  # nobody goes back any more
        if self.durable.idle:
            self._durable_since = self._collect_after
            self._collect()
        if over and self.durable.idle:
            self.finished = True
            self._given.append(instructions.Finish())
