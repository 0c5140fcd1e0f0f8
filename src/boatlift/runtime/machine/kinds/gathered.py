"""Processors with epochs of their own, whose ends are determinants; and those that gather what comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, takewhile
from typing import Any, Generic, TypeVar

from boatlift.recovery import Edge, Vertex
from boatlift.runtime.machine.instructions import Message
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.runtime.machine.program import Durability
from boatlift.storage.records.facts import Determinant
from boatlift.times import (
    IDENTITY,
    AnyFrontier,
    EpochBoundaries,
    Frontier,
    GatheredBoundaries,
    Projection,
    epochs_cut,
    last_of,
)

Cuts = TypeVar("Cuts", EpochBoundaries, GatheredBoundaries)

MOST_GATHERED = 64
"""An epoch takes so many messages of an edge at most: this limits the cost of a failure."""


class CoarseEpochs(MachineProcessor, Generic[Cuts]):
    """Takes many messages of its inputs as one epoch of its own.

    Attributes:
        cuts: The ends of its epochs: of earlier epochs, and of epochs to repeat.
    """

    def __init__(
        self, vertex: Vertex, durability: Durability, inputs: tuple[Edge, ...], outputs: tuple[Edge, ...], cuts: Cuts
    ) -> None:
        super().__init__(vertex, durability, inputs, outputs)
        self.cuts: Cuts = cuts
        # `Program` has checked that the senders' times are epochs.
        self._epochs: dict[str, Projection] = {edge.name: epochs_cut(edge.projection) or IDENTITY for edge in inputs}

    def complete(self, edge: Edge, sender: MachineProcessor) -> int:
        """Return the last complete epoch of an input."""
        return last_of(self._epochs[edge.name](sender.done))

    def take(self, step: Step) -> None:
        """Record that an epoch is done, and its end."""
        self.forget(step)
        if step.time == len(self.cuts):
            self.cuts.add(step.taken)
        self.done = Frontier.up_to(step.time)


class Gathered(CoarseEpochs[GatheredBoundaries]):
    """Takes all that has come on all inputs as one epoch, whenever it is free (Clonos §4: order-insensitive inputs).

    Laws:
        * The messages of an edge are taken in their order, each once. An epoch has one message at least.
        * One determinant is recorded for an epoch, however many messages it has: the end of each edge.
        * A replay has the same epochs.
    """

    _one_by_one = 0  # so many messages are taken one at a time

    def narrow(self) -> None:
        """Take the messages of the step under way one at a time."""
        self._one_by_one = max((len(step.inputs) for step in self.running), default=0)

    def upcoming(self, determinants: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:  # noqa: ARG002
        """Return the epochs with recorded ends, as far as they are complete; if there are none, the next one."""
        first = last_of(self.done) + 1
        before = dict(self.cuts.end(first - 1))
        complete = {edge.name: self.complete(edge, sender) for edge, sender in self.senders}
        for number in takewhile(determinants.__contains__, count(first)):
            ends = dict(self.cuts.end(number))
            if any(complete[edge] < end for edge, end in ends.items()):
                return
            yield self._step(number, before, ends)
            before = ends
        if first in determinants:
            return
        ends = {edge: self._end(edge, last) for edge, last in complete.items()}
        if self._one_by_one:
            ends = self._of_one_message(ends, before)
        if any(before[edge] < end for edge, end in ends.items()):
            step = self._step(first, before, {edge: max(end, before[edge]) for edge, end in ends.items()})
            if step.inputs:
                yield step

    def take(self, step: Step) -> None:
        super().take(step)
        self._one_by_one = max(0, self._one_by_one - len(step.inputs))

    def is_fixed(self, step: Step, fixed: Mapping[str, AnyFrontier]) -> bool:
        return all(end <= last_of(self._epochs[edge](fixed[edge])) for edge, end in step.taken)

    def _end(self, edge: str, complete: int) -> int:
        """Return the epoch with which the next step ends on an edge: the last that is complete, of so many at most."""
        if len(self.waiting[edge]) <= MOST_GATHERED:
            return complete
        arrived = sorted(int(self._epochs[edge].arrives(time) or 0) for time in self.waiting[edge])
        return min(complete, arrived[MOST_GATHERED - 1])

    def _of_one_message(self, ends: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
        """Return the ends of a step that takes the first message of one edge alone; as they are if none waits."""
        for edge, end in ends.items():
            arrived = (int(self._epochs[edge].arrives(time) or 0) for time in self.waiting[edge])
            first = min((epoch for epoch in arrived if before[edge] < epoch <= end), default=None)
            if first is not None:
                return {**before, edge: first}
        return dict(ends)

    def _step(self, number: int, before: Mapping[str, int], ends: Mapping[str, int]) -> Step:
        taken = [
            (edge, epoch, Message(edge, time, payload))
            for edge, waiting in sorted(self.waiting.items())
            for time, payload in waiting.items()
            if (epoch := self._epochs[edge].arrives(time)) is not None and before[edge] < epoch <= ends[edge]
        ]
        inputs = tuple(message for _, _, message in sorted(taken, key=lambda each: each[:2]))
        return Step(number, inputs, number, tuple(sorted(ends.items())))
