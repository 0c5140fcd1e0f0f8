"""Data in flight: the messages that a checkpoint keeps beside the state (FLIP-76; Falkirk Wheel §3.4: L(e, f))."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, takewhile
from math import inf

from boatlift.recovery import Kind
from boatlift.runtime.machine.durability import Durability
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.runtime.machine.program import Program
from boatlift.storage.records.facts import LoggedMessage

__all__ = ["intervals_of", "kept_in_flight"]

UNDER_WAY = 2
"""A reader that keeps pace may be behind by so many steps more: it executes one, and a checkpoint becomes durable."""


def intervals_of(program: Program) -> dict[str, float]:
    """Return edge to the steps by which the durable state of its readers may be behind in steady running.

    They are the steps from one checkpoint to the next, of the reader and of those behind it: a reader goes back as far
    as its own readers need. A reader whose messages are durable does not. A processor without state is transparent. A
    reader with checkpoints by the clock alone counts 0, so that it always lags. A state of which nothing becomes
    durable (`Lazy(every=None)`) counts without end: it is computed anew from the start, and so are the messages for it.
    """
    graph = program.graph
    behind: dict[str, float] = {}
    for name in reversed(graph.order):  # readers first; what comes back around a loop is behind by no more
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
    """Return the steps by which the durable state of a processor may be behind the processor itself."""
    if durability.state_every is not None:
        return durability.state_every + UNDER_WAY
    lost = kind is Kind.STATEFUL and not (durability.has_checkpoints or durability.keeps_inputs)
    return inf if lost else 0.0


def kept_in_flight(p: MachineProcessor, steps: int, durable: DurableFacts) -> Iterator[LoggedMessage]:
    """Return the messages that become durable with a checkpoint of a processor, beside the state.

    With `"behind"`, those of an edge belong to them if a reader may ask for more messages than there are steps between
    checkpoints, of the processor or of its readers. Else the reader keeps pace: after a failure, the processor goes
    back to its checkpoint before.

    Args:
        p: The processor; its checkpoint is of all that it has done.
        steps: The steps of the processor since its last checkpoint; 0 for a checkpoint in a replay, with which every
            message is kept that a reader may ask for.
        durable: The facts that are durable already.
    """
    chosen = p.durability.in_flight
    for edge in p.outputs if chosen else ():
        if edge.name in p.logged:
            continue
        every = chosen is True or not steps
        pace = 0 if every else max(steps, p.durability.state_every or 0, p.intervals[edge.name])
        yield from _kept_on(edge.name, p, pace, durable)


def _kept_on(edge: str, p: MachineProcessor, pace: float, durable: DurableFacts) -> Iterator[LoggedMessage]:
    """Return the messages of one edge that are to be kept; none if its reader asks for no more than some."""
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
