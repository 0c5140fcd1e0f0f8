"""Batches: an epoch of theirs covers many of their input's, and where it ends is a choice (`EpochBoundaries`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from boatlift.dataflow import Batch
from boatlift.recovery import Edge, Vertex
from boatlift.runtime.machine.durability import Durability
from boatlift.runtime.machine.events import RowsProbed, TimerFired
from boatlift.runtime.machine.instructions import Message
from boatlift.runtime.machine.kinds.processor import Processor, Step
from boatlift.storage.records.facts import Determinant
from boatlift.times import IDENTITY, LAST, AnyFrontier, EpochBoundaries, Frontier, Projection, epochs_cut, last_of

__all__ = ["BatchEpochs"]


@dataclass(slots=True)
class _Known:
    """What is known of messages that wait, in their order.

    Attributes:
        steps: How many.
        began, until: Their first and last clock, in milliseconds; None and 0 if they have none.
        first, last: The period in which the first of them that have any end, and the last period.
        ends: Whether the condition holds for one.
    """

    steps: int = 0
    began: int | None = None
    until: int = 0
    first: int | None = None
    last: int | None = None
    ends: bool = False

    def note(self, content: Any, mark: Mapping[str, Any] | None = None) -> None:
        """Takes the next message in, and what its rows say."""
        self.steps += 1
        if isinstance(content, Mapping) and "clock" in content:
            clock = int(content["clock"])
            self.began = clock if self.began is None else min(clock, self.began)
            self.until = max(clock, self.until)
        if mark is not None:
            self._say(mark)

    def _say(self, mark: Mapping[str, Any]) -> None:
        self.ends = self.ends or bool(mark["ends"])
        if mark["period"] is not None:
            period = int(mark["period"])
            self.first = period if self.first is None else self.first
            self.last = period if self.last is None else max(period, self.last)

    def is_enough(self, policy: Batch, *, lasted: bool) -> bool:
        """Whether there are as many as wanted, over as long a time, and the rows say so."""
        milliseconds = 0 if self.began is None else self.until - self.began
        return (
            self.steps >= (policy.epochs or 1)
            and (lasted or milliseconds >= 1000 * policy.seconds)
            and (policy.event_time is None or (self.first is not None and (self.last or 0) > self.first))
            and (policy.when is None or self.ends)
        )


class BatchEpochs(Processor):
    """Takes all epochs that are complete, once there are enough of them; all at once, as one epoch of its own.

    What it knows of the open epoch is in memory only, and is found out anew by who comes after it: only where an epoch ended is recorded.

    Attributes:
        cuts: Where its epochs ended, and are to end again.
        lasted: The open epoch has lasted as long as it is to.
        unmarked: What waits and was not asked what its rows say, in the order in which it came; empty if rows are not asked.
    """

    def __init__(
        self,
        vertex: Vertex,
        durability: Durability,
        inputs: tuple[Edge, ...],
        outputs: tuple[Edge, ...],
        cuts: EpochBoundaries,
    ) -> None:
        super().__init__(vertex, durability, inputs, outputs)
        self.cuts = cuts
        # `Program` has seen to it that there are epochs to cut.
        self._epochs: dict[str, Projection] = {edge.name: epochs_cut(edge.projection) or IDENTITY for edge in inputs}
        self._marks: dict[tuple[str, Any], Mapping[str, Any]] = {}
        self.unmarked: dict[tuple[str, Any], Message] = {}
        self.lasted, self._open = False, _Known()

    @property
    def began(self) -> int | None:
        """The earliest clock of all that waits, in milliseconds; None if nothing does, or has one."""
        return self._open.began

    @property
    def _policy(self) -> Batch:
        policy = self.durability.policy
        assert isinstance(policy, Batch)  # or `Regime.check` refuses it
        return policy

    @property
    def stops_at_once(self) -> bool:
        """It begins no epoch then, whoever it takes from: that may take long."""
        return True

    @property
    def expects(self) -> bool:
        """Also what rows say."""
        return bool(self.unmarked)

    # -- what is known of the open epoch ------------------------------------------------------------------------------

    def put(self, edge: Edge, time: Any, content: Any) -> None:
        """Lets a message wait; if rows are asked, it counts once its own have answered."""
        if content is None or time in self.waiting[edge.name] or self.came_before(edge, time):
            return
        self.waiting[edge.name][time] = content
        if self._policy.asks_rows:
            self.unmarked[edge.name, time] = Message(edge.name, time, content)
        else:
            self._open.note(content)

    def learn(self, event: TimerFired | RowsProbed) -> None:
        """Notes that the open epoch has lasted long enough, or what the rows of a message say; unless it is over meanwhile."""
        match event:
            case TimerFired():
                self.lasted = not self.running
            case RowsProbed(_, _, message, mark):
                key = message.edge, message.time
                if self.unmarked.get(key) == message:
                    del self.unmarked[key]
                    self._marks[key] = mark
                    self._open.note(message.content, mark)

    def clear(self) -> None:
        """Also forgets what is known of what waited: it may come again as something else."""
        super().clear()
        self._marks.clear()
        self.unmarked.clear()
        self.lasted, self._open = False, _Known()

    # -- what it does next --------------------------------------------------------------------------------------------

    def upcoming(self, chosen: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:
        """Gives the epoch that ends where it ended before; else with what is complete, if that is enough."""
        number = last_of(self.done) + 1
        begin = self.cuts.end(number - 1)
        there = min(last_of(self._epochs[edge.name](sender.done)) for edge, sender in self.senders)
        if number in chosen:
            end = int(chosen[number].taken or 0)
            if there < end:
                return
        else:
            end = min(there, self._answered_up_to(there))
            enough = self._open.is_enough(self._policy, lasted=self.lasted)
            if end <= begin or not (hasten or enough):
                return
            if enough and self._policy.asks_rows:
                end = self._first_end(end)
        yield Step(number, tuple(message for _, message in self._waiting_up_to(end)), number, end)

    def _answered_up_to(self, there: int) -> int:
        """Gives the epoch before the first whose rows have not answered: an epoch ends no later than with what ends it."""
        first = next(iter(self.unmarked), None)
        if first is None:
            return there
        edge, time = first
        return int(self._epochs[edge].arrives(time) or 0) - 1

    def _first_end(self, end: int) -> int:
        """Gives the first epoch, up to one, with which all that is asked holds: what came since then is of the next."""
        known = _Known()
        for epoch, message in self._waiting_up_to(end):
            known.note(message.content, self._marks[message.edge, message.time])
            if known.is_enough(self._policy, lasted=self.lasted):
                return epoch
        return end

    def _waiting_up_to(self, end: int) -> list[tuple[int, Message]]:
        """Gives the messages that wait, of epochs up to one, in their order."""
        taken = [
            (edge, epoch, Message(edge, time, content))
            for edge, messages in self.waiting.items()
            for time, content in messages.items()
            if (epoch := self._epochs[edge].arrives(time)) is not None and epoch <= end
        ]
        return [(epoch, message) for _, epoch, message in sorted(taken, key=lambda each: each[:2])]

    def lacks(self) -> list[Processor]:
        """Gives nobody: what it waits for comes when it comes; who waits for it has it lack what it does."""
        return []

    def take(self, step: Step) -> None:
        """Notes that an epoch is done, and where it ended; what came meanwhile is of the next."""
        self.forget(step)
        for message in step.inputs:
            self._marks.pop((message.edge, message.time), None)
            self.unmarked.pop((message.edge, message.time), None)
        self.lasted, self._open = False, _Known()
        for _, message in self._waiting_up_to(LAST):
            key = message.edge, message.time
            if key not in self.unmarked:
                self._open.note(message.content, self._marks.get(key))
        if step.time == len(self.cuts):
            self.cuts.add(step.taken)
        self.done = Frontier.up_to(step.time)

    def call_off(self) -> None:
        """Begins another life: how long it has lasted is found out anew."""
        super().call_off()
        self.lasted = False

    def stands(self, step: Step, fixed: Mapping[str, AnyFrontier]) -> bool:
        """Also that all of its input's epochs are complete must be fixed."""
        return all(self._epochs[edge.name](fixed[edge.name]).contains(step.taken) for edge in self.inputs)
