"""Sinks: where a dataflow ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from boatlift.recovery import Edge, Vertex
from boatlift.runtime.machine.durability import Durability
from boatlift.runtime.machine.instructions import CommitSink, Message, ReopenSink
from boatlift.runtime.machine.kinds.epochs import EpochOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.times import AnyFrontier, frontier_of

__all__ = ["SinkProcessor"]


class SinkProcessor(EpochOrdered):
    """A sink as the machine knows it: complete times are staged until they may leave.

    Attributes:
        held: The times that the sink outside holds.
        staged: Each time beyond `held` that has messages, with these.
        placing: The frontier of the commit under way; None if none is.
        asked: The sink was asked for its position, and has not answered.
    """

    def __init__(self, vertex: Vertex, durability: Durability, inputs: tuple[Edge, ...]) -> None:
        super().__init__(vertex, durability, inputs, ())
        self.held: AnyFrontier = frontier_of(vertex.domain)
        self.staged: dict[Any, tuple[Message, ...]] = {}
        self.placing: AnyFrontier | None = None
        self.asked = False

    @property
    def busy(self) -> bool:
        """Return whether a commit or a question is under way."""
        return self.placing is not None or self.asked

    @property
    def waits(self) -> bool:
        """Return whether a complete time has not left."""
        return not self.done <= self.held

    def commit(self, frontier: AnyFrontier) -> CommitSink:
        """Return the instruction that makes all times of a frontier visible."""
        self.placing = frontier
        steps = tuple((time, messages) for time, messages in self.staged.items() if frontier.contains(time))
        return CommitSink(self.name, self.incarnation, frontier, steps)

    def reopen(self) -> ReopenSink:
        """Begin another incarnation, and return the instruction that asks the sink for its position."""
        self.cancel_steps()
        self.asked = True
        return ReopenSink(self.name, self.incarnation)

    def take(self, step: Step) -> None:
        """Stage the messages of a complete time."""
        super().take(step)
        self.staged[step.time] = step.inputs

    def payloads(self) -> Iterator[Any]:
        """Return also the payloads that are staged."""
        yield from super().payloads()
        yield from (message.payload for messages in self.staged.values() for message in messages)

    def lacks(self) -> list[MachineProcessor]:
        """Return all senders if a time waits to leave.

        Facts that must be durable first may need further steps of theirs.
        """
        return [sender for _, sender in self.senders] if self.waits else super().lacks()

    def prefixes(self) -> list[AnyFrontier]:
        """Return the frontiers that could leave next, in rising order."""
        staged = [frontier_of(self.vertex.domain, (time,)) for time in self.staged]
        return [*(prefix for prefix in staged if prefix != self.done), self.done]

    def hold(self, frontier: AnyFrontier) -> None:
        """Record the times that the sink outside holds."""
        self.held, self.placing, self.asked = frontier, None, False
        self.staged = {time: messages for time, messages in self.staged.items() if not frontier.contains(time)}
        self.done = self.done | frontier

    def go_back(self, frontier: AnyFrontier) -> None:
        """Begin another incarnation with the times that the sink outside holds."""
        super().go_back(frontier)
        self.hold(frontier)
        self.staged.clear()
