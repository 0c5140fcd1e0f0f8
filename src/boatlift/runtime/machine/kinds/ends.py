"""Where a dataflow begins and ends: sources and sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from boatlift.recovery import Edge, Vertex
from boatlift.runtime.machine.durability import Durability
from boatlift.runtime.machine.instructions import Message
from boatlift.runtime.machine.kinds.epochs import Structured
from boatlift.runtime.machine.kinds.processor import Processor, Step
from boatlift.storage.records.facts import Determinant
from boatlift.times import AnyFrontier, Frontier, frontier_of, last_of

__all__ = ["SinkEnd", "SourceEnd"]


class SourceEnd(Processor):
    """Closes one epoch after the other; those it closed before it sends as they are recorded.

    Attributes:
        closing: It was asked to close the next.
        idle: It has nothing new.
        woken: While it was asked it was told that there is something.
        ended: It never will.
        acknowledged: The times that it was told it will not be asked for again.
        positions: Those of the last time that it closed.
        gathers: What comes meanwhile is gathered for the next time.
    """

    def __init__(self, vertex: Vertex, durability: Durability, outputs: tuple[Edge, ...]) -> None:
        super().__init__(vertex, durability, (), outputs)
        self.closing = False
        self.idle = False
        self.woken = False
        self.ended = False
        self.acknowledged: AnyFrontier = Frontier.up_to(-1)
        self.positions: Any = None
        self.gathers = False

    @property
    def following(self) -> int:
        """The time to close next."""
        return last_of(self.done) + 1

    @property
    def busy(self) -> bool:
        """Whether it was asked for something."""
        return self.closing

    def upcoming(self, chosen: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:  # noqa: ARG002
        """Gives the times that were closed before, if they can be read again."""
        if self.vertex.forgets:
            return
        for time in count(self.following):
            if time not in chosen:
                return
            yield Step(time, (), time)

    def take(self, step: Step) -> None:
        """Notes that a time is closed."""
        self.done = Frontier.up_to(step.time)
        self.closing = self.woken = False

    def call_off(self) -> None:
        """Begins another life: it may be asked again."""
        super().call_off()
        self.closing = self.idle = self.woken = self.ended = False

    def rest(self, *, ended: bool) -> None:
        """Notes that it has nothing, unless it was told meanwhile that there is something."""
        self.idle, self.ended = not self.woken, ended
        self.closing = self.woken = False

    @property
    def underway(self) -> bool:
        """Whether something that it sent waits, or is being taken; a batch lets wait what it wants."""
        return any(p.waiting[edge.name] or p.is_taking(edge) for edge, p in self.receivers if not p.vertex.coarse)

    def wake(self) -> None:
        """Notes that it may have something."""
        self.idle, self.woken = False, self.closing


class SinkEnd(Structured):
    """Lets complete times wait until they may leave.

    Attributes:
        held: What the outside holds.
        staged: Time to what came at it, beyond that.
        placing: What it was told to make visible.
        asked: It was asked what it holds.
    """

    def __init__(self, vertex: Vertex, durability: Durability, inputs: tuple[Edge, ...]) -> None:
        super().__init__(vertex, durability, inputs, ())
        self.held: AnyFrontier = frontier_of(vertex.domain)
        self.staged: dict[Any, tuple[Message, ...]] = {}
        self.placing: AnyFrontier | None = None
        self.asked = False

    @property
    def busy(self) -> bool:
        """Whether it was asked for something."""
        return self.placing is not None or self.asked

    @property
    def waits(self) -> bool:
        """Whether anything is complete that has not left."""
        return not self.done <= self.held

    def take(self, step: Step) -> None:
        """Lets what came at a time wait."""
        super().take(step)
        self.staged[step.time] = step.inputs

    def contents(self) -> Iterator[Any]:
        """Also what waits to leave."""
        yield from super().contents()
        yield from (message.content for came in self.staged.values() for message in came)

    def lacks(self) -> list[Processor]:
        """Also what is to be durable before anything leaves may have to be executed first."""
        return [sender for _, sender in self.senders] if self.waits else super().lacks()

    def prefixes(self) -> list[AnyFrontier]:
        """Gives the frontiers that could leave next, each within the next."""
        staged = [frontier_of(self.vertex.domain, (time,)) for time in self.staged]
        return [*(prefix for prefix in staged if prefix != self.done), self.done]

    def hold(self, frontier: AnyFrontier) -> None:
        """Notes what the outside holds."""
        self.held, self.placing, self.asked = frontier, None, False
        self.staged = {time: came for time, came in self.staged.items() if not frontier.contains(time)}
        self.done = self.done | frontier

    def go_back(self, frontier: AnyFrontier) -> None:
        """Begins another life with what the outside holds."""
        super().go_back(frontier)
        self.hold(frontier)
        self.staged.clear()
