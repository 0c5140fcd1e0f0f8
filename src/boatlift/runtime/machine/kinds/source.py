"""Sources: where a dataflow begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from boatlift.recovery import Edge, Vertex
from boatlift.runtime.machine.durability import Durability
from boatlift.runtime.machine.instructions import PollSource
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.storage.records.facts import Determinant
from boatlift.times import AnyFrontier, Frontier, last_of

__all__ = ["SourceEnd"]


class SourceEnd(MachineProcessor):
    """A source as the machine knows it: it closes one epoch after the other.

    Recorded epochs are sent again as they are recorded.

    Attributes:
        closing: The source was polled for its next epoch, and has not answered.
        idle: The source has answered that it has no new input.
        woken: New input was reported while the source was being polled.
        ended: The source will never have more input.
        acknowledged: The times that were acknowledged to the source.
        positions: The positions of the last epoch that the source closed.
        gathers: The source gathers new input for its next epoch.
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
        """The next epoch to close."""
        return last_of(self.done) + 1

    @property
    def busy(self) -> bool:
        """Return whether a poll is under way."""
        return self.closing

    def poll(self) -> PollSource:
        """Return the instruction that polls the next epoch."""
        self.closing = True
        return PollSource(self.name, self.incarnation, self.following, self.positions)

    def upcoming(self, chosen: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:  # noqa: ARG002
        """Return the recorded epochs that come next, if the source can be read again."""
        if self.vertex.keeps_no_rows:
            return
        for time in count(self.following):
            if time not in chosen:
                return
            yield Step(time, (), time)

    def take(self, step: Step) -> None:
        """Record that an epoch is closed."""
        self.done = Frontier.up_to(step.time)
        self.closing = self.woken = False

    def call_off(self) -> None:
        """Begin another incarnation, which may be polled again."""
        super().call_off()
        self.closing = self.idle = self.woken = self.ended = False

    def rest(self, *, ended: bool) -> None:
        """Record that the source has no input, unless new input was reported during the poll."""
        self.idle, self.ended = not self.woken, ended
        self.closing = self.woken = False

    @property
    def underway(self) -> bool:
        """Return whether a message of this source waits or is being taken.

        A batch does not count: its open epoch may wait for long.
        """
        return any(p.waiting[edge.name] or p.is_taking(edge) for edge, p in self.receivers if not p.vertex.coarse)

    def wake(self) -> None:
        """Record that the source may have new input."""
        self.idle, self.woken = False, self.closing
