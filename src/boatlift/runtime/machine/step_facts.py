"""The facts that become durable of a processor's steps, data in flight included.

Data in flight are the messages that a checkpoint keeps beside the state (FLIP-76; Falkirk Wheel §3.4: L(e, f)).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice, takewhile
from math import inf
from typing import Any

from boatlift.recovery import Kind
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.kinds.endpoints import SinkProcessor, SourceProcessor
from boatlift.runtime.machine.kinds.ordered import ArrivalOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.runtime.machine.program import Durability, Program
from boatlift.storage.records.facts import (
    Checkpoint,
    Determinant,
    Fact,
    LoggedInput,
    LoggedMessage,
    StepDigest,
)
from boatlift.storage.records.live import LiveRecords
from boatlift.times import maximal_of

UNDER_WAY = 2
"""A reader that keeps pace may lag by so many more steps: one that it executes, and one checkpoint being written."""


def intervals_of(program: Program) -> dict[str, float]:
    """Return for each edge the steps by which the durable state of its readers may lag in steady running.

    They are the checkpoint intervals of the reader and of the processors downstream of it: a reader rolls back as far
    as its own readers need. A reader with durable messages does not. A stateless processor is transparent. A reader
    with checkpoints by the clock alone counts 0, so that it always lags. A state that never becomes durable
    (`Lazy(every=None)`) counts as infinite: the state, and the messages for it, are computed again from the start.
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
        p: The processor; its checkpoint is of all that it has done.
        steps: The steps of the processor since its last checkpoint; 0 for a checkpoint in a replay, which keeps every
            message that a reader may need.
        durable: The facts that are durable already.
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
        p: The processor, after the step.
        step: The step.
        determinant: Its recorded outcome.
        sent: Output edge to payload.
        result: Its digest; None if results are not compared.
        durable: The facts that are durable already.
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
    p.unsaved += 1
    p.replayed += replayed
    every = durability.state_every
    # A replay has a checkpoint after 1, 2, 4, 8, … steps. So a dataflow that is killed in each of its replays still
    # advances, however early it is killed; a whole replay has few more checkpoints.
    early = replayed and p.replayed & (p.replayed - 1) == 0
    due = early or (every is not None and p.unsaved >= every)
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
        p: The processor.
        durable: The facts that are durable already.
        with_messages: Whether to return messages.
        early: Whether the policy asks for no checkpoint yet: then the processor must be able to resume from this one.
    """
    steps, p.unsaved, p.unsaved_since = 0 if early else p.unsaved, 0, None
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
