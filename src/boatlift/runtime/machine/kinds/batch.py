"""Batches: an epoch of a batch covers many epochs of its input, and its end is a determinant (`EpochBoundaries`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from boatlift.dataflow import Batch
from boatlift.recovery import Edge, Vertex
from boatlift.runtime.machine.events import ProbeFailed, RowProbe, RowsProbed, TimerFired
from boatlift.runtime.machine.instructions import Message, ProbeRows, SetTimer
from boatlift.runtime.machine.kinds.gathered import CoarseEpochs
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.runtime.machine.program import Durability
from boatlift.storage.records.facts import Determinant
from boatlift.times import LAST, AnyFrontier, EpochBoundaries, last_of


@dataclass(slots=True)
class OpenEpoch:
    """The open epoch of a batch: counts, clocks and probes of the messages that wait for its end.

    Attributes:
        began, until: The earliest and the latest clock of a message, in milliseconds; None and 0 if no message has a
            clock.
        first: The last period of event time that the rows of the first message with any period reach; None if no
            message has one.
        ends: Whether the policy's condition holds for a message.
    """

    steps: int = 0
    began: int | None = None
    until: int = 0
    first: int | None = None
    last: int | None = None
    ends: bool = False
    rows: int = 0

    def note(self, clock: int | None, probe: RowProbe | None = None) -> None:
        """Take in the next message."""
        self.steps += 1
        if clock is not None:
            self.began = clock if self.began is None else min(clock, self.began)
            self.until = max(clock, self.until)
        if probe is None:
            return
        self.ends = self.ends or probe.ends
        self.rows += probe.rows
        if probe.period is not None:
            self.first = probe.period if self.first is None else self.first
            self.last = probe.period if self.last is None else max(probe.period, self.last)

    def is_full(self, policy: Batch) -> bool:
        """Return whether the epoch has the most rows that the policy allows."""
        return policy.rows is not None and self.rows >= policy.rows

    def satisfies(self, policy: Batch, *, lasted: bool) -> bool:
        """Return whether the epoch may end.

        An epoch may end when it is full; or when it has the steps and the duration of the policy, and its rows satisfy
        the policy's conditions.
        """
        if self.is_full(policy) or policy.is_bound_alone:
            return self.is_full(policy)
        milliseconds = 0 if self.began is None else self.until - self.began
        return (
            self.steps >= (policy.epochs or 1)
            and (lasted or milliseconds >= 1000 * policy.seconds)
            and (policy.event_time is None or (self.first is not None and (self.last or 0) > self.first))
            and (policy.when is None or self.ends)
        )


class BatchEpochs(CoarseEpochs[EpochBoundaries]):
    """Takes all complete input epochs as one epoch of its own, once the policy is satisfied.

    Facts about the open epoch are in memory only; a later incarnation collects them again. Only the ends of epochs are
    recorded.

    Args:
        boundaries: The recorded ends of its epochs.
        clock_of: A payload to its clock in milliseconds; None if it has none.

    Attributes:
        lasted: The open epoch has lasted as long as the policy asks for.
        unprobed: The messages that wait and were not probed, in arrival order; empty if the policy probes no rows.
    """

    def __init__(
        self,
        vertex: Vertex,
        durability: Durability,
        inputs: tuple[Edge, ...],
        outputs: tuple[Edge, ...],
        boundaries: EpochBoundaries,
        clock_of: Callable[[Any], int | None],
    ) -> None:
        super().__init__(vertex, durability, inputs, outputs, boundaries)
        assert durability.batch is not None  # or `Durability.check` refuses it
        self._clock_of, self._policy = clock_of, durability.batch
        self._probes: dict[tuple[str, Any], RowProbe] = {}
        self.unprobed: dict[tuple[str, Any], Message] = {}
        self._probing: Message | None = None
        self._timer: int | None = None
        self.lasted, self._open = False, OpenEpoch()

    @property
    def stops_at_once(self) -> bool:
        return True  # an epoch of a batch may take long

    @property
    def expects_probe(self) -> bool:
        return bool(self.unprobed)

    def put(self, edge: Edge, time: Any, payload: Any) -> None:
        """Let a message wait. If the policy probes rows, the message counts once its rows were probed."""
        if payload is None or time in self.waiting[edge.name] or self.came_before(edge, time):
            return
        self.waiting[edge.name].add(time, payload)
        if self._policy.asks_rows:
            self.unprobed[edge.name, time] = Message(edge.name, time, payload)
        else:
            self._open.note(self._clock_of(payload))

    def questions(self) -> Iterator[SetTimer | ProbeRows]:
        """Return the instructions that tell when the open epoch ends, each once: a timer, and the next probe."""
        deadline = self.deadline
        if deadline is not None and deadline != self._timer:
            self._timer = deadline
            yield SetTimer(self.name, self.incarnation, deadline)
        following = next(iter(self.unprobed.values()), None)
        if following is not None and following != self._probing:
            self._probing = following
            yield ProbeRows(self.name, self.incarnation, following)

    def learn(self, event: TimerFired | RowsProbed | ProbeFailed) -> None:
        """Record an answer, unless the epoch or the message that it is about is gone."""
        match event:
            case TimerFired(deadline=deadline):
                self.lasted = self.lasted or (self.deadline is not None and self.deadline <= deadline)
            case RowsProbed(message=message, probe=probe):
                if message == self._probing:
                    self._probing = None
                key = message.edge, message.time
                if self.unprobed.get(key) == message:
                    del self.unprobed[key]
                    self._probes[key] = probe
                    self._open.note(self._clock_of(message.payload), probe)
            case ProbeFailed(message=message):
                if message == self._probing:
                    self._probing = None

    @property
    def waits_for_input(self) -> bool:
        """True if the open epoch needs further steps before it can end, whatever the clock says."""
        if self.running or self.unprobed:
            return False
        number = last_of(self.done) + 1
        begin, known = self.cuts.end(number - 1), number < len(self.cuts)
        if self._complete <= begin or (known and self._complete < self.cuts.end(number)):
            return True
        unclocked = bool(self._policy.seconds) and self._open.began is None
        return unclocked or not self._open.satisfies(self._policy, lasted=True)

    @property
    def deadline(self) -> int | None:
        """The time at which the open epoch has lasted long enough; None if the clock does not matter."""
        if self.running or self.lasted or self._open.began is None or not self._policy.seconds:
            return None
        return self._open.began + round(1000 * self._policy.seconds)

    def clear(self) -> None:
        """Drop all messages that wait, and all facts about them: other messages may come in their place."""
        super().clear()
        self._probes.clear()
        self.unprobed.clear()
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.lasted, self._open, self._timer = False, OpenEpoch(), None

    def upcoming(self, determinants: Mapping[Any, Determinant], *, hasten: bool) -> Iterator[Step]:
        """Return the next epoch: with its recorded end; else with all complete input, if the policy is satisfied."""
        number = last_of(self.done) + 1
        begin = self.cuts.end(number - 1)
        complete = self._complete
        if number in determinants:
            end = self.cuts.end(number)
            if complete < end:
                return
        else:
            end = min(complete, self._probed_up_to(complete))
            enough = self._open.satisfies(self._policy, lasted=self.lasted)
            if end <= begin or not (hasten or enough):
                return
            if enough and self._policy.asks_rows:
                end = self._first_end(end)
        yield Step(number, tuple(message for _, message in self._waiting_up_to(end)), number, end)

    @property
    def _complete(self) -> int:
        """The last complete input epoch."""
        return min(self.complete(edge, sender) for edge, sender in self.senders)

    def _probed_up_to(self, complete: int) -> int:
        """Return the input epoch before the first unprobed one; after a recovery messages come in any order."""
        epochs = (int(self._epochs[edge].arrives(time) or 0) for edge, time in self.unprobed)
        return min(epochs, default=complete + 1) - 1

    def _first_end(self, end: int) -> int:
        """Return the first input epoch, up to `end`, that fills the open epoch or ends it by its rows; else `end`."""
        taken = OpenEpoch()
        for epoch, message in self._waiting_up_to(end):
            taken.note(self._clock_of(message.payload), self._probes[message.edge, message.time])
            policy = self._policy
            if taken.is_full(policy) or (policy.judges_rows and taken.satisfies(policy, lasted=self.lasted)):
                return epoch
        return end

    def _waiting_up_to(self, end: int) -> list[tuple[int, Message]]:
        """Return the messages that wait, of input epochs up to one, in order."""
        messages = [
            (edge, epoch, Message(edge, time, payload))
            for edge, waiting in self.waiting.items()
            for time, payload in waiting.items()
            if (epoch := self._epochs[edge].arrives(time)) is not None and epoch <= end
        ]
        return [(epoch, message) for _, epoch, message in sorted(messages, key=lambda each: each[:2])]

    def missing_senders(self) -> list[MachineProcessor]:
        return []  # an open epoch waits for input as long as it takes; receivers of the batch name its senders

    def take(self, step: Step) -> None:
        """Record that an epoch is done, and its end; messages that came meanwhile belong to the next epoch."""
        super().take(step)
        for message in step.inputs:
            self._probes.pop((message.edge, message.time), None)
            self.unprobed.pop((message.edge, message.time), None)
        self._begin_epoch()
        for _, message in self._waiting_up_to(LAST):
            key = message.edge, message.time
            if key not in self.unprobed:
                self._open.note(self._clock_of(message.payload), self._probes.get(key))

    def cancel_steps(self) -> None:
        super().cancel_steps()
        self.lasted, self._timer, self._probing = False, None, None

    def is_fixed(self, step: Step, fixed: Mapping[str, AnyFrontier]) -> bool:
        return all(self._epochs[edge.name](fixed[edge.name]).contains(step.taken) for edge in self.inputs)
