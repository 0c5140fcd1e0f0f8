"""Events: what the shell tells the machine that happened."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from boatlift.runtime.machine.instructions import Message
from boatlift.times import AnyFrontier

__all__ = [
    "CommitUnknown",
    "EpochClosed",
    "Event",
    "LogDurable",
    "Persisted",
    "ProcessorsFailed",
    "RowsProbed",
    "SinkCommitted",
    "SinkPosition",
    "SourceIdle",
    "SourceWoken",
    "StepDone",
    "StopRequested",
    "TimerFired",
]


@dataclass(frozen=True, slots=True)
class EpochClosed:
    """A source has closed a time.

    Attributes:
        positions: What it takes: its determinants, and what is sent on.
        gathers: It took all that there was, and what comes meanwhile is gathered for the next: which is not closed before its turn, then.
    """

    source: str
    incarnation: int
    time: int
    positions: Any
    gathers: bool = False


@dataclass(frozen=True, slots=True)
class SourceIdle:
    """A source has nothing for the time that it was asked to close; if it has ended, it never will."""

    source: str
    incarnation: int
    time: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class SourceWoken:
    """A source that had nothing, or is about to say so, may be asked again."""

    source: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The epoch that a batch waits for has lasted as long as it is to, by the clock of whoever executes it, though no source says so."""

    processor: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class RowsProbed:
    """What the rows of a message say that waits for a batch.

    Attributes:
        message: Which; another may wait in its place by now.
        mark: `period` and `ends`, as `Engine.mark` gives them.
    """

    processor: str
    incarnation: int
    message: Message
    mark: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepDone:
    """A processor has executed a time.

    Attributes:
        outcome: What it chose; None if it chooses nothing.
        sent: Output edge to the message sent on it; an edge without one is left out.
        state: What it keeps for the times to come.
        digest: Of all that it sent, to be compared on replay; None if nobody asks.
        over: The run ends here: what else it was to take is ordered again.
        rows, milliseconds: What it cost: rows taken, and time; for who asks what a failure would.
    """

    processor: str
    incarnation: int
    time: Any
    outcome: Any = None
    sent: Mapping[str, Any] = field(default_factory=dict)
    state: Any = None
    digest: str | None = None
    over: bool = False
    rows: int = 0
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Persisted:
    """What was to be kept under this number survives any crash now."""

    number: int


@dataclass(frozen=True, slots=True)
class LogDurable:
    """What was to be written under this number survives any crash now, and all before it."""

    number: int


@dataclass(frozen=True, slots=True)
class SinkCommitted:
    """A sink holds what it was handed."""

    sink: str
    incarnation: int
    frontier: AnyFrontier


@dataclass(frozen=True, slots=True)
class CommitUnknown:
    """Whether a sink holds what it was handed is not known: it did not answer."""

    sink: str
    incarnation: int
    frontier: AnyFrontier


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """A sink holds this, and nothing of an earlier incarnation can change it any more."""

    sink: str
    incarnation: int
    frontier: AnyFrontier


@dataclass(frozen=True, slots=True)
class ProcessorsFailed:
    """Processors have lost their memory."""

    processors: AbstractSet[str]


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Sources are asked for nothing more: what was taken is finished and made durable, and then nothing is left to do.

    Attributes:
        drain: Whether what they have closed is taken as well; else it is there when the dataflow is begun again.
    """

    drain: bool = False


Event = (
    EpochClosed
    | SourceIdle
    | SourceWoken
    | TimerFired
    | RowsProbed
    | StepDone
    | Persisted
    | LogDurable
    | SinkCommitted
    | CommitUnknown
    | SinkPosition
    | ProcessorsFailed
    | StopRequested
)
