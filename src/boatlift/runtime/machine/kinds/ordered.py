"""Processors of epochs and loops, which take complete times; and processors that take messages in arrival order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from itertools import count
from operator import and_
from typing import Any

from boatlift.recovery import Edge, Vertex
from boatlift.runtime.machine.instructions import Message
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.runtime.machine.program import Durability
from boatlift.storage.records.facts import Determinant
from boatlift.storage.records.soft_checkpoints import SoftPart
from boatlift.times import AnyFrontier, ArrivalOrder, Feedback, Loop, SequenceTime, frontier_of


class EpochOrdered(MachineProcessor):
    """Takes all messages of a time together, once the time is complete: no further message can come."""

    def complete(self) -> AnyFrontier:
        """Return the times that are complete at the senders' present frontiers."""
        return reduce(and_, (edge.projection(sender.done) for edge, sender in self.senders))

    def missing_senders(self) -> list[MachineProcessor]:
        """Return the senders that may still send at the first time with a waiting message."""
        arrivals: list[Any] = [e.projection.arrives(t) for e, _ in self.senders for t in self.waiting[e.name]]
        first = min(arrivals, default=None)
        if first is None:
            return []
        return [sender for edge, sender in self.senders if not edge.projection(sender.done).contains(first)]

    def upcoming(self, determinants: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:  # noqa: ARG002
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

    def is_fixed(self, step: Step, fixed: Mapping[str, AnyFrontier]) -> bool:
        return all(edge.projection(fixed[edge.name]).contains(step.time) for edge in self.inputs)

    def over(self) -> AnyFrontier:
        complete = self.complete()
        return self.done if complete <= self.done else self.done | complete


class Head(EpochOrdered):
    """The first processor of a loop: it takes messages that enter the loop, and the messages of its feedback edge.

    A complete iteration without a message ends the loop, until another message enters.
    """

    def over(self) -> AnyFrontier:
        """Return all times before the next message that enters, if no message is in the loop."""
        domain = self.vertex.domain
        assert isinstance(domain, Loop)
        (following,) = Feedback(domain)(self.done).maximal
        if not self.complete().contains(following):
            return self.done
        entering = [edge for edge, _ in self.senders if not isinstance(edge.projection, Feedback)]
        limit = reduce(and_, (e.projection(sender.done) for e, sender in self.senders if e in entering))
        arrivals: list[Any] = [e.projection.arrives(t) for e in entering for t in self.waiting[e.name]]
        first = min(arrivals, default=None)
        return self.done | (limit if first is None else limit & frontier_of(domain, domain.below(first)))


class ArrivalOrdered(MachineProcessor):
    """Takes one message at a time: in the recorded order, then in arrival order (`ArrivalOrder`).

    Attributes:
        order: The edges that it has taken from, and those of the recorded order.
        count: The number of messages that it has taken.
    """

    def __init__(
        self,
        vertex: Vertex,
        durability: Durability,
        inputs: tuple[Edge, ...],
        outputs: tuple[Edge, ...],
        order: ArrivalOrder,
    ) -> None:
        super().__init__(vertex, durability, inputs, outputs)
        self.order = order
        self.count = 0
        self._coming: dict[SequenceTime, Message] = {}

    def put(self, edge: Edge, time: Any, payload: Any) -> None:
        """Append a message to the waiting ones; a time without a message has its place in the order, too."""
        if self.came_before(edge, time):
            return
        self.waiting[edge.name].add(time, payload)
        arrival: SequenceTime | None = edge.projection.arrives(time)
        assert arrival is not None, "in a sequence every message has a place"
        self._coming.setdefault(arrival, Message(edge.name, time, payload))

    def clear(self) -> None:
        super().clear()
        self._coming.clear()

    def upcoming(self, determinants: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:  # noqa: ARG002
        """Return the messages in the recorded order, then in arrival order; messages of one edge stay in order."""
        following = dict.fromkeys((edge.name for edge in self.inputs), 0)
        following.update((edge, n + 1) for edge, n in self.done.maximal)
        coming = dict(self._coming)
        for event in count(self.count):
            edges = [str(determinants[event].taken)] if event in determinants else [edge for edge, _ in coming]
            edge = next((edge for edge in edges if (edge, following[edge]) in coming), None)
            if edge is None:
                return
            time = (edge, following[edge])
            yield Step(time, (coming.pop(time),), event, edge)
            following[edge] += 1

    def take(self, step: Step) -> None:
        self.forget(step)
        self._coming.pop(step.time, None)
        if self.count == len(self.order):
            self.order.take(step.taken)
        self.count += 1
        self.done = self.order.prefix(self.count)

    def adopt(self, part: SoftPart, sent: Mapping[str, Mapping[Any, Any]]) -> None:
        super().adopt(part, sent)
        self.count = self.order.within(self.done)

    def roll_back(self, frontier: AnyFrontier) -> None:
        super().roll_back(frontier)
        self.count = self.order.within(frontier)
