"""The state machine: events in, instructions out. No I/O, no clock, no randomness.

It drives any number of processors, each in its time domain and with its policy. There is no global barrier: a processor
advances as soon as its input is complete. A sink is handed a time once no failure can undo it (design, section 4,
question 3). Garbage is collected, and inputs are acknowledged. After a failure of some processors, only the processors
that must are rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from math import inf
from typing import Any

from boatlift.dataflow import Eager
from boatlift.errors import DivergedError, InternalError
from boatlift.recovery import Kind, Monitor
from boatlift.runtime.machine import events, instructions, steps
from boatlift.runtime.machine.build import build
from boatlift.runtime.machine.durable_facts import DurableFacts, ReleaseGate
from boatlift.runtime.machine.garbage import GarbageCollector
from boatlift.runtime.machine.invariants import check_invariants
from boatlift.runtime.machine.kinds.batch import BatchEpochs
from boatlift.runtime.machine.kinds.endpoints import SinkProcessor, SourceProcessor
from boatlift.runtime.machine.kinds.gathered import Gathered
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.runtime.machine.liveness import Liveness
from boatlift.runtime.machine.pressure import Backpressure
from boatlift.runtime.machine.program import Program
from boatlift.runtime.machine.progress import MachineProgress, TransitionLog
from boatlift.runtime.machine.recover import carry_out
from boatlift.runtime.machine.release import Releases
from boatlift.runtime.machine.soft_frames import SoftFrames, adopt
from boatlift.runtime.machine.steps import StepOrders
from boatlift.storage.records.facts import GarbageCollection, LoopEnd, StepDigest
from boatlift.storage.records.live import LiveRecords
from boatlift.storage.records.soft_checkpoints import SoftCheckpoint
from boatlift.times import AnyFrontier


class StateMachine:
    """Drives processors, from their durable facts on.

    Args:
        program: Graph and durabilities; this machine owns its arrival orders and epoch boundaries from now on.
        records: The durable facts; this machine owns them from now on.
        held: Sink to the times that it holds, once no earlier owner can change them any more.
        collect_after: The durable facts from one garbage collection to the next.
        messages_ahead: A source is not polled while so many messages wait behind it.
        checked: Check the invariants after every transition.
        steps_per_job: As `StepOrders`; must return at once.
        awaited: Return whether a client waits until its rows are stable; must return at once.
        bytes_ahead: A source is not polled while messages of so many bytes wait behind it, those of open epochs of
            batches included.
        clock_of: A payload to its clock in milliseconds, None if it has none; the machine looks into no payload itself.
        size_of: A payload to the bytes of its rows in scratch.
        carriers: The sinks that may carry facts which are being written.
        depths: Processor to the number of standbys that must hold its facts to make them count for sinks; a processor
            that is missing waits until its facts are durable.
        unawaited: The sinks, among those without a ledger, that may be handed what rests on facts which are being
            written: if these are lost, a receiver recognises the rows that come again, in whatever steps.

    Raises:
        DataError: `[NO_CONSISTENT_FRONTIER]` the sinks' content contradicts the durable facts.
    """

    def __init__(
        self,
        program: Program,
        records: LiveRecords,
        held: Mapping[str, AnyFrontier],
        *,
        collect_after: int,
        messages_ahead: int,
        checked: bool = False,
        steps_per_job: Callable[[str, Sequence[instructions.StepInput]], int] = lambda _processor, _takes: 1,
        awaited: Callable[[], bool] = lambda: False,
        bytes_ahead: float = inf,
        clock_of: Callable[[Any], int | None] = lambda _payload: None,
        size_of: Callable[[Any], int] = lambda _payload: 0,
        carriers: AbstractSet[str] = frozenset(),
        depths: Mapping[str, int] | None = None,
        unawaited: AbstractSet[str] = frozenset(),
    ) -> None:
        self.program, self.graph = program, program.graph
        self.transitions = TransitionLog()
        self.monitor = Monitor(program.graph, program.orders, checked=checked)
        self.processors = build(program, records, clock_of, size_of)
        self.sources = tuple(p for p in self.processors.values() if isinstance(p, SourceProcessor))
        self.sinks = tuple(p for p in self.processors.values() if isinstance(p, SinkProcessor))
        self.durable = DurableFacts(
            program.graph, self.monitor, records, self._new_monitor, rides=bool(carriers or unawaited), depths=depths
        )
        for sink, frontier in held.items():
            self.monitor.committed(sink, frontier)
        self.backpressure = Backpressure(self.processors, messages_ahead, bytes_ahead, size_of)
        self.finished = False
        gate = ReleaseGate(program.graph, self.processors, self.durable)
        self._releases = Releases(self.monitor, self.durable, gate, carriers, unawaited)
        self._steps = StepOrders(self.durable, steps_per_job)
        self._soft = SoftFrames(self.processors, self.durable)
        self._garbage = GarbageCollector(
            program, self.processors, self.monitor, self.durable, collect_after, self._soft
        )
        self._liveness = Liveness(
            self.processors, self.durable, self.backpressure, self._garbage, awaited, self.transitions
        )
        self._checked, self._clock_of, self._size_of = checked, clock_of, size_of
        self._stopping = self._stops_at_once = False
        self._points: list[events.PointRequested] = []
        self._position = {name: position for position, name in enumerate(program.graph.order)}
        self._moved: set[str] = set()
        self._touched: set[str] = set()
        self._failed: set[str] = set()
        self._outbox: list[instructions.Instruction] = []

    def start(self, memory: SoftCheckpoint | None = None) -> list[instructions.Instruction]:
        """Recover, and return the first instructions.

        Args:
            memory: Of the process that wrote the last durable facts, at the moment of these. Its processors have not
                failed; all others, sources and sinks among them, recover from the durable facts.
        """
        adopted = adopt(memory or SoftCheckpoint(), self.processors, self.durable, self.monitor)
        self._recover(self.processors.keys() - adopted)
        self._outbox += self._garbage.acknowledge_again()
        return self._next()

    def handle(self, event: events.Event) -> list[instructions.Instruction]:
        """Handle one event, and return the instructions that follow from it.

        Raises:
            DivergedError: `[DIVERGED]` a replayed step has another result.
            InternalError: the event does not fit the instructions, or an invariant is broken.
        """
        self.transitions.append(("event", event))
        match event:
            case events.EpochClosed():
                self._closed(event)
            case events.SourceIdle(source, incarnation, time, ended):
                end = self._current(source, incarnation)
                if isinstance(end, SourceProcessor) and time == end.polled:
                    end.rest(ended=ended)
            case events.SourceWoken(source):
                end = self.processors[source]
                assert isinstance(end, SourceProcessor)
                end.wake()
                self._moved.add(source)
            case events.TimerFired() | events.RowsProbed() | events.ProbeFailed():
                answered = self._current(event.processor, event.incarnation)
                if isinstance(answered, BatchEpochs):
                    answered.learn(event)
                    self._moved.add(answered.name)
                elif (
                    answered is not None
                    and isinstance(event, events.TimerFired)
                    and answered.becomes_due(event.deadline)
                ):
                    self.durable.add(answered.name, steps.checkpoint_of(answered, self.durable))
            case events.StepDone():
                self._executed(event)
            case events.Persisted(number):
                self.durable.persisted(number)
            case events.LogDurable(number):
                for fact in self.durable.durable(number):
                    self._garbage.count()
                    if isinstance(fact, GarbageCollection):
                        for monitor in (self.durable.written, self.durable.held):
                            if monitor is not None:
                                monitor.forget_as(self.monitor)
                        self._outbox += self._garbage.collected(fact)
                self._moved.update(sink.name for sink in self.sinks if sink.waits)
            case events.EntriesHeld(holders, number):
                self.durable.hold_entries(holders, number)
                self._moved.update(sink.name for sink in self.sinks if sink.waits)
            case events.SinkCommitted(sink, incarnation, frontier, stored):
                end = self._current(sink, incarnation)
                if isinstance(end, SinkProcessor) and end.placing == frontier:
                    self._hold(end, frontier, stored=stored)
            case events.CommitUnknown(sink, incarnation, frontier):
                end = self._current(sink, incarnation)
                if isinstance(end, SinkProcessor) and end.placing == frontier:
                    self._reopen(end)
            case events.SinkPosition(sink, incarnation, frontier, stored):
                end = self._current(sink, incarnation)
                if isinstance(end, SinkProcessor) and end.asked:
                    self._hold(end, frontier, stored=stored)
            case events.ProcessorsFailed(processors, narrow):
                for gathering in (self.processors[name] for name in narrow):
                    assert isinstance(gathering, Gathered)
                    gathering.narrow()
                self._fail(processors)
            case events.StopRequested(drain):
                self._stopping, self._stops_at_once = True, not drain
            case events.PointRequested():
                self._points.append(event)
        return self._next()

    def payloads(self) -> Iterator[Any]:
        """Return all payloads that any processor may need: their runs must not be deleted."""
        for p in self.processors.values():
            yield from p.payloads()
        yield from self.durable.payloads()

    @property
    def progress(self) -> MachineProgress:
        """A read-only view, for people."""
        return MachineProgress(self.processors, self.durable, self.backpressure)

    @property
    def _halting(self) -> bool:
        """Whether no further input is taken: the run stops, or pauses for a restore point."""
        return self._stopping or bool(self._points)

    def _current(self, name: str, incarnation: int) -> MachineProcessor | None:
        """Return the processor if an answer is for its present incarnation; else None: the answer is void."""
        processor = self.processors[name]
        if incarnation > processor.incarnation:
            raise InternalError(
                "INTERNAL", f"{name} has incarnation {processor.incarnation}, not {incarnation}; {self.transitions}"
            )
        return processor if incarnation == processor.incarnation else None

    def _closed(self, event: events.EpochClosed) -> None:
        end = self._current(event.source, event.incarnation)
        if isinstance(end, SourceProcessor) and event.time == end.polled:
            end.answered(gathers=event.gathers)
            self._close(end, event.positions)

    def _close(self, source: SourceProcessor, positions: Any) -> None:
        """Close the next epoch of a source, and record it; positions are None if the epoch has no input."""
        step = Step(source.following, (), source.following)
        self._send_epoch(source, step, positions)
        sent = dict.fromkeys(source.sent, positions)
        self.durable.add(source.name, steps.facts_of(source, step, positions, sent, None, self.durable))

    def _send_epoch(self, source: SourceProcessor, step: Step, positions: Any) -> None:
        self._did(source, step, dict.fromkeys(source.sent, positions), None)
        self._moved.update(partner.name for partner in source.partners)

    def _executed(self, event: events.StepDone) -> None:
        p = self._current(event.processor, event.incarnation)
        if p is None or not p.running or p.running[0].time != event.time:
            return
        step = p.running.popleft()
        if event.over:
            p.running.clear()
        recorded = self.durable.records.results.get(p.name, {}).get(step.key)
        if recorded is not None and event.digest is not None and recorded.digest != event.digest:
            raise DivergedError(
                "DIVERGED",
                f"{p.name} at time {step.time} gave digest {event.digest} on replay, but {recorded.digest} is "
                "recorded: something in it is not deterministic",
            )
        if p.rebuild:
            p.rebuild.popleft()
            p.state = event.state
            self._moved.add(p.name)
            self._soft.changed(p.name)
            return
        self._pass_over(p, p.over_before(step))
        clocks = (self._clock_of(message.payload) for message in step.inputs if message.payload is not None)
        grown = self._size_of(event.state) - self._size_of(p.state) if p.durability.asks_when else 0
        p.add_unsaved(clocks, event.rows, max(0, grown))
        self._did(p, step, event.sent, event.state)
        digest = None
        if event.digest is not None:
            digest = StepDigest(p.name, step.key, event.digest, event.rows, event.milliseconds)
        self.durable.add(p.name, steps.facts_of(p, step, event.determinant, event.sent, digest, self.durable))
        if p.vertex.kind is Kind.STATEFUL:
            p.hold_state()
            self.monitor.holds(p.name, [held.frontier for held in p.states])

    def _did(self, p: MachineProcessor, step: Step, sent: Mapping[str, Any], state: Any) -> None:
        """Record a step, and pass on its messages."""
        p.take(step)
        p.state = state
        self._send(p, step.time, sent)
        self._report_done(p)

    def _send(self, p: MachineProcessor, time: Any, sent: Mapping[str, Any]) -> None:
        """Pass on the messages of a time; an edge without one is left out."""
        for edge, receiver in p.receivers:
            payload = sent.get(edge.name)
            self.monitor.sent(edge.name, time)
            p.sent[edge.name][time] = payload
            self._soft.sent(p.name, edge.name, time, payload)
            receiver.put(edge, time, payload)

    def _report_done(self, p: MachineProcessor) -> None:
        if p.vertex.kind is not Kind.SINK:  # a sink reports the times that it holds
            self.monitor.completed(p.name, p.done)
        self._soft.changed(p.name)
        self._moved.add(p.name)
        self._moved.update(receiver.name for _, receiver in p.receivers)
        if isinstance(p.durability.policy, Eager):
            self._moved.update(sink.name for sink in self.sinks if sink.waits)

    def _hold(self, sink: SinkProcessor, frontier: AnyFrontier, *, stored: bool = True) -> None:
        sink.hold(frontier)
        self.durable.hold(sink.name, frontier, stored=stored)
        self._moved.update(end.name for end in self.sinks if end is sink or end.waits)

    def _reopen(self, sink: SinkProcessor) -> None:
        self._outbox.append(sink.reopen())

    def _fail(self, processors: AbstractSet[str]) -> None:
        """Begin a recovery, which waits until the position of every sink is known."""
        self._failed |= processors
        for p in self.processors.values():
            if p.name in processors:
                if p.running:
                    self._outbox.append(instructions.Cancel(p.name, p.incarnation))
                if isinstance(p, SinkProcessor) and p.asked:
                    self._reopen(p)
                else:
                    p.cancel_steps()
            if isinstance(p, SinkProcessor) and p.placing is not None and not p.asked:
                self._reopen(p)

    def _recover(self, failed: AbstractSet[str]) -> None:
        plan = self.monitor.plan(failed)
        self.transitions.append(("plan", plan.describe()))
        self.monitor.recovered(plan)
        self.durable.cut(plan)
        self._outbox += carry_out(plan, self.processors, self.durable.records)
        self.durable.begin_anew()
        self._soft.begin_anew()
        self._failed = set()
        self._moved = set(self.processors)

    def _next(self) -> list[instructions.Instruction]:
        """Advance all processors that can advance, and return the instructions of this transition."""
        if self._failed and not self.durable.carries and not any(sink.asked for sink in self.sinks):
            self._recover(frozenset(self._failed))
        if not self._failed and not self.finished:
            self._moved.update(source.name for source in self.sources if not source.busy)  # less may wait now
            self._advance_all(hasten=False)
            self._garbage.collect()
            while self._liveness.quiet and self._settle():
                if self._keep_point_or_finish():
                    break
        ordered, self._outbox = self._outbox, []
        write = self.durable.write(partial(self._soft.take, self._failed))
        if write is not None:
            ordered.insert(0, write)
        ordered += self.durable.persist()
        self.transitions.extend(("do", instruction) for instruction in ordered)
        if self._checked and not self._failed:
            check_invariants(self.processors, self.monitor, self._touched, self.transitions)
            self._touched.clear()
        return ordered

    def _settle(self) -> bool:
        def hasten() -> None:
            # After a replay was stopped, a sink may wait for steps that nothing but the replay gives.
            self._stops_at_once = self._stops_at_once and not any(sink.waits for sink in self.sinks)
            self._advance_all(hasten=True)

        return self._liveness.settle(hasten, stopping=self._stopping, pausing=bool(self._points))

    def _keep_point_or_finish(self) -> bool:
        """Keep the restore points that were requested; else finish. Return whether the run is over.

        There is no point while a sink waits, which it may for the input of a source that keeps no rows.
        """
        points, self._points = self._points, []
        if not any(sink.waits for sink in self.sinks):
            self._outbox += [instructions.KeepPoint(point.name, point.until) for point in points]
        if self._stopping or not points:
            self.finished = True
            self._outbox.append(instructions.Finish(tuple(self.durable.payloads())))
        else:
            self._moved = set(self.processors)
            self._advance_all(hasten=False)
        return self.finished

    def _advance_all(self, *, hasten: bool) -> None:
        if hasten:
            self._moved = set(self.processors)
        while self._moved:
            name = min(self._moved, key=self._position.__getitem__)
            self._moved.discard(name)
            self._touched.add(name)
            self._advance(self.processors[name], hasten=hasten)

    def _advance(self, p: MachineProcessor, *, hasten: bool) -> None:
        if isinstance(p, SourceProcessor):
            self._advance_source(p, hasten=hasten)
            return
        if p.rebuild and not p.running:
            self._outbox.append(self._steps.rebuild(p))
        while not (p.running or p.rebuild or (self._stops_at_once and p.stops_at_once)):
            over = hasten and not (self._halting or p.expects_probe) and self._liveness.gives_no_more(p)
            upcoming = p.upcoming(self._steps.determinants(p), hasten=over)
            step = next(upcoming, None)
            if step is None:
                self._pass_over(p, p.over())
                break
            self._pass_over(p, p.over_before(step))
            if isinstance(p, SinkProcessor):
                self._did(p, step, {}, None)
            elif (known := self._steps.known(p, step)) is not None:  # its messages are durable
                self._did(p, step, known, None)
            else:
                self._outbox.append(self._steps.execute(p, step, upcoming))
        if p.running and not p.prepared and not p.rebuild and (prepare := self._steps.prepare(p)) is not None:
            self._outbox.append(prepare)
        if isinstance(p, SinkProcessor):
            self._outbox += self._releases.orders(p)
        if isinstance(p, BatchEpochs) and not self._stops_at_once:
            self._outbox += p.questions()
        self._outbox += p.timer()

    def _advance_source(self, source: SourceProcessor, *, hasten: bool) -> None:
        """Send the recorded epochs of a source again, then poll it, as long as backpressure allows.

        A source without input catches up with its partners at once: an epoch without input fills no queue.
        """
        while (may_go_on := self._liveness.may_go_on(source, hasten=hasten)) or source.lags:
            step = next(source.upcoming(self._steps.determinants(source), hasten=hasten), None)
            if step is not None and may_go_on:
                self._send_epoch(source, step, self._steps.determinants(source)[step.key].outcome)
            elif step is None and source.lags and self._has_nothing(source):
                self._close(source, None)
            else:
                early = source.gathers and source.underway and not hasten
                waits = source.busy or source.idle or self._halting or early
                if step is None and may_go_on and not waits:
                    self._outbox.append(source.poll())
                return

    def _has_nothing(self, source: SourceProcessor) -> bool:
        """Return whether a source has no input for its next epoch by its last answer, or is not polled any more."""
        if self._halting:
            return not (source.busy or self._stops_at_once)
        return source.idle or (source.busy and source.resting)

    def _pass_over(self, p: MachineProcessor, over: AnyFrontier) -> None:
        """Record times that ended without a step: it is then known that they have no message."""
        if over <= p.done:
            return
        for last in p.iterations_ended(over):
            self.durable.add(p.name, [LoopEnd(p.name, last)])
            self.monitor.ended(p.name, last)
        for time in p.empty_times(over):
            self.durable.add(p.name, steps.facts_of_nothing(p, time))
            self._send(p, time, {})
        p.done = over
        self._report_done(p)

    def _new_monitor(self) -> Monitor:
        monitor = Monitor(self.graph, self.program.orders, checked=False)
        for sink in self.sinks:
            monitor.committed(sink.name, sink.held)
        return monitor
