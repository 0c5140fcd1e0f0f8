"""What a processor's regime makes durable of a step; what nobody needs any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from boatlift.recovery import Kind, Monitor
from boatlift.runtime.regimes.durable import DurableFacts
from boatlift.runtime.regimes.ends import SinkEnd, SourceEnd
from boatlift.runtime.regimes.ordered import Ordered
from boatlift.runtime.regimes.processor import Processor, Step
from boatlift.storage.facts import Chosen, Collected, Fact, Result, Sent, State, Taken, maximal_of
from boatlift.storage.standing import Standing

__all__ = ["everything_of", "facts_of", "facts_of_nothing", "garbage", "messages_known", "state_of"]


def facts_of(
    p: Processor, step: Step, outcome: Any, sent: Mapping[str, Any], result: Result | None, durable: DurableFacts
) -> Iterator[Fact]:
    """Gives what is to become durable of a step that a processor has just done, in the order in which it is to."""
    standing, regime, late = durable.standing, p.regime, list[Fact]()
    if p.vertex.chooses and step.key not in standing.chosen.get(p.name, {}):
        choice = Chosen(p.name, step.key, step.taken, outcome)
        if regime.recorded or p.vertex.kind is Kind.SOURCE:
            yield choice
        elif p.vertex.coarse:
            late.append(choice)
        elif isinstance(p, Ordered):
            p.unrecorded.append(choice)
    if result is not None and step.key not in standing.results.get(p.name, {}):
        if p.vertex.chooses and not regime.recorded:
            late.append(result)
        else:
            yield result
    if regime.keeps_messages:
        for edge in p.outputs:
            if step.time not in standing.sent.get(edge.name, {}):
                yield Sent(edge.name, step.time, sent.get(edge.name))
    yield from late  # they count once what it sent does, which another execution would not repeat
    if regime.keeps_inputs and not p.stateless:
        messages = tuple((m.edge, m.time, m.content) for m in step.inputs)
        yield Taken(p.name, step.time, maximal_of(p.done), messages, outcome)
    p.unsaved += 1
    if regime.state_every is not None and p.unsaved >= regime.state_every and p.vertex.kind is Kind.STATEFUL:
        yield from _state_of(p, durable)


def facts_of_nothing(p: Processor, time: Any) -> Iterator[Fact]:
    """Gives what is to become durable of a time that is over with nothing to do.

    That nothing was chosen, and nothing sent, is known like a choice and a message: without it what comes later could not be repeated
    without a gap.
    """
    if p.vertex.chooses and p.regime.recorded and not p.vertex.divides:
        yield Chosen(p.name, time, None, None)
    if p.regime.keeps_messages:
        yield from (Sent(edge.name, time, None) for edge in p.outputs)


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
    kept = p.regime.state_every is not None or p.regime.keeps_inputs
    for edge, receiver in p.receivers if p.stateless or kept else ():
        known = durable.standing.sent.get(edge.name, {})
        for time, content in p.sent[edge.name].items():
            if not (time in known or receiver.came_before(edge, time)):
                yield Sent(edge.name, time, content)  # or None: that nothing was sent is as good
    if not p.stateless and kept:
        yield from _state_of(p, durable)


def _state_of(p: Processor, durable: DurableFacts, *, with_messages: bool = True) -> Iterator[Fact]:
    p.unsaved = 0
    forgets = p.vertex.chooses and not p.regime.recorded
    if (forgets or p.regime.with_state) and with_messages and not p.regime.keeps_messages:
        # In another execution these would be others: without them a sink could not be given any before all have the state's.
        yield from _messages_of(p, durable)
    if isinstance(p, Ordered):  # what it sent is known by the order
        yield from p.unrecorded
    p.unrecorded.clear()
    frontier = maximal_of(p.done)
    if not frontier or frontier in durable.standing.states.get(p.name, {}):
        return
    if p.regime.keeps_inputs:  # that nothing came since is as good as what came
        if frontier[-1] not in durable.standing.taken.get(p.name, {}):
            yield Taken(p.name, frontier[-1], frontier, (), None)
    else:
        yield State(p.name, frontier, p.state)


def _messages_of(p: Processor, durable: DurableFacts) -> Iterator[Fact]:
    for edge, messages in p.sent.items():
        known = durable.standing.sent.get(edge, {})
        for time, content in messages.items():
            if time not in known:
                yield Sent(edge, time, content)


def messages_known(p: Processor, step: Step, standing: Standing) -> dict[str, Any] | None:
    """Gives what a processor sent at a time, if it keeps nothing else and all is durable: it need not run again."""
    if not p.stateless or not p.outputs:
        return None
    if any(step.time not in standing.sent.get(edge.name, {}) for edge in p.outputs):
        return None
    known = {edge.name: standing.sent[edge.name][step.time].message for edge in p.outputs}
    return {edge: message for edge, message in known.items() if message is not None}


def garbage(processors: Mapping[str, Processor], monitor: Monitor) -> Collected:
    """Gives all that is garbage, and drops from memory what is of it."""
    states, choices, messages = {}, {}, {}
    for name, p in processors.items():
        for edge in p.outputs:
            needless = monitor.needless(edge.name)
            messages[edge.name] = maximal_of(needless)
            p.sent[edge.name] = {t: m for t, m in p.sent[edge.name].items() if not needless.contains(t)}
        states[name] = maximal_of(monitor.collectable(name))
        settled = monitor.settled(name)
        choices[name] = maximal_of(p.order.prefix(p.order.within(settled)) if isinstance(p, Ordered) else settled)
    return Collected(states, choices, messages)
