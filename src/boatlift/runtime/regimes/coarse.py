"""Batches: an epoch of theirs covers many of their input's, and where it ends is a choice (`Cuts`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from boatlift.dataflow import Batch
from boatlift.recovery import Edge, Vertex
from boatlift.runtime.regimes.acts import Message
from boatlift.runtime.regimes.processor import Processor, Step
from boatlift.runtime.regimes.regime import Regime
from boatlift.storage.facts import Chosen
from boatlift.times import AnyFrontier, Cuts, Frontier, last_of

__all__ = ["CoarseEpochs"]


class CoarseEpochs(Processor):
    """Takes all epochs that are complete, once there are enough of them; all at once, as one epoch of its own.

    Attributes:
        cuts: Where its epochs ended, and are to end again.
    """

    def __init__(
        self, vertex: Vertex, regime: Regime, inputs: tuple[Edge, ...], outputs: tuple[Edge, ...], cuts: Cuts
    ) -> None:
        super().__init__(vertex, regime, inputs, outputs)
        self.cuts = cuts

    def upcoming(self, chosen: Mapping[Any, Chosen], *, hasten: bool) -> Iterator[Step]:
        """Gives the epoch that ends where it ended before; else with what is complete, if that is enough."""
        number = last_of(self.done) + 1
        begin = self.cuts.ends[number - 1] if number else -1
        there = min(last_of(sender.done) for _, sender in self.senders)
        if number in chosen:
            end = int(chosen[number].taken or 0)
            if there < end:
                return
        else:
            end = there
            if end == begin or not (hasten or self._enough(begin, end)):
                return
        taken = [
            Message(edge, time, content)
            for edge, messages in self.waiting.items()
            for time, content in messages.items()
            if time <= end
        ]
        yield Step(number, tuple(sorted(taken, key=lambda message: (message.edge, message.time))), number, end)

    def _enough(self, begin: int, end: int) -> bool:
        """Whether there are as many epochs as it wants, over as long a time, by the clocks of those who closed them."""
        policy = self.regime.policy
        assert isinstance(policy, Batch)  # or `Regime.check` refuses it
        if end - begin < (policy.epochs or 1):
            return False
        if policy.seconds <= 0:
            return True
        clocks = [
            content["clock"]
            for messages in self.waiting.values()
            for time, content in messages.items()
            if time <= end and isinstance(content, Mapping) and "clock" in content
        ]
        return bool(clocks) and (max(clocks) - min(clocks)) / 1000 >= policy.seconds

    def take(self, step: Step) -> None:
        """Notes that an epoch is done, and where it ended."""
        self.forget(step)
        if step.time == len(self.cuts.ends):
            self.cuts.add(step.taken)
        self.done = Frontier.up_to(step.time)

    def stands(self, step: Step, fixed: Mapping[str, AnyFrontier]) -> bool:
        """Also that all of its input's epochs are complete must be fixed."""
        return all(fixed[edge.name].contains(step.taken) for edge in self.inputs)
