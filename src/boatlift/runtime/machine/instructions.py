"""Instructions: what the machine tells its shell to do.

A processor has *incarnations*: it begins another one whenever it is taken back, or what it does is called off. Instructions carry the
incarnation, and answers to an earlier one count for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from boatlift.storage.records.facts import Fact
from boatlift.times import AnyFrontier

__all__ = [
    "Acknowledge",
    "AppendLog",
    "Cancel",
    "CollectGarbage",
    "CommitSink",
    "Execute",
    "Finish",
    "Instruction",
    "Message",
    "Persist",
    "PollSource",
    "Prepare",
    "ReopenSink",
    "StepInput",
]


@dataclass(frozen=True, slots=True)
class Message:
    """What an edge's sender sent at a time of its own: a run. None in a sequence, where nothing has its place too."""

    edge: str
    time: Any
    content: Any


@dataclass(frozen=True, slots=True)
class PollSource:
    """Ask a source to close a time. Answer: `EpochClosed` or `SourceIdle`.

    Attributes:
        after: The positions of the time before; None at the start.
    """

    source: str
    incarnation: int
    time: int
    after: Any


@dataclass(frozen=True, slots=True)
class StepInput:
    """What a processor is to take at a time.

    Attributes:
        inputs: The messages.
        outcome: What it chose when it ran before; None if it is to choose.
        event: In a sequence domain, how many it has taken before.
    """

    time: Any
    inputs: tuple[Message, ...]
    outcome: Any = None
    event: int | None = None

    @property
    def number(self) -> Any:
        """By what the time goes outside of the processor: itself, or that of the event."""
        return self.time if self.event is None else self.event


@dataclass(frozen=True, slots=True)
class Execute:
    """Execute a processor at one time, or several, one after the other. Answer: a `StepDone` for each, in order; the last may come early.

    Attributes:
        takes: What it takes at each.
        state: What it kept from the time before; None at the start.
        again: Only its state is asked for: it is to be what it was, from inputs that were kept. What it sends is there already.
    """

    processor: str
    incarnation: int
    takes: tuple[StepInput, ...]
    state: Any
    again: bool = False

    @property
    def time(self) -> Any:
        """The first of its times."""
        return self.takes[0].time


@dataclass(frozen=True, slots=True)
class Prepare:
    """Get ready for what a processor is to execute next, beside what it executes now; it may be called off. No answer."""

    processor: str
    incarnation: int
    takes: tuple[StepInput, ...]

    @property
    def time(self) -> Any:
        """The first of its times."""
        return self.takes[0].time


@dataclass(frozen=True, slots=True)
class Cancel:
    """Call off what a processor runs. No answer; one that is on its way is void."""

    processor: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Persist:
    """Make what is named durable: states, messages. Answer: `Persisted`, unless the processor fails, which loses them. Nothing waits in between."""

    number: int
    processor: str
    contents: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AppendLog:
    """Make facts durable, together, after all that were to be written before. Answer: `LogDurable`."""

    number: int
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class CommitSink:
    """Make times visible at a sink, in one act. Answer: `SinkCommitted` or `CommitUnknown`.

    Attributes:
        frontier: What the sink holds then.
        steps: Each time beyond what it holds now at which something came, with what came.
    """

    sink: str
    incarnation: int
    frontier: AnyFrontier
    steps: tuple[tuple[Any, tuple[Message, ...]], ...]


@dataclass(frozen=True, slots=True)
class ReopenSink:
    """Ask a sink what it holds, once nothing of an earlier incarnation can reach it any more. Answer: `SinkPosition`."""

    sink: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class CollectGarbage:
    """Write a manifest, and delete what it makes garbage. No answer."""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Tell a source that it will never be asked for these times again. No answer."""

    source: str
    frontier: AnyFrontier


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do. No answer."""


Instruction = (
    PollSource
    | Execute
    | Prepare
    | Cancel
    | Persist
    | AppendLog
    | CommitSink
    | ReopenSink
    | CollectGarbage
    | Acknowledge
    | Finish
)
