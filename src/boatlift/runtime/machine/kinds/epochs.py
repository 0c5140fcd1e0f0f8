"""Processors of epochs and loops: a time is executed once it is complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import and_
from typing import Any

from boatlift.runtime.machine.instructions import Message
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.storage.records.facts import Determinant
from boatlift.times import AnyFrontier, Feedback, Loop, frontier_of

__all__ = ["EpochOrdered", "Head"]


def first_waiting(processor: MachineProcessor) -> Any | None:
    """Return the first time at which a message waits; None if none does."""
    arrivals: list[Any] = [e.projection.arrives(t) for e, _ in processor.senders for t in processor.waiting[e.name]]
    return min(arrivals, default=None)


class EpochOrdered(MachineProcessor):
    """Takes all messages of a time together, once the time is complete: no further message can come."""

    def complete(self) -> AnyFrontier:
        """Return the times that are complete, as the senders stand."""
        return reduce(and_, (edge.projection(sender.done) for edge, sender in self.senders))

    def lacks(self) -> list[MachineProcessor]:
        """Return the senders that may still send at the first time at which a message waits."""
        first = first_waiting(self)
        if first is None:
            return []
        return [sender for edge, sender in self.senders if not edge.projection(sender.done).contains(first)]

    def upcoming(self, determinants: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:  # noqa: ARG002
        """Return the times that are complete and have messages."""
        complete = self.complete()
        arrived: dict[Any, list[Message]] = {}
        for edge, _ in self.senders:
            for time, payload in self.waiting[edge.name].items():
                arrived.setdefault(edge.projection.arrives(time), []).append(Message(edge.name, time, payload))
        for time in sorted(arrived):
            if not complete.contains(time):
                return
            yield Step(time, tuple(sorted(arrived[time], key=lambda message: (message.edge, message.time))), time)

    def take(self, step: Step) -> None:
        """Record that a time, and all before it, are done."""
        self.forget(step)
        self.done = self.done | frontier_of(self.vertex.domain, (step.time,))

    def stands(self, step: Step, fixed: Mapping[str, AnyFrontier]) -> bool:
        """Return whether all messages at the time of a step are fixed, and that there are no others."""
        return all(edge.projection(fixed[edge.name]).contains(step.time) for edge in self.inputs)

    def over(self) -> AnyFrontier:
        """Return all times that are complete."""
        complete = self.complete()
        return self.done if complete <= self.done else self.done | complete


class Head(EpochOrdered):
    """The first processor of a loop: it takes messages that enter the loop, and messages that come round again.

    A round that is complete and has no message ends the loop: nothing goes round any more, until another message
    enters.
    """

    def over(self) -> AnyFrontier:
        """Return all times before the next message that enters, if nothing goes round."""
        domain = self.vertex.domain
        assert isinstance(domain, Loop)
        (following,) = Feedback(domain)(self.done).maximal
        if not self.complete().contains(following):
            return self.done
        entering = [edge for edge, _ in self.senders if not isinstance(edge.projection, Feedback)]
        limit = reduce(and_, (e.projection(sender.done) for e, sender in self.senders if e in entering))
        arrivals: list[Any] = [e.projection.arrives(t) for e in entering for t in self.waiting[e.name]]
        come = min(arrivals, default=None)
        return self.done | (limit if come is None else limit & frontier_of(domain, domain.below(come)))
