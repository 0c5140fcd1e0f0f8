"""What is to be done: the instructions that the state machine gives.

The shell carries them out, each at its own pace and several at once, and answers with events.
"""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.dataflow import Json, Staged
from boatlift.storage.records import Record

__all__ = [
    "Acknowledge",
    "Append",
    "Commit",
    "Finish",
    "Free",
    "Instruction",
    "Manifest",
    "Poll",
    "Prepare",
    "Run",
    "Save",
    "Step",
]


@dataclass(frozen=True, slots=True)
class Poll:
    """Ask a source to close this time. Answer: `Proposed` or `Nothing`."""

    source: str
    time: int


@dataclass(frozen=True, slots=True)
class Append:
    """Make records durable, together. Answer: `Durable`."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A time with its determinants.

    Attributes:
        time: Which.
        position: What the source takes in it.
        clock, seed: What `bl.now()`, `bl.rand()` and `bl.uuid()` give in it.
        replay: It was executed before a crash; the input must be proved unchanged.
    """

    time: int
    position: Json
    clock: int
    seed: int
    replay: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Execute a unit over one time or several that follow each other. Answer: `Ran`, with a result for each or the first.

    Times are executed as one job where that is faster; what each of them gives is the same either way.
    """

    unit: str
    steps: tuple[Step, ...]

    @property
    def time(self) -> int:
        """The first of its times."""
        return self.steps[0].time

    @property
    def last(self) -> int:
        """The last of its times."""
        return self.steps[-1].time


@dataclass(frozen=True, slots=True)
class Prepare:
    """Get ready for a run that will be ordered when its turn comes. No answer."""

    order: Run


@dataclass(frozen=True, slots=True)
class Commit:
    """Make a time visible at a sink. Answer: `Placed`.

    Attributes:
        rows: How many rows were staged for this sink.
        digest: Of the unit's whole output, the same for each of its sinks.
    """

    sink: str
    time: int
    rows: int
    digest: str
    staged: tuple[Staged, ...]


@dataclass(frozen=True, slots=True)
class Save:
    """Make a unit's state, as it is when this instruction is given, durable. Answer: `Saved`."""

    unit: str
    time: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Write a manifest, then delete what it made garbage. Answer: `Manifested`."""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Tell a source that it will never be asked for this position again. No answer."""

    source: str
    time: int
    position: Json


@dataclass(frozen=True, slots=True)
class Free:
    """Drop what a unit's step left in scratch: everyone has taken it. No answer."""

    unit: str
    time: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do: close. No answer."""


Instruction = Poll | Append | Run | Prepare | Commit | Save | Manifest | Acknowledge | Free | Finish
