"""The facts that become durable of a processor's steps, data in flight included; and the orders of steps.

Data in flight are the messages that a checkpoint keeps beside the state (FLIP-76; Falkirk Wheel §3.4: L(e, f)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
from math import inf
from typing import Any

from boatlift.recovery import Kind
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.instructions import Execute, Message, Prepare, StepInput
from boatlift.runtime.machine.kinds.endpoints import SinkProcessor, SourceProcessor
from boatlift.runtime.machine.kinds.ordered import ArrivalOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.runtime.machine.program import Durability, Program
from boatlift.storage.records.facts import Checkpoint, Determinant, Fact, LoggedInput, LoggedMessage, StepDigest
from boatlift.storage.records.live import LiveRecords
from boatlift.times import maximal_of

UNDER_WAY = 2
"""A reader that keeps pace may lag by so many more steps: one that it executes, and one checkpoint being written."""


def intervals_of(program: Program) -> dict[str, float]:
    """Return for each edge the steps by which the durable state of its readers may lag in steady running.

    They are the checkpoint intervals of the reader and of the processors downstream of it: a reader rolls back as far
    as its own readers need. A reader with durable messages does not. A stateless processor is transparent. A reader
    with checkpoints by the clock or by a function alone counts 0, so that it always lags. A state that never becomes
    durable (`Lazy(every=None)`) counts as infinite: the state, and the messages for it, are computed again from the
    start.
    """
    graph = program.graph
    behind: dict[str, float] = {}
    for name in reversed(graph.order):  # readers first; a feedback edge adds no lag
        durability = program.durability(name)
        sends_again = durability.keeps_messages or durability.with_state or durability.in_flight is True
        readers = (
            0.0
            if sends_again
            else max((behind.get(e.target, 0.0) for e in graph.outputs[name] if not program.logs(e)), default=0.0)
        )
        behind[name] = _interval(durability, graph.vertices[name].kind) + readers
    return {name: behind[edge.target] for name, edge in graph.edges.items()}


def _interval(durability: Durability, kind: Kind) -> float:
    if durability.state_every is not None:
        return durability.state_every + UNDER_WAY
    lost = kind is Kind.STATEFUL and not (durability.has_checkpoints or durability.keeps_inputs)
    return inf if lost else 0.0


def kept_in_flight(p: MachineProcessor, steps: int, durable: DurableFacts) -> Iterator[LoggedMessage]:
    """Return the messages that become durable with a checkpoint of a processor, beside the state.

    With `in_flight="behind"`, an edge's messages are kept if its reader may need more of them than there are steps
    between checkpoints, of the processor or of its readers. Else the reader keeps pace: after a failure, the processor
    rolls back to its previous checkpoint.

    Args:
        steps: The steps of the processor since its last checkpoint; 0 for a checkpoint in a replay, which keeps every
            message that a reader may need.
    """
    in_flight = p.durability.in_flight
    for edge in p.outputs if in_flight else ():
        if edge.name in p.logged:
            continue
        every = in_flight is True or not steps
        pace = 0 if every else max(steps, p.durability.state_every or 0, p.intervals[edge.name])
        yield from _kept_on(edge.name, p, pace, durable)


def _kept_on(edge: str, p: MachineProcessor, pace: float, durable: DurableFacts) -> Iterator[LoggedMessage]:
    """Return the messages of one edge to keep; none if its reader may need no more than `pace` messages."""
    sent, known = p.sent[edge], durable.records.sent.get(edge, {})
    if len(sent) + len(known) <= pace:
        return
    needless, mark = durable.needless(edge), p.kept.get(edge)
    asked = (time for time in known if not needless.contains(time))
    # In reverse: all up to the first that is needless or durable are new, however many wait.
    new = list(takewhile(lambda time: not (time in known or needless.contains(time)), reversed(sent)))
    if next(islice(chain(new, asked), int(pace), None), None) is None:
        return
    new = list(takewhile(lambda time: time != mark, new))  # the others are on their way
    if new:
        p.kept[edge] = new[0]
    yield from (LoggedMessage(edge, time, sent[time]) for time in reversed(new))


def facts_of(
    p: MachineProcessor,
    step: Step,
    determinant: Any,
    sent: Mapping[str, Any],
    result: StepDigest | None,
    durable: DurableFacts,
) -> Iterator[Fact]:
    """Return the facts of a step that a processor has just done, in the order in which they become durable.

    Args:
        determinant: Its recorded outcome.
        result: Its digest; None if results are not compared.
    """
    records, durability, late = durable.records, p.durability, list[Fact]()
    if p.vertex.chooses and step.key not in records.determinants.get(p.name, {}):
        fact = Determinant(p.name, step.key, step.taken, determinant)
        if durability.recorded or p.vertex.kind is Kind.SOURCE:
            yield fact
        elif p.vertex.coarse:
            late.append(fact)
        elif isinstance(p, ArrivalOrdered):
            p.unrecorded.append(fact)
    replayed = step.key in records.results.get(p.name, {})
    if result is not None and not replayed:
        if p.vertex.chooses and not durability.recorded:
            late.append(result)
        else:
            yield result
    for edge in p.outputs:
        if edge.name in p.logged and step.time not in records.sent.get(edge.name, {}):
            yield LoggedMessage(edge.name, step.time, sent.get(edge.name))
    yield from late  # these count once the messages are durable, which another execution would not repeat
    if durability.keeps_inputs and not p.stateless:
        messages = tuple((m.edge, m.time, m.payload) for m in step.inputs)
        yield LoggedInput(p.name, step.time, maximal_of(p.done), messages, determinant)
    p.replayed += replayed
    every = durability.state_every
    # A replay has a checkpoint after 1, 2, 4, 8, … steps. So a dataflow that is killed in each of its replays still
    # advances, however early it is killed; a whole replay has few more checkpoints.
    early = replayed and p.replayed & (p.replayed - 1) == 0
    due = early or (every is not None and p.unsaved.steps >= every)
    due = due or durability.is_due(p.name, step.key, p.unsaved.summary())
    if due and durability.has_checkpoints and p.vertex.kind is Kind.STATEFUL:
        yield from checkpoint_of(p, durable, early=early)


def facts_of_nothing(p: MachineProcessor, time: Any) -> Iterator[Fact]:
    """Return the facts of a time without a step: no determinant and no message.

    Without these facts the replay of later times would have a gap.
    """
    if p.vertex.chooses and p.durability.recorded and not p.vertex.divides:
        yield Determinant(p.name, time, None, None)
    yield from (LoggedMessage(edge.name, time, None) for edge in p.outputs if edge.name in p.logged)


def everything_of(p: MachineProcessor, durable: DurableFacts) -> Iterator[Fact]:
    """Return the facts, not durable yet, without which some failure would roll a processor back."""
    if isinstance(p, SourceProcessor | SinkProcessor):
        return
    yield from _messages_of(p, durable)
    if not p.stateless:
        yield from checkpoint_of(p, durable, with_messages=False)


def state_of(p: MachineProcessor, durable: DurableFacts) -> Iterator[Fact]:
    """Return the facts of a processor's state, if its policy has checkpoints, and of its messages not taken yet.

    So no step is executed again after a clean stop, unless the policy logs only inputs.
    """
    if isinstance(p, SourceProcessor | SinkProcessor):
        return
    kept = p.durability.has_checkpoints or p.durability.keeps_inputs
    for edge, receiver in p.receivers if p.stateless or kept else ():
        known = durable.records.sent.get(edge.name, {})
        for time, payload in p.sent[edge.name].items():
            if not (time in known or receiver.came_before(edge, time)):
                yield LoggedMessage(edge.name, time, payload)  # or None, for no message
    if not p.stateless and kept:
        yield from checkpoint_of(p, durable)


def checkpoint_of(
    p: MachineProcessor, durable: DurableFacts, *, with_messages: bool = True, early: bool = False
) -> Iterator[Fact]:
    """Return the facts that make a processor's present state durable, and its messages in flight.

    Args:
        early: Whether the policy asks for no checkpoint yet: then the processor must be able to resume from this one.
    """
    steps = 0 if early else p.unsaved.steps
    p.saved()
    unrecorded = p.vertex.chooses and not p.durability.recorded
    if (unrecorded or p.durability.with_state) and with_messages and not p.durability.keeps_messages:
        # Another execution would send other messages: without these, no message could be released to a sink before
        # the checkpoint is durable.
        yield from _messages_of(p, durable)
    elif with_messages and not p.durability.keeps_messages:
        yield from kept_in_flight(p, steps, durable)
    if isinstance(p, ArrivalOrdered):  # the order determines its messages
        yield from p.unrecorded
    p.unrecorded.clear()
    frontier = maximal_of(p.done)
    if not frontier or frontier in durable.records.states.get(p.name, {}):
        return
    if p.durability.keeps_inputs:  # a time without a message counts, too
        if frontier[-1] not in durable.records.taken.get(p.name, {}):
            yield LoggedInput(p.name, frontier[-1], frontier, (), None)
    else:
        yield Checkpoint(p.name, frontier, p.state)


def _messages_of(p: MachineProcessor, durable: DurableFacts) -> Iterator[Fact]:
    for edge, messages in p.sent.items():
        known = durable.records.sent.get(edge, {})
        for time, payload in messages.items():
            if time not in known:
                yield LoggedMessage(edge, time, payload)


def messages_known(p: MachineProcessor, step: Step, records: LiveRecords) -> dict[str, Any] | None:
    """Return the messages of a step of a stateless processor if they are durable; None if it must be executed."""
    if not p.stateless or not p.outputs:
        return None
    if any(step.time not in records.sent.get(edge.name, {}) for edge in p.outputs):
        return None
    known = {edge.name: records.sent[edge.name][step.time].message for edge in p.outputs}
    return {edge: message for edge, message in known.items() if message is not None}


AT_ONCE = 16  # the most steps of one `Execute`: this limits the duration of a stop, and the cost of a failure


class StepOrders:
    """Forms `Execute` and `Prepare` out of steps.

    Args:
        durable: The recorded determinants and messages.
        steps_per_job: Returns how many of a processor's next steps, from the first on, are better executed as one job:
            1 or more.
    """

    def __init__(self, durable: DurableFacts, steps_per_job: Callable[[str, Sequence[StepInput]], int]) -> None:
        self._durable, self._steps_per_job = durable, steps_per_job

    def determinants(self, p: MachineProcessor) -> Mapping[Any, Determinant]:
        """Return a processor's recorded determinants."""
        return self._durable.records.determinants.get(p.name, {})

    def known(self, p: MachineProcessor, step: Step) -> dict[str, Any] | None:
        """Return the messages of a step, as `messages_known` does."""
        return messages_known(p, step, self._durable.records)

    def execute(self, p: MachineProcessor, step: Step, upcoming: Iterator[Step]) -> Execute:
        """Order a step, with some of the steps after it if that is better."""
        prepared, p.prepared = p.prepared, ()
        steps = prepared if prepared and prepared[0] == step else self._run_of(p, chain([step], upcoming))
        p.running.extend(steps)
        return Execute(p.name, p.incarnation, self._inputs(p, steps), p.state)

    def prepare(self, p: MachineProcessor) -> Prepare | None:
        """Announce the steps after those under way; None if none is known."""
        upcoming = p.upcoming(self.determinants(p), hasten=False)
        p.prepared = self._run_of(p, islice(upcoming, len(p.running), None))
        return Prepare(p.name, p.incarnation, self._inputs(p, p.prepared)) if p.prepared else None

    def rebuild(self, p: MachineProcessor) -> Execute:
        """Order the next step that rebuilds a state from logged inputs."""
        logged = p.rebuild[0]
        time: Any = logged.time
        place = p.order.event(time) if isinstance(p, ArrivalOrdered) else None
        p.running.append(Step(logged.time, (), time if place is None else place))
        inputs = tuple(Message(*message) for message in logged.messages)
        step = StepInput(logged.time, inputs, logged.outcome, place)
        return Execute(p.name, p.incarnation, (step,), p.state, again=True)

    def _run_of(self, p: MachineProcessor, upcoming: Iterator[Step]) -> tuple[Step, ...]:
        """Return the first of some steps, with the steps that are better executed with it."""
        steps = tuple(islice(takewhile(lambda step: self.known(p, step) is None, upcoming), AT_ONCE))
        return steps[: self._steps_per_job(p.name, self._inputs(p, steps))] if len(steps) > 1 else steps

    def _inputs(self, p: MachineProcessor, steps: Iterable[Step]) -> tuple[StepInput, ...]:
        return tuple(self._input(p, step) for step in steps)

    def _input(self, p: MachineProcessor, step: Step) -> StepInput:
        determinants = self.determinants(p).get(step.key)
        place = step.key if isinstance(p, ArrivalOrdered) else None
        return StepInput(step.time, step.inputs, None if determinants is None else determinants.outcome, place)
