"""What happens to processors, and what is to be done: events in, instructions out.

A processor has *lives*: it begins another one whenever it is taken back, or what it does is called off. Instructions carry the life, and
answers to an earlier one count for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from boatlift.storage.facts import Fact
from boatlift.times import AnyFrontier

__all__ = [
    "Acknowledge",
    "Ask",
    "Cancel",
    "Close",
    "Closed",
    "Collect",
    "Due",
    "Durable",
    "Event",
    "Failed",
    "Finish",
    "Holds",
    "Idle",
    "Instruction",
    "Keep",
    "Kept",
    "Marked",
    "Message",
    "Place",
    "Placed",
    "Prepare",
    "Ran",
    "Run",
    "Stop",
    "Take",
    "Unsure",
    "Wake",
    "Write",
]

# -- instructions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """What an edge's sender sent at a time of its own: a run. None in a sequence, where nothing has its place too."""

    edge: str
    time: Any
    content: Any


@dataclass(frozen=True, slots=True)
class Close:
    """Ask a source to close a time. Answer: `Closed` or `Idle`.

    Attributes:
        after: The positions of the time before; None at the start.
    """

    source: str
    life: int
    time: int
    after: Any


@dataclass(frozen=True, slots=True)
class Take:
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
class Run:
    """Execute a processor at one time, or several, one after the other. Answer: a `Ran` for each, in order; the last may come early.

    Attributes:
        takes: What it takes at each.
        state: What it kept from the time before; None at the start.
        again: Only its state is asked for: it is to be what it was, from inputs that were kept. What it sends is there already.
    """

    processor: str
    life: int
    takes: tuple[Take, ...]
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
    life: int
    takes: tuple[Take, ...]

    @property
    def time(self) -> Any:
        """The first of its times."""
        return self.takes[0].time


@dataclass(frozen=True, slots=True)
class Cancel:
    """Call off what a processor runs. No answer; one that is on its way is void."""

    processor: str
    life: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Make what is named durable: states, messages. Answer: `Kept`, unless the processor fails, which loses them. Nothing waits in between."""

    number: int
    processor: str
    contents: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Make facts durable, together, after all that were to be written before. Answer: `Durable`."""

    number: int
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Make times visible at a sink, in one act. Answer: `Placed` or `Unsure`.

    Attributes:
        frontier: What the sink holds then.
        steps: Each time beyond what it holds now at which something came, with what came.
    """

    sink: str
    life: int
    frontier: AnyFrontier
    steps: tuple[tuple[Any, tuple[Message, ...]], ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a sink what it holds, once nothing of an earlier life can reach it any more. Answer: `Holds`."""

    sink: str
    life: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Write a manifest, and delete what it makes garbage. No answer."""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Tell a source that it will never be asked for these times again. No answer."""

    source: str
    frontier: AnyFrontier


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do. No answer."""


Instruction = Close | Run | Prepare | Cancel | Keep | Write | Place | Ask | Collect | Acknowledge | Finish

# -- events ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Closed:
    """A source has closed a time.

    Attributes:
        positions: What it takes: its determinants, and what is sent on.
        gathers: It took all that there was, and what comes meanwhile is gathered for the next: which is not closed before its turn, then.
    """

    source: str
    life: int
    time: int
    positions: Any
    gathers: bool = False


@dataclass(frozen=True, slots=True)
class Idle:
    """A source has nothing for the time that it was asked to close; if it has ended, it never will."""

    source: str
    life: int
    time: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Wake:
    """A source that had nothing, or is about to say so, may be asked again."""

    source: str


@dataclass(frozen=True, slots=True)
class Due:
    """The epoch that a batch waits for has lasted as long as it is to, by the clock of whoever executes it, though no source says so."""

    processor: str
    life: int


@dataclass(frozen=True, slots=True)
class Marked:
    """What the rows of a message say that waits for a batch.

    Attributes:
        message: Which; another may wait in its place by now.
        mark: `period` and `ends`, as `Engine.mark` gives them.
    """

    processor: str
    life: int
    message: Message
    mark: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ran:
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
    life: int
    time: Any
    outcome: Any = None
    sent: Mapping[str, Any] = field(default_factory=dict)
    state: Any = None
    digest: str | None = None
    over: bool = False
    rows: int = 0
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Kept:
    """What was to be kept under this number survives any crash now."""

    number: int


@dataclass(frozen=True, slots=True)
class Durable:
    """What was to be written under this number survives any crash now, and all before it."""

    number: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A sink holds what it was handed."""

    sink: str
    life: int
    frontier: AnyFrontier


@dataclass(frozen=True, slots=True)
class Unsure:
    """Whether a sink holds what it was handed is not known: it did not answer."""

    sink: str
    life: int
    frontier: AnyFrontier


@dataclass(frozen=True, slots=True)
class Holds:
    """A sink holds this, and nothing of an earlier life can change it any more."""

    sink: str
    life: int
    frontier: AnyFrontier


@dataclass(frozen=True, slots=True)
class Failed:
    """Processors have lost their memory."""

    processors: AbstractSet[str]


@dataclass(frozen=True, slots=True)
class Stop:
    """Sources are asked for nothing more: what was taken is finished and made durable, and then nothing is left to do.

    Attributes:
        drain: Whether what they have closed is taken as well; else it is there when the dataflow is begun again.
    """

    drain: bool = False


Event = Closed | Idle | Wake | Due | Marked | Ran | Kept | Durable | Placed | Unsure | Holds | Failed | Stop
