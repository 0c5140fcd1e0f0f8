"""Sources: where a dataflow begins, and how sources that meet keep common steps."""

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

__all__ = ["SourceProcessor"]


class SourceProcessor(MachineProcessor):
    """A source as the machine knows it: it closes one epoch after the other.

    Recorded epochs are sent again as they are recorded.

    Sources whose messages meet at a time have common steps: a source that has nothing while a partner goes on closes
    the epoch with nothing (Feldera, dist-design: a step begins as soon as any input has something). An epoch without
    input sends no message. It never makes a partner close another one, so two sources cannot keep each other busy.

    Attributes:
        polled: The epoch for which the source was polled, while it has not answered; it may close epochs without input
            meanwhile, and its answer is then for the epoch after them.
        idle: The source has answered that it has no new input.
        resting: The last answer was that there is no new input, even if the source is being polled again.
        woken: New input was reported while the source was being polled.
        ended: The source will never have more input.
        acknowledged: The times that were acknowledged to the source.
        gathers: The source gathers new input for its next epoch.
        partners: The other sources that have common steps with this one.
    """

    def __init__(self, vertex: Vertex, durability: Durability, outputs: tuple[Edge, ...]) -> None:
        super().__init__(vertex, durability, (), outputs)
        self.polled: int | None = None
        self.idle = False
        self.resting = False
        self.woken = False
        self.ended = False
        self.acknowledged: AnyFrontier = Frontier.up_to(-1)
        self.gathers = False
        self.partners: list[SourceProcessor] = []

    @property
    def following(self) -> int:
        """The next epoch to close."""
        return last_of(self.done) + 1

    @property
    def closing(self) -> bool:
        """Return whether a poll is under way."""
        return self.polled is not None

    @property
    def busy(self) -> bool:
        """Return whether a poll is under way."""
        return self.closing

    @property
    def lags(self) -> bool:
        """Return whether a partner has closed the next epoch already."""
        return any(partner.following > self.following for partner in self.partners)

    def poll(self) -> PollSource:
        """Return the instruction that polls the next epoch."""
        self.polled = self.following
        return PollSource(self.name, self.incarnation, self.polled)

    def upcoming(self, determinants: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:  # noqa: ARG002
        """Return the recorded epochs that come next, if the source can be read again."""
        if self.vertex.keeps_no_rows:
            return
        for time in count(self.following):
            if time not in determinants:
                return
            yield Step(time, (), time)

    def take(self, step: Step) -> None:
        """Record that an epoch is closed."""
        self.done = Frontier.up_to(step.time)

    def cancel_steps(self) -> None:
        """Begin another incarnation, which may be polled again."""
        super().cancel_steps()
        self.polled = None
        self.idle = self.resting = self.woken = self.ended = False

    def answered(self) -> None:
        """Record that the poll has brought input."""
        self.polled = None
        self.resting = self.woken = False

    def rest(self, *, ended: bool) -> None:
        """Record that the source has no input, unless new input was reported during the poll."""
        self.idle, self.ended, self.resting = not self.woken, ended, True
        self.polled, self.woken = None, False

    @property
    def underway(self) -> bool:
        """Return whether a message of this source waits or is being taken.

        A batch does not count: its open epoch may wait for long.
        """
        return any(p.waiting[edge.name] or p.is_taking(edge) for edge, p in self.receivers if not p.vertex.coarse)

    def wake(self) -> None:
        """Record that the source may have new input."""
        self.idle, self.woken = False, self.closing
