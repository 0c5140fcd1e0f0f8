"""Processors that take their inputs in arrival order: the next message is a choice (`ArrivalOrder`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from boatlift.recovery import Edge, Vertex
from boatlift.runtime.machine.durability import Durability
from boatlift.runtime.machine.instructions import Message
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.storage.records.facts import Determinant
from boatlift.times import AnyFrontier, ArrivalOrder, SequenceTime

__all__ = ["ArrivalOrdered"]


class ArrivalOrdered(MachineProcessor):
    """Takes one message at a time: in the recorded order, then in the order of arrival.

    Attributes:
        order: The edges it has taken from, and those it is to take from again.
        count: The number of messages it has taken.
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
        """Append a message to those that wait; a time without a message has its place in the order, too."""
        if self.came_before(edge, time):
            return
        self.waiting[edge.name].add(time, payload)
        arrival: SequenceTime | None = edge.projection.arrives(time)
        assert arrival is not None, "in a sequence every message has a place"
        self._coming.setdefault(arrival, Message(edge.name, time, payload))

    def clear(self) -> None:
        """Drop all messages that wait, and their order."""
        super().clear()
        self._coming.clear()

    def upcoming(self, determinants: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:  # noqa: ARG002
        """Return the messages in the recorded order, then those that wait in arrival order.

        Messages of one edge stay in order.
        """
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
        """Record which message was taken."""
        self.forget(step)
        self._coming.pop(step.time, None)
        if self.count == len(self.order):
            self.order.take(step.taken)
        self.count += 1
        self.done = self.order.prefix(self.count)

    def go_back(self, frontier: AnyFrontier) -> None:
        """Begin another incarnation after the events of a prefix."""
        super().go_back(frontier)
        self.count = self.order.within(frontier)
