"""Batches: an epoch of theirs covers many of their input's, and where it ends is a choice (`Cuts`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from boatlift.dataflow import Batch
from boatlift.recovery import Edge, Vertex
from boatlift.runtime.regimes.acts import Message
from boatlift.runtime.regimes.processor import Processor, Step
from boatlift.runtime.regimes.regime import Regime
from boatlift.storage.facts import Chosen
from boatlift.times import IDENTITY, AnyFrontier, Cuts, Frontier, Projection, epochs_cut, last_of

__all__ = ["CoarseEpochs"]


class CoarseEpochs(Processor):
    """Takes all epochs that are complete, once there are enough of them; all at once, as one epoch of its own.

    Attributes:
        cuts: Where its epochs ended, and are to end again.
        lasted: The open epoch has lasted as long as it is to: forgotten with a crash, and found out anew.
    """

    def __init__(
        self, vertex: Vertex, regime: Regime, inputs: tuple[Edge, ...], outputs: tuple[Edge, ...], cuts: Cuts
    ) -> None:
        super().__init__(vertex, regime, inputs, outputs)
        self.cuts = cuts
        self.lasted = False
        # `Program` has seen to it that there are epochs to cut.
        self._epochs: dict[str, Projection] = {edge.name: epochs_cut(edge.projection) or IDENTITY for edge in inputs}

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
            end = there
            if end == begin or not (hasten or self._enough(begin, end)):
                return
        yield Step(number, tuple(message for _, message in self._waiting_up_to(end)), number, end)

    def _waiting_up_to(self, end: int) -> list[tuple[int, Message]]:
        """Gives the messages that wait, of epochs up to one, in their order, each with its epoch."""
        taken = [
            (epoch, Message(edge, time, content))
            for edge, messages in self.waiting.items()
            for time, content in messages.items()
            if (epoch := self._epochs[edge].arrives(time)) is not None and epoch <= end
        ]
        return sorted(taken, key=lambda each: (each[1].edge, each[0]))

    def _enough(self, begin: int, end: int) -> bool:
        """Whether there are as many epochs as it wants, over as long a time, by the clocks of those who closed them."""
        policy = self.regime.policy
        assert isinstance(policy, Batch)  # or `Regime.check` refuses it
        if end - begin < (policy.epochs or 1):
            return False
        contents = [m.content for _, m in self._waiting_up_to(end) if isinstance(m.content, Mapping)]
        return self._lasted(policy, contents) and _marked(policy, contents)

    def _lasted(self, policy: Batch, contents: Iterable[Mapping[str, Any]]) -> bool:
        clocks = [content["clock"] for content in contents if "clock" in content]
        lasted = max(clocks, default=0) - min(clocks, default=0)
        return self.lasted or policy.seconds <= 0 or lasted / 1000 >= policy.seconds

    def due(self) -> None:
        """Notes that the open epoch has lasted long enough, unless it is over meanwhile."""
        self.lasted = not self.running

    def call_off(self) -> None:
        """Begins another life: what waits may be something else."""
        super().call_off()
        self.lasted = False

    def take(self, step: Step) -> None:
        """Notes that an epoch is done, and where it ended."""
        self.forget(step)
        self.lasted = False
        if step.time == len(self.cuts.ends):
            self.cuts.add(step.taken)
        self.done = Frontier.up_to(step.time)

    def stands(self, step: Step, fixed: Mapping[str, AnyFrontier]) -> bool:
        """Also that all of its input's epochs are complete must be fixed."""
        return all(self._epochs[edge.name](fixed[edge.name]).contains(step.taken) for edge in self.inputs)


def _marked(policy: Batch, contents: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the rows themselves say that an epoch is over, if they are asked: `engine/marks.py` tells what of each step."""
    marks = [content["mark"] for content in contents if "mark" in content]
    periods = [mark["period"] for mark in marks if mark["period"] is not None]
    reached = policy.event_time is None or max(periods, default=0) > next(iter(periods), 0)
    return reached and (policy.when is None or any(mark["ends"] for mark in marks))
