"""Sources and sinks: the ends of a dataflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from boatlift.recovery import Edge, Vertex
from boatlift.runtime.machine.instructions import CommitSink, Message, PollSource, ReopenSink, Rests
from boatlift.runtime.machine.kinds.ordered import EpochOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.runtime.machine.program import Durability
from boatlift.storage.records.facts import Determinant
from boatlift.times import AnyFrontier, Frontier, frontier_of, last_of


class SourceProcessor(MachineProcessor):
    """A source as the machine knows it: it closes one epoch after the other, the recorded epochs first.

    Sources with common steps are partners: a source without input closes the epoch when a partner has closed it
    (Feldera, dist-design: a step begins as soon as any input has data). An epoch without input sends no message. It
    never makes a partner close another one, so two sources cannot keep each other busy.

    Attributes:
        polled: The epoch for which the source was polled, while it has not answered; it may close epochs without input
            meanwhile, and its answer is then for the epoch after them.
        idle: The source has answered that it has no new input.
        resting: The last answer was that there is no new input, even if the source is being polled again.
        woken: New input was reported while the source was being polled.
        ended: The source will never have more input.
        partners: The other sources that have common steps with this one.
    """

    def __init__(self, vertex: Vertex, durability: Durability, outputs: tuple[Edge, ...]) -> None:
        super().__init__(vertex, durability, (), outputs)
        self.polled: int | None = None
        self.idle = self.resting = self.woken = self.ended = self.gathers = False
        self.acknowledged: AnyFrontier = Frontier.up_to(-1)
        self.partners: list[SourceProcessor] = []

    @property
    def following(self) -> int:
        """The next epoch to close."""
        return last_of(self.done) + 1

    @property
    def busy(self) -> bool:
        return self.polled is not None

    @property
    def lags(self) -> bool:
        """True if a partner has closed the next epoch already."""
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
        self.done = Frontier.up_to(step.time)

    def cancel_steps(self) -> None:
        super().cancel_steps()
        self.polled = None
        self.idle = self.resting = self.woken = self.ended = False

    def answered(self, *, gathers: bool) -> None:
        """Record that the poll has returned input, and whether the source gathers new input for its next epoch."""
        self.polled, self.gathers = None, gathers
        self.resting = self.woken = False

    def rest(self, *, ended: bool) -> None:
        """Record that the source has no input, unless new input was reported during the poll."""
        self.idle, self.ended, self.resting = not self.woken, ended, True
        self.polled, self.woken = None, False

    @property
    def underway(self) -> bool:
        """True if a message of this source waits or is being taken, except at batches, whose open epoch may wait."""
        readers = [(edge.name, p) for edge, p in self.receivers if p.vertex.gathered or not p.vertex.coarse]
        return any(
            p.waiting[edge] or any(message.edge == edge for step in p.running for message in step.inputs)
            for edge, p in readers
        )

    def wake(self) -> None:
        """Record that the source may have new input."""
        self.idle, self.woken = False, self.busy


class SinkProcessor(EpochOrdered):
    """A sink as the machine knows it: complete times are staged until they may be released.

    Attributes:
        held: The times that the external sink holds.
        staged: Each time beyond `held` with messages, and these messages.
        placing: The frontier of the commit under way; None if none is.
        asked: The sink was asked for its position, and has not answered.
        group: The sinks that are shown together, this one among them.
    """

    def __init__(self, vertex: Vertex, durability: Durability, inputs: tuple[Edge, ...]) -> None:
        super().__init__(vertex, durability, inputs, ())
        self.held: AnyFrontier = frontier_of(vertex.domain)
        self.staged: dict[Any, tuple[Message, ...]] = {}
        self.placing: AnyFrontier | None = None
        self.asked = False
        self.group: tuple[SinkProcessor, ...] = (self,)

    @property
    def busy(self) -> bool:
        return self.placing is not None or self.asked

    @property
    def waits(self) -> bool:
        """True if a complete time has not been committed."""
        return not self.done <= self.held

    def commit(self, frontier: AnyFrontier, rests: Rests) -> CommitSink:
        """Return the instruction that makes all times of a frontier visible."""
        self.placing = frontier
        steps = tuple((time, messages) for time, messages in self.staged.items() if frontier.contains(time))
        return CommitSink(self.name, self.incarnation, frontier, steps, rests)

    def reopen(self) -> ReopenSink:
        """Begin another incarnation, and return the instruction that asks the sink for its position."""
        self.cancel_steps()
        self.asked = True
        return ReopenSink(self.name, self.incarnation)

    def take(self, step: Step) -> None:
        super().take(step)
        self.staged[step.time] = step.inputs

    def payloads(self) -> Iterator[Any]:
        yield from super().payloads()
        yield from (message.payload for messages in self.staged.values() for message in messages)

    def missing_senders(self) -> list[MachineProcessor]:
        # A time is released after facts that may need further steps of the senders.
        if not self.waits:
            return super().missing_senders()
        return [sender for member in self.group for _, sender in member.senders]

    def prefixes(self) -> list[AnyFrontier]:
        """Return the frontiers that could be released next, in rising order."""
        staged = [frontier_of(self.vertex.domain, (time,)) for time in self.staged]
        return [*(prefix for prefix in staged if prefix != self.done), self.done]

    def hold(self, frontier: AnyFrontier) -> None:
        """Record the times that the external sink holds."""
        self.held, self.placing, self.asked = frontier, None, False
        self.staged = {time: messages for time, messages in self.staged.items() if not frontier.contains(time)}
        self.done = self.done | frontier

    def roll_back(self, frontier: AnyFrontier) -> None:
        super().roll_back(frontier)
        self.hold(frontier)
        self.staged.clear()
