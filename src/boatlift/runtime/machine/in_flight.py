"""Data in flight: the messages that a checkpoint keeps beside the state (FLIP-76; Falkirk Wheel §3.4: L(e, f))."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf

from boatlift.recovery import Kind
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.runtime.machine.program import Program
from boatlift.storage.records.facts import LoggedMessage

__all__ = ["intervals_of", "kept_in_flight"]


def intervals_of(program: Program) -> dict[str, float]:
    """Return edge to the steps from one checkpoint to the next of those that read it, directly or through others.

    A reader with checkpoints by the clock alone counts 0. A state of which nothing becomes durable (`Lazy(every=None)`)
    counts without end: it is computed anew from the start, and so are the messages for it. A processor without state
    between is transparent: its readers need the messages that it reads.
    """
    return {name: _longest(program, edge.target, set()) for name, edge in program.graph.edges.items()}


def _longest(program: Program, reader: str, seen: set[str]) -> float:
    durability, vertex = program.durability(reader), program.graph.vertices[reader]
    if durability.state_every is not None:
        return durability.state_every
    if vertex.kind is Kind.STATEFUL and not (durability.has_checkpoints or durability.keeps_inputs):
        return inf
    if vertex.kind is not Kind.STATELESS or durability.keeps_messages or reader in seen:
        return 0
    seen.add(reader)
    return max((_longest(program, edge.target, seen) for edge in program.graph.outputs[reader]), default=0)


def kept_in_flight(p: MachineProcessor, steps: int, durable: DurableFacts) -> Iterator[LoggedMessage]:
    """Return the messages that become durable with a checkpoint of a processor, beside the state.

    A message belongs to them if a reader may ask for it again. A reader that asks for no more messages than there are
    steps between checkpoints keeps pace: after a failure, the processor goes back to its checkpoint before.

    Args:
        p: The processor; its checkpoint is of all that it has done.
        steps: The steps of the processor since its last checkpoint.
        durable: The facts that are durable already.
    """
    chosen = p.durability.in_flight
    for edge in p.outputs if chosen else ():
        pace = 0 if chosen is True else max(steps, p.durability.state_every or 0, p.intervals[edge.name])
        sent = p.sent[edge.name]
        if len(sent) <= pace:
            continue
        # Times in reverse: all up to the first that is needless or durable are new, however many wait.
        late = next(islice(reversed(sent), int(pace), None))
        needless = durable.needless(edge.name)
        if needless.contains(late):
            continue
        known, new = durable.records.sent.get(edge.name, {}), []
        for time in reversed(sent):
            if time in known or needless.contains(time):
                break
            new.append(time)
        yield from (LoggedMessage(edge.name, time, sent[time]) for time in reversed(new))
