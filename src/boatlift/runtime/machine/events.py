"""Events: everything that a shell reports to the machine.

An event that answers an instruction repeats those of its fields that both have, such as the incarnation. The machine
drops an event of an earlier incarnation, and an event that answers nothing that the machine waits for: so a shell may
report late, and twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from boatlift.runtime.machine.instructions import Message
from boatlift.times import AnyFrontier


@dataclass(frozen=True, slots=True)
class EpochClosed:
    """A source has closed an epoch: an answer to `PollSource`.

    Attributes:
        source, incarnation, time: As in the `PollSource`. The positions become those of a later epoch if the source has
            closed epochs without input since it was polled: these leave its cursor where it was.
        positions: The source's determinants of this epoch; also the payload of its messages.
        gathers: The source gave its whole backlog, and gathers new input for the next epoch. The machine then polls the
            next epoch no earlier than its turn.
    """

    source: str
    incarnation: int
    time: int
    positions: Any
    gathers: bool = False


@dataclass(frozen=True, slots=True)
class SourceIdle:
    """A source has no input for the epoch that it was polled for: an answer to `PollSource`.

    Attributes:
        ended: The source will never have more input. Without it the source is polled again after a `SourceWoken`.
    """

    source: str
    incarnation: int
    time: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class SourceWoken:
    """An idle source may have new input. The event may come before the `SourceIdle` that it ends."""

    source: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The clock has reached a deadline: an answer to `SetTimer`.

    A late event is as good; an early one is a fault of the shell.
    """

    processor: str
    incarnation: int
    deadline: int


@dataclass(frozen=True, slots=True)
class RowProbe:
    """The result of evaluating the row conditions of a batch's policy over one message.

    Attributes:
        period: The number of the last period of event time that the rows reach; None if the policy does not ask for it,
            or no row reaches one.
        ends: Whether the condition holds.
    """

    period: int | None
    ends: bool
    rows: int = 0


@dataclass(frozen=True, slots=True)
class RowsProbed:
    """The rows of a message have been probed: an answer to `ProbeRows`.

    Attributes:
        processor, incarnation, message: As in the `ProbeRows`. Another message may wait at the same time by now; the
            answer is void then.
    """

    processor: str
    incarnation: int
    message: Message
    probe: RowProbe


@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """The rows of a message could not be probed: an answer to `ProbeRows`.

    The machine gives the same `ProbeRows` again if it still needs the result. So the shell counts a failure, and rests,
    only then.
    """

    processor: str
    incarnation: int
    message: Message


@dataclass(frozen=True, slots=True)
class StepDone:
    """A processor has executed a step: an answer to `Execute`, one for each of its steps, in order.

    Attributes:
        determinant: The step's determinant beside its input; None if it has none.
        sent: Output edge to the payload sent on it; an edge without a message is left out.
        state: The processor's state after the step; None if the processor keeps no state.
        digest: The digest of all rows sent, to be compared on replay; None if results are not compared.
        over: The shell executes no further step of this `Execute`. The machine orders the others again.
        rows, milliseconds: The cost of the step, for estimates of a failure's cost: rows taken, and duration.
    """

    processor: str
    incarnation: int
    time: Any
    determinant: Any = None
    sent: Mapping[str, Any] = field(default_factory=dict)
    state: Any = None
    digest: str | None = None
    over: bool = False
    rows: int = 0
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Persisted:
    """Payloads are durable: an answer to `Persist`."""

    number: int


@dataclass(frozen=True, slots=True)
class LogDurable:
    """Facts are durable in the log, and so are the facts of every earlier number: an answer to `AppendLog`."""

    number: int


@dataclass(frozen=True, slots=True)
class EntriesHeld:
    """So many standbys hold the facts of an `AppendLog`, and of every earlier number."""

    holders: int
    number: int


@dataclass(frozen=True, slots=True)
class SinkCommitted:
    """A sink holds the steps that it was handed: an answer to `CommitSink`.

    Attributes:
        stored: Its account is durable; else standbys hold it, and it is in the log before the next facts.
    """

    sink: str
    incarnation: int
    frontier: AnyFrontier
    stored: bool = True


@dataclass(frozen=True, slots=True)
class CommitUnknown:
    """A sink did not answer: it may hold all, some or none of the steps that it was handed. An answer to `CommitSink`.

    The machine asks the sink for its position, by `ReopenSink`, before it hands over anything else.
    """

    sink: str
    incarnation: int
    frontier: AnyFrontier


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """A sink holds exactly this, and no commit of an earlier incarnation can reach it any more.

    The event answers `ReopenSink`. `stored` is as of `SinkCommitted`.
    """

    sink: str
    incarnation: int
    frontier: AnyFrontier
    stored: bool = True


@dataclass(frozen=True, slots=True)
class ProcessorsFailed:
    """Processors have lost their memory: their states, and the messages that they sent or took.

    Durable states and messages remain.

    Attributes:
        narrow: Those among them that gather, and whose step would fail again: for as many messages as that step had,
            they take one at a time, so that the failure is that of one message.
    """

    processors: AbstractSet[str]
    narrow: AbstractSet[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A clean stop is requested.

    No source is polled any more, steps under way end and become durable, then the machine finishes.

    Attributes:
        drain: The epochs that sources have closed are executed too. Without it they are executed after the next start.
    """

    drain: bool = False


@dataclass(frozen=True, slots=True)
class PointRequested:
    """A restore point is requested.

    Steps under way end, every state becomes durable, then the machine orders `KeepPoint` and goes on. If it finishes
    meanwhile, the point is its end.

    Attributes:
        name: The point's name.
        until: As of `KeepPoint`.
    """

    name: str
    until: int | None = None


Event = (
    EpochClosed
    | SourceIdle
    | SourceWoken
    | TimerFired
    | RowsProbed
    | ProbeFailed
    | StepDone
    | Persisted
    | LogDurable
    | EntriesHeld
    | SinkCommitted
    | CommitUnknown
    | SinkPosition
    | ProcessorsFailed
    | StopRequested
    | PointRequested
)
