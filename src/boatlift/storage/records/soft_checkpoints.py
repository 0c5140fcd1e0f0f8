"""Soft checkpoints: what a machine has in memory, kept where the death of its process alone does not reach.

The payloads of a machine are files in scratch, which outlive the process that wrote them. So a successor on the same
computer needs only their names: with them it *adopts* the memory of its predecessor, and executes nothing again.
Without them, after a loss of power or on another computer, it recovers from the durable facts. No answer of the monitor
rests on a soft checkpoint.

With each write of the log goes a `SoftFrame`: what has changed in memory since the frame before. A frame counts only if
the log has its facts. Then memory and log are of one moment, and adoption is the recovery from a partial failure in
which only sources and sinks have failed (Falkirk Wheel §3.6: whatever has not failed keeps ⊤).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import msgspec
from msgspec.structs import replace

from boatlift.storage.records.facts import Determinant, Fact, payloads_of
from boatlift.times import Maximal, Time, read_frontier


class SoftPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory of one processor.

    Attributes:
        done, state, replayed, kept: As in `MachineProcessor`.
        unsaved, unsaved_since, unsaved_rows, unsaved_bytes: The steps that no checkpoint has, as in `Unsaved`.
        sent: Output edge to its messages by time: those since the part before, or all if the part `begins`.
        unrecorded: As in `MachineProcessor`; those since the part before.
        recorded: The earlier ones are among the facts by now.
    """

    processor: str
    done: Maximal
    state: Any = None
    sent: dict[str, tuple[tuple[Time, Any], ...]] = {}
    begins: bool = False
    unsaved: int = 0
    unsaved_since: int | None = None
    replayed: int = 0
    unrecorded: tuple[Determinant, ...] = ()
    recorded: bool = False
    kept: dict[str, Time] = {}
    unsaved_rows: int = 0
    unsaved_bytes: int = 0


class SoftFrame(msgspec.Struct, frozen=True, omit_defaults=True):
    """The changes in a machine's memory from one write of the log to the next.

    Attributes:
        parts: Of the processors that have changed.
        waiting: The facts of each processor that wait for payloads to be durable; None: as before.
        needless: Edge to the times of messages that no receiver needs any more.
        begins: Nothing of an earlier frame counts: a recovery came between.
    """

    parts: tuple[SoftPart, ...] = ()
    waiting: tuple[tuple[str, tuple[Fact, ...]], ...] | None = None
    needless: dict[str, Maximal] = {}
    begins: bool = False


class SoftCheckpoint:
    """The memory of a machine at one moment: a fold of frames.

    Law: `SoftCheckpoint.of([c.frame()]).frame()` equals `c.frame()`.

    Attributes:
        parts: Processor to its memory. A processor that has failed, or rebuilds its state, is left out.
    """

    def __init__(self) -> None:
        self.parts: dict[str, SoftPart] = {}
        self.waiting: tuple[tuple[str, tuple[Fact, ...]], ...] = ()
        self._sent: dict[str, dict[str, dict[Time, Any]]] = {}
        self._unrecorded: dict[str, list[Determinant]] = {}

    @classmethod
    def of(cls, frames: Iterable[SoftFrame]) -> SoftCheckpoint:
        memory = cls()
        for frame in frames:
            memory.apply(frame)
        return memory

    def apply(self, frame: SoftFrame) -> None:
        if frame.begins:
            self.parts, self._sent, self._unrecorded = {}, {}, {}
        for part in frame.parts:
            name = part.processor
            if part.begins:
                self._sent[name] = {}
            if part.begins or part.recorded:
                self._unrecorded[name] = []
            sent = self._sent.setdefault(name, {})
            for edge, messages in part.sent.items():
                sent.setdefault(edge, {}).update(messages)
            self._unrecorded.setdefault(name, []).extend(part.unrecorded)
            self.parts[name] = replace(part, sent={}, unrecorded=(), recorded=False, begins=True)
        if frame.waiting is not None:
            self.waiting = frame.waiting
        for sent in self._sent.values() if frame.needless else ():
            for edge, kept in sent.items():
                needless = read_frontier(frame.needless.get(edge, ()))
                for time in [*takewhile(needless.contains, kept)]:  # in order of time, so that the scan ends soon
                    del kept[time]

    def leave_out(self, processors: Iterable[str]) -> None:
        """Forget processors, whose payloads are lost."""
        for name in processors:
            for of in (self.parts, self._sent, self._unrecorded):
                of.pop(name, None)

    def sent(self, processor: str) -> Mapping[str, Mapping[Time, Any]]:
        """Return the messages that a processor has in memory: output edge to time to payload."""
        return self._sent.get(processor, {})

    def unrecorded(self, processor: str) -> tuple[Determinant, ...]:
        """Return the determinants of a processor's unsaved steps that are no facts yet, and maybe some that are."""
        return tuple(self._unrecorded.get(processor, ()))

    def names(self) -> set[str]:
        """Return the processors with payloads."""
        return {*self.parts, *(name for name, _ in self.waiting)}

    def payloads(self, processor: str) -> Iterator[Any]:
        """Return the payloads of a processor's state, messages and waiting facts."""
        if processor in self.parts:
            yield self.parts[processor].state
        for messages in self.sent(processor).values():
            yield from messages.values()
        for name, facts in self.waiting:
            if name == processor:
                for fact in facts:
                    yield from payloads_of(fact)

    def frame(self) -> SoftFrame:
        """Return one frame that has the meaning of all frames so far."""
        parts = tuple(
            replace(
                part,
                sent={edge: tuple(messages.items()) for edge, messages in self.sent(name).items() if messages},
                unrecorded=self.unrecorded(name),
            )
            for name, part in sorted(self.parts.items())
        )
        return SoftFrame(parts, self.waiting, begins=True)


def memory_at_the_end(
    kept: Iterable[tuple[int, Sequence[SoftFrame]]], acted: int, fenced: int
) -> SoftCheckpoint | None:
    """Return the memory of an owner at the end of the log; None if its frames do not reach it.

    Args:
        kept: The numbers of the owner's objects of the log in order, each with the frames that go with it.
        acted: The number of the last object that is no claim.
        fenced: The number of the next claim: the owner could not write this object, nor any after it.
    """
    valid = [(number, frames) for number, frames in kept if number < fenced]
    if not valid or valid[-1][0] < acted:
        return None
    return SoftCheckpoint.of(frame for _, frames in valid for frame in frames)
