"""What a processor's regime makes durable of a step; what nobody needs any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from boatlift.recovery import Kind
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.kinds.arrival import ArrivalOrdered
from boatlift.runtime.machine.kinds.processor import Processor, Step
from boatlift.runtime.machine.kinds.sink import SinkEnd
from boatlift.runtime.machine.kinds.source import SourceEnd
from boatlift.storage.records.facts import (
    Checkpoint,
    Determinant,
    Fact,
    LoggedInput,
    LoggedMessage,
    StepDigest,
    maximal_of,
)
from boatlift.storage.records.live import LiveRecords

__all__ = ["everything_of", "facts_of", "facts_of_nothing", "messages_known", "state_of"]


def facts_of(
    p: Processor, step: Step, outcome: Any, sent: Mapping[str, Any], result: StepDigest | None, durable: DurableFacts
) -> Iterator[Fact]:
    """Gives what is to become durable of a step that a processor has just done, in the order in which it is to."""
    records, durability, late = durable.records, p.durability, list[Fact]()
    if p.vertex.chooses and step.key not in records.chosen.get(p.name, {}):
        choice = Determinant(p.name, step.key, step.taken, outcome)
        if durability.recorded or p.vertex.kind is Kind.SOURCE:
            yield choice
        elif p.vertex.coarse:
            late.append(choice)
        elif isinstance(p, ArrivalOrdered):
            p.unrecorded.append(choice)
    if result is not None and step.key not in records.results.get(p.name, {}):
        if p.vertex.chooses and not durability.recorded:
            late.append(result)
        else:
            yield result
    if durability.keeps_messages:
        for edge in p.outputs:
            if step.time not in records.sent.get(edge.name, {}):
                yield LoggedMessage(edge.name, step.time, sent.get(edge.name))
    yield from late  # they count once what it sent does, which another execution would not repeat
    if durability.keeps_inputs and not p.stateless:
        messages = tuple((m.edge, m.time, m.payload) for m in step.inputs)
        yield LoggedInput(p.name, step.time, maximal_of(p.done), messages, outcome)
    p.unsaved += 1
    if durability.state_every is not None and p.unsaved >= durability.state_every and p.vertex.kind is Kind.STATEFUL:
        yield from _state_of(p, durable)


def facts_of_nothing(p: Processor, time: Any) -> Iterator[Fact]:
    """Gives what is to become durable of a time that is over with nothing to do.

    That nothing was chosen, and nothing sent, is known like a choice and a message: without it what comes later could not be repeated
    without a gap.
    """
    if p.vertex.chooses and p.durability.recorded and not p.vertex.divides:
        yield Determinant(p.name, time, None, None)
    if p.durability.keeps_messages:
        yield from (LoggedMessage(edge.name, time, None) for edge in p.outputs)


def everything_of(p: Processor, durable: DurableFacts) -> Iterator[Fact]:
    """Gives what is not durable of a processor, but has to be if it is never to go back, whatever fails."""
    if isinstance(p, SourceEnd | SinkEnd):
        return
    yield from _messages_of(p, durable)
    if not p.stateless:
        yield from _state_of(p, durable, with_messages=False)


def state_of(p: Processor, durable: DurableFacts) -> Iterator[Fact]:
    """Gives what is not durable of a processor's state, if its policy ever makes that durable, or of what it sent and nobody has taken.

    So after a stop in good order nothing is executed again, unless its policy is to log no more than inputs.
    """
    if isinstance(p, SourceEnd | SinkEnd):
        return
    kept = p.durability.state_every is not None or p.durability.keeps_inputs
    for edge, receiver in p.receivers if p.stateless or kept else ():
        known = durable.records.sent.get(edge.name, {})
        for time, payload in p.sent[edge.name].items():
            if not (time in known or receiver.came_before(edge, time)):
                yield LoggedMessage(edge.name, time, payload)  # or None: that nothing was sent is as good
    if not p.stateless and kept:
        yield from _state_of(p, durable)


def _state_of(p: Processor, durable: DurableFacts, *, with_messages: bool = True) -> Iterator[Fact]:
    p.unsaved = 0
    forgets = p.vertex.chooses and not p.durability.recorded
    if (forgets or p.durability.with_state) and with_messages and not p.durability.keeps_messages:
        # In another execution these would be others: without them a sink could not be given any before all have the state's.
        yield from _messages_of(p, durable)
    if isinstance(p, ArrivalOrdered):  # what it sent is known by the order
        yield from p.unrecorded
    p.unrecorded.clear()
    frontier = maximal_of(p.done)
    if not frontier or frontier in durable.records.states.get(p.name, {}):
        return
    if p.durability.keeps_inputs:  # that nothing came since is as good as what came
        if frontier[-1] not in durable.records.taken.get(p.name, {}):
            yield LoggedInput(p.name, frontier[-1], frontier, (), None)
    else:
        yield Checkpoint(p.name, frontier, p.state)


def _messages_of(p: Processor, durable: DurableFacts) -> Iterator[Fact]:
    for edge, messages in p.sent.items():
        known = durable.records.sent.get(edge, {})
        for time, payload in messages.items():
            if time not in known:
                yield LoggedMessage(edge, time, payload)


def messages_known(p: Processor, step: Step, records: LiveRecords) -> dict[str, Any] | None:
    """Gives what a processor sent at a time, if it keeps nothing else and all is durable: it need not run again."""
    if not p.stateless or not p.outputs:
        return None
    if any(step.time not in records.sent.get(edge.name, {}) for edge in p.outputs):
        return None
    known = {edge.name: records.sent[edge.name][step.time].message for edge in p.outputs}
    return {edge: message for edge, message in known.items() if message is not None}
