"""Instructions: everything that the machine orders its shell to do.

A processor has *incarnations*: a new one begins whenever the processor is taken back, or its steps under way are
cancelled. An instruction carries the incarnation, its answer carries it back, and the machine drops an answer to an
earlier incarnation. A shell need not compare incarnations: an answer that comes late costs nothing, and steps under way
that are void are named by `Cancel`.

The instructions of one transition are in the order in which a shell begins them. It may finish them in any order,
except `AppendLog`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from boatlift.storage.records.facts import Fact
from boatlift.storage.records.soft_checkpoints import SoftFrame
from boatlift.times import AnyFrontier


@dataclass(frozen=True, slots=True)
class Message:
    """The rows that a processor sent on an edge at one time.

    Attributes:
        payload: What names the rows; opaque to the machine. None in a sequence domain if the sender sent nothing: a
            time without a message has its place in the order, too.
    """

    edge: str
    time: Any
    payload: Any


@dataclass(frozen=True, slots=True)
class StepInput:
    """The input of one step.

    Attributes:
        time: The time of the step, in the processor's domain.
        determinant: The step's recorded determinant; None if the step is executed for the first time, or has none.
        place: In a sequence domain, the step's place in the order of arrival: the number of messages taken before. None
            in other domains.
        cursor: The source's cursor after the last of these messages, if the step is computed from everything that the
            source ever gave; else None. The machine leaves it None; the shell fills it in.
    """

    time: Any
    inputs: tuple[Message, ...]
    determinant: Any = None
    place: int | None = None
    cursor: Any = None

    @property
    def number(self) -> Any:
        """The step's number in the log and for users: its time; in a sequence domain its place in the order."""
        return self.time if self.place is None else self.place


@dataclass(frozen=True, slots=True)
class PollSource:
    """Poll a source for the input of an epoch. Answer: `EpochClosed` or `SourceIdle`."""

    source: str
    incarnation: int
    time: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Wait until the clock reaches a deadline.

    Then the open epoch of a batch has lasted long enough, or a checkpoint of a state is due.

    Answer: `TimerFired`.

    A later `SetTimer` for the same processor replaces this one: the shell may forget the earlier deadline, or answer it
    too.
    """

    processor: str
    incarnation: int
    deadline: int  # milliseconds, by the clock that payloads carry


@dataclass(frozen=True, slots=True)
class ProbeRows:
    """Evaluate the condition of a batch's policy over the rows of one message. Answer: `RowsProbed` or `ProbeFailed`.

    The machine orders one probe at a time for each batch, also while the batch executes a step.
    """

    processor: str
    incarnation: int
    message: Message


@dataclass(frozen=True, slots=True)
class Restore:
    """A processor goes back to a durable state. No answer; its next `Execute` has the state again."""

    processor: str
    incarnation: int
    frontier: AnyFrontier  # the times whose effects the state holds
    state: Any  # the state; its payload is durable


@dataclass(frozen=True, slots=True)
class Execute:
    """Execute a processor's steps, one after the other.

    Answer: a `StepDone` for each step, in order. One with `over` is the last: the shell executes no further step.

    A processor has one `Execute` under way at a time. The shell answers a failure of the processor by
    `ProcessorsFailed`.

    Attributes:
        state: The processor's state before the first step; None at the start.
        again: Whether the steps only rebuild the state: they repeat logged inputs, and their messages were sent before.
    """

    processor: str
    incarnation: int
    takes: tuple[StepInput, ...]
    state: Any
    again: bool = False

    @property
    def time(self) -> Any:
        """The time of the first step."""
        return self.takes[0].time


@dataclass(frozen=True, slots=True)
class Prepare:
    """Get ready for the steps that a processor will execute next, beside the steps under way.

    No answer; the steps may never be ordered.
    """

    processor: str
    incarnation: int
    takes: tuple[StepInput, ...]

    @property
    def time(self) -> Any:
        """The time of the first step."""
        return self.takes[0].time


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the steps that a processor executes. No answer; an answer on its way is void.

    Law: every `Execute` whose answers become void before the last one has come is cancelled.
    """

    processor: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Persist:
    """Make payloads durable: states and messages of a processor.

    Answer: `Persisted`, unless the processor fails, which loses them.
    """

    number: int
    processor: str
    payloads: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AppendLog:
    """Make facts durable in the log, all or none, after those of every earlier `AppendLog`. Answer: `LogDurable`.

    Attributes:
        soft: The changes in memory that go with the facts. A shell that keeps soft checkpoints keeps it before the
            facts become durable, and from then on the payloads that it names, as long as a fold of the frames names
            them.
    """

    number: int
    facts: tuple[Fact, ...]
    soft: SoftFrame = field(default_factory=SoftFrame)


class Rests(Enum):
    """On what the times that a sink is handed rest."""

    STORED = "durable facts"
    HELD = "facts that enough standbys hold: each act says so"
    CARRIED = "facts that are being written: each act carries all of them, or waits for them"
    SUBMITTED = "facts that are being written: if they are lost, the rows come again, each with its own identity"


@dataclass(frozen=True, slots=True)
class CommitSink:
    """Make times visible at a sink. Answer: `SinkCommitted` or `CommitUnknown`.

    Attributes:
        frontier: The times that the sink holds afterwards.
        steps: Each time beyond the sink's present frontier that has messages, with these, in rising order.
        rests: By what facts they may be seen.
    """

    sink: str
    incarnation: int
    frontier: AnyFrontier
    steps: tuple[tuple[Any, tuple[Message, ...]], ...]
    rests: Rests = Rests.STORED


@dataclass(frozen=True, slots=True)
class CommitTogether:
    """Make times visible at several sinks, each time at all of them in one act. Answers: those of each order.

    Attributes:
        orders: Of each sink; all have the same frontier, and begin at the same one.
    """

    orders: tuple[CommitSink, ...]


@dataclass(frozen=True, slots=True)
class ReopenSink:
    """Ask a sink for its position, once no commit of an earlier incarnation can reach it any more.

    Answer: `SinkPosition`.

    A later `ReopenSink` for the same sink replaces this one.
    """

    sink: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class CollectGarbage:
    """Write a manifest, then delete every payload that `StateMachine.payloads` does not name. No answer."""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Inform a source that no recovery will ask it for these times again. No answer."""

    source: str
    frontier: AnyFrontier


@dataclass(frozen=True, slots=True)
class KeepPoint:
    """Record a restore point after all facts so far: no step is under way, and every state is durable. No answer.

    Attributes:
        name: The point's name.
        until: The time up to which the point is kept, in milliseconds since 1970; None: until it is dropped.
    """

    name: str
    until: int | None


@dataclass(frozen=True, slots=True)
class Finish:
    """End the run: everything is durable, and nothing is left to do. No answer."""

    payloads: tuple[Any, ...] = ()  # the payloads that durable facts name; no other is needed any more


Instruction = (
    PollSource
    | SetTimer
    | ProbeRows
    | Restore
    | Execute
    | Prepare
    | Cancel
    | Persist
    | AppendLog
    | CommitSink
    | CommitTogether
    | ReopenSink
    | CollectGarbage
    | Acknowledge
    | KeepPoint
    | Finish
)
