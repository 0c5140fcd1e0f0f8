"""Batches: an epoch of theirs covers many of their input's, and where it ends is a choice (`Cuts`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from boatlift.dataflow import Batch
from boatlift.recovery import Edge, Vertex
from boatlift.runtime.regimes.acts import Due, Marked, Message
from boatlift.runtime.regimes.processor import Processor, Step
from boatlift.runtime.regimes.regime import Regime
from boatlift.storage.facts import Chosen
from boatlift.times import IDENTITY, AnyFrontier, Cuts, Frontier, Projection, epochs_cut, last_of

__all__ = ["CoarseEpochs"]


class CoarseEpochs(Processor):
    """Takes all epochs that are complete, once there are enough of them; all at once, as one epoch of its own.

    What it knows of the open epoch is in memory only, and is found out anew by who comes after it: only where an epoch ended is recorded.

    Attributes:
        cuts: Where its epochs ended, and are to end again.
        lasted: The open epoch has lasted as long as it is to.
        began: The earliest clock of all that waits, in milliseconds; None if nothing does, or has one.
        unmarked: What waits and was not asked what its rows say, in the order in which it came; empty if rows are not asked.
    """

    def __init__(
        self, vertex: Vertex, regime: Regime, inputs: tuple[Edge, ...], outputs: tuple[Edge, ...], cuts: Cuts
    ) -> None:
        super().__init__(vertex, regime, inputs, outputs)
        self.cuts = cuts
        # `Program` has seen to it that there are epochs to cut.
        self._epochs: dict[str, Projection] = {edge.name: epochs_cut(edge.projection) or IDENTITY for edge in inputs}
        self._marks: dict[tuple[str, Any], Mapping[str, Any]] = {}
        self.unmarked: dict[tuple[str, Any], Message] = {}
        self._know_nothing()

    @property
    def _policy(self) -> Batch:
        policy = self.regime.policy
        assert isinstance(policy, Batch)  # or `Regime.check` refuses it
        return policy

    @property
    def takes_from_sources(self) -> bool:
        """When a stop is asked for it begins no epoch, whoever it takes from: that may take long."""
        return True

    @property
    def expects(self) -> bool:
        """Also what rows say."""
        return bool(self.unmarked)

    # -- what is known of the open epoch ------------------------------------------------------------------------------

    def _know_nothing(self) -> None:
        self.lasted = False
        self.began: int | None = None
        self._until = 0
        self._first: tuple[int, int] | None = None
        self._last: int | None = None
        self._ends = False

    def put(self, edge: Edge, time: Any, content: Any) -> None:
        """Lets a message wait, and notes its clock."""
        if content is None or time in self.waiting[edge.name] or self.came_before(edge, time):
            return
        self.waiting[edge.name][time] = content
        self._note_clock(content)
        if self._policy.asks_rows and (edge.name, time) not in self._marks:
            self.unmarked[edge.name, time] = Message(edge.name, time, content)

    def _note_clock(self, content: Any) -> None:
        if isinstance(content, Mapping) and "clock" in content:
            clock = int(content["clock"])
            self.began = clock if self.began is None else min(clock, self.began)
            self._until = max(clock, self._until)

    def learn(self, event: Due | Marked) -> None:
        """Notes that the open epoch has lasted long enough, or what the rows of a message say; unless it is over meanwhile."""
        match event:
            case Due():
                self.lasted = not self.running
            case Marked(_, _, edge, time, mark):
                if self.unmarked.pop((edge, time), None) is not None:
                    self._marks[edge, time] = mark
                    self._note_mark(edge, time, mark)

    def _note_mark(self, edge: str, time: Any, mark: Mapping[str, Any]) -> None:
        self._ends = self._ends or bool(mark["ends"])
        if mark["period"] is not None:
            period = int(mark["period"])
            at = (int(self._epochs[edge].arrives(time) or 0), period)
            self._first = at if self._first is None else min(at, self._first)
            self._last = period if self._last is None else max(period, self._last)

    def clear(self) -> None:
        """Also forgets what is known of what waited: it may come again as something else."""
        super().clear()
        self._marks.clear()
        self.unmarked.clear()
        self._know_nothing()

    # -- what it does next --------------------------------------------------------------------------------------------

    def upcoming(self, chosen: Mapping[Any, Chosen], *, hasten: bool) -> Iterator[Step]:
        """Gives the epoch that ends where it ended before; else with what is complete, if that is enough."""
        number = last_of(self.done) + 1
        begin = self.cuts.ends[number - 1] if number else -1
        there = min(last_of(self._epochs[edge.name](sender.done)) for edge, sender in self.senders)
        if number in chosen:
            end = int(chosen[number].taken or 0)
            if there < end:
                return
        else:
            end = min(there, self._asked_up_to(there))
            if end == begin or not (hasten or self._enough(end - begin)):
                return
        yield Step(number, tuple(self._waiting_up_to(end)), number, end)

    def _asked_up_to(self, there: int) -> int:
        """Gives the epoch before the first whose rows have not answered: an epoch ends no later than with what ends it."""
        first = next(iter(self.unmarked), None)
        if first is None:
            return there
        edge, time = first
        return int(self._epochs[edge].arrives(time) or 0) - 1

    def _enough(self, steps: int) -> bool:
        """Whether there are as many epochs as it wants, over as long a time, and the rows say so."""
        policy = self._policy
        milliseconds = 0 if self.began is None else self._until - self.began
        if steps < (policy.epochs or 1) or not (self.lasted or milliseconds >= 1000 * policy.seconds):
            return False
        reached = self._first is not None and self._last is not None and self._last > self._first[1]
        return (policy.event_time is None or reached) and (policy.when is None or self._ends)

    def _waiting_up_to(self, end: int) -> Iterable[Message]:
        """Gives the messages that wait, of epochs up to one, in their order."""
        taken = [
            (edge, epoch, Message(edge, time, content))
            for edge, messages in self.waiting.items()
            for time, content in messages.items()
            if (epoch := self._epochs[edge].arrives(time)) is not None and epoch <= end
        ]
        return (message for _, _, message in sorted(taken, key=lambda each: each[:2]))

    def lacks(self) -> list[Processor]:
        """Gives nobody: what it waits for comes when it comes; who waits for it has it lack what it does."""
        return []

    def take(self, step: Step) -> None:
        """Notes that an epoch is done, and where it ended; what came meanwhile is of the next."""
        self.forget(step)
        self._know_nothing()
        waiting = {(edge, time) for edge, messages in self.waiting.items() for time in messages}
        self._marks = {each: mark for each, mark in self._marks.items() if each in waiting}
        self.unmarked = {each: message for each, message in self.unmarked.items() if each in waiting}
        for messages in self.waiting.values():
            for content in messages.values():
                self._note_clock(content)
        for (edge, time), mark in self._marks.items():
            self._note_mark(edge, time, mark)
        if step.time == len(self.cuts.ends):
            self.cuts.add(step.taken)
        self.done = Frontier.up_to(step.time)

    def call_off(self) -> None:
        """Begins another life: how long it has lasted is found out anew."""
        super().call_off()
        self.lasted = False

    def stands(self, step: Step, fixed: Mapping[str, AnyFrontier]) -> bool:
        """Also that all of its input's epochs are complete must be fixed."""
        return all(self._epochs[edge.name](fixed[edge.name]).contains(step.taken) for edge in self.inputs)
