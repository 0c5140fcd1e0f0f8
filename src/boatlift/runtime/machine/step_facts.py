"""The facts that a processor's durability makes out of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from boatlift.recovery import Kind
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.in_flight import kept_in_flight
from boatlift.runtime.machine.kinds.arrival import ArrivalOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.runtime.machine.kinds.sink import SinkProcessor
from boatlift.runtime.machine.kinds.source import SourceProcessor
from boatlift.storage.records.facts import Checkpoint, Determinant, Fact, LoggedInput, LoggedMessage, StepDigest
from boatlift.storage.records.live import LiveRecords
from boatlift.times import maximal_of

__all__ = ["checkpoint_of", "everything_of", "facts_of", "facts_of_nothing", "messages_known", "state_of"]


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
        determinant: The outcome of its choice.
        sent: Output edge to payload.
        result: Its digest; None if results are not compared.
        durable: The facts that are durable already.
    """
    records, durability, late = durable.records, p.durability, list[Fact]()
    if p.vertex.chooses and step.key not in records.determinants.get(p.name, {}):
        choice = Determinant(p.name, step.key, step.taken, determinant)
        if durability.recorded or p.vertex.kind is Kind.SOURCE:
            yield choice
        elif p.vertex.coarse:
            late.append(choice)
        elif isinstance(p, ArrivalOrdered):
            p.unrecorded.append(choice)
    replayed = step.key in records.results.get(p.name, {})
    if result is not None and not replayed:
        if p.vertex.chooses and not durability.recorded:
            late.append(result)
        else:
            yield result
    for edge in p.outputs:
        if edge.name in p.logged and step.time not in records.sent.get(edge.name, {}):
            yield LoggedMessage(edge.name, step.time, sent.get(edge.name))
    yield from late  # these count once the messages do, which another execution would not repeat
    if durability.keeps_inputs and not p.stateless:
        messages = tuple((m.edge, m.time, m.payload) for m in step.inputs)
        yield LoggedInput(p.name, step.time, maximal_of(p.done), messages, determinant)
    p.unsaved += 1
    p.replayed += replayed
    every = durability.state_every
    early = replayed and _advances(p.replayed)
    due = early or (every is not None and p.unsaved >= every)
    if due and durability.has_checkpoints and p.vertex.kind is Kind.STATEFUL:
        yield from checkpoint_of(p, durable, early=early)


def _advances(replayed: int) -> bool:
    """Return whether a replay makes its state durable after so many steps: after 1, 2, 4, 8, … of them.

    So a dataflow that is killed in each of its replays still advances, however early it is killed. A whole replay costs
    few checkpoints more.
    """
    return replayed & (replayed - 1) == 0


def facts_of_nothing(p: MachineProcessor, time: Any) -> Iterator[Fact]:
    """Return the facts of a time that is over with nothing to do.

    That nothing was chosen, and nothing sent, is recorded like a choice and a message: without these facts the replay
    of later times would have a gap.
    """
    if p.vertex.chooses and p.durability.recorded and not p.vertex.divides:
        yield Determinant(p.name, time, None, None)
    yield from (LoggedMessage(edge.name, time, None) for edge in p.outputs if edge.name in p.logged)


def everything_of(p: MachineProcessor, durable: DurableFacts) -> Iterator[Fact]:
    """Return the facts that keep a processor from ever going back, whatever fails, as far as they are not durable."""
    if isinstance(p, SourceProcessor | SinkProcessor):
        return
    yield from _messages_of(p, durable)
    if not p.stateless:
        yield from checkpoint_of(p, durable, with_messages=False)


def state_of(p: MachineProcessor, durable: DurableFacts) -> Iterator[Fact]:
    """Return the facts of a processor's state, if its policy has checkpoints, and of messages not taken yet.

    So no step is executed again after a clean stop, unless the policy logs no more than inputs.
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
    """Return the facts that make a processor's present state durable, and messages that belong to it.

    Args:
        p: The processor.
        durable: The facts that are durable already.
        with_messages: Whether messages are among them.
        early: Whether the policy asks for no checkpoint yet: then the processor must be able to go on from this one.
    """
    steps, p.unsaved, p.unsaved_since = 0 if early else p.unsaved, 0, None
    unrecorded = p.vertex.chooses and not p.durability.recorded
    if (unrecorded or p.durability.with_state) and with_messages and not p.durability.keeps_messages:
        # Another execution would send other messages: without these, no message could leave to a sink before the
        # checkpoint is durable.
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
    """Return the messages of a step, if they are durable and the processor keeps no state.

    The result is None if the step must be executed.
    """
    if not p.stateless or not p.outputs:
        return None
    if any(step.time not in records.sent.get(edge.name, {}) for edge in p.outputs):
        return None
    known = {edge.name: records.sent[edge.name][step.time].message for edge in p.outputs}
    return {edge: message for edge, message in known.items() if message is not None}
