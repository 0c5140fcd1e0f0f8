"""What happens to a dataflow: the events that drive the state machine.

Events are facts from outside the machine: a job ended, a group of records is durable. They are data, so that recorded
events rebuild a machine, and a simulation can make them up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from boatlift.dataflow import Json, Outcome, Staged
from boatlift.storage.records import Record, RunRef

__all__ = [
    "Durable",
    "Event",
    "Manifested",
    "Nothing",
    "Placed",
    "Proposed",
    "Ran",
    "Refused",
    "Saved",
    "StepResult",
    "StopRequested",
    "Wake",
]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a unit made of a time.

    Attributes:
        rows, digest: Of all output rows; the digest does not depend on how they were divided.
        rows_in: Rows taken.
        staged: Sink to the receipts of its tasks, in order of partition.
        seconds: How long it took, for people; of a job over several times its share.
    """

    rows: int
    digest: str
    rows_in: int = 0
    staged: Mapping[str, tuple[Staged, ...]] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Proposed:
    """A source has closed a time: its determinants are made, not yet durable."""

    source: str
    time: int
    position: Json
    clock: int
    seed: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """A source has nothing new at present."""

    source: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A source cannot give what comes next: what it has closed is finished, then the dataflow ends with the error."""

    source: str


@dataclass(frozen=True, slots=True)
class Wake:
    """A source that had nothing may be asked again."""

    source: str


@dataclass(frozen=True, slots=True)
class Durable:
    """These records survive any crash now."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Ran:
    """A unit has executed times that follow each other, from this one on."""

    unit: str
    time: int
    results: tuple[StepResult, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A sink holds a time."""

    sink: str
    time: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Saved:
    """The runs that make up a unit's state at a time are durable; the checkpoint that names them is not yet."""

    unit: str
    time: int
    runs: tuple[RunRef, ...]


@dataclass(frozen=True, slots=True)
class Manifested:
    """A manifest is durable, and what it made garbage is gone."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The user wants a clean stop: finish the steps that run, take nothing new."""


Event = Proposed | Nothing | Refused | Wake | Durable | Ran | Placed | Saved | Manifested | StopRequested
