"""The records of the log: what is decided, made and kept, one immutable fact each.

On disk a record is msgpack by msgspec, tagged by its kind; `docs/formats/log.md` describes the bytes.
A *group* of records is one numbered object; a group is durable whole or not at all.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from boatlift.storage.records.facts import Fact, Recorded, Time
from boatlift.times import LAST

__all__ = [
    "Admitted",
    "Claim",
    "Cursor",
    "Milliseconds",
    "Override",
    "Record",
    "RunRef",
    "SinkCommit",
    "Snapshot",
    "Stopped",
]

_Step = Annotated[int, Meta(ge=-1, lt=LAST)]
"""The last of some steps; -1 for none."""
Milliseconds = Annotated[int, Meta(ge=0, lt=253_402_300_800_000)]
"""Since 1970, up to the last year that a date has."""


class RunRef(Recorded, frozen=True):
    """A run by name, with all that is needed to trust and place it.

    Attributes:
        name: The object's name in the store (`runs/…`), or a scratch file's path before it is durable.
        first, last: The interval of times whose effects it holds.
        modulus, residue: It holds key groups g with g % modulus == residue.
        rows: Number of rows.
        size: Bytes.
        digest: xxh3-128 of the file, in hex.
    """

    name: str
    first: int
    last: int
    modulus: int
    residue: int
    rows: int
    size: int
    digest: str


class Claim(Recorded, frozen=True, tag="claim"):
    """A process takes the dataflow over; the number of the object that holds this is its token.

    Attributes:
        host, pid, at: Who and when (milliseconds since 1970), for people.
        program: The program's identity: graph, schemas, keys, canonical plans (`docs/formats/log.md`).
        environment: Versions and settings that results depend on.
        process: Tells the process from all others that have its number on that host (`runtime/inspect/processes.py`), for people; empty if unknown.
    """

    host: str
    pid: int
    at: Milliseconds
    program: dict[str, Any]
    environment: dict[str, Any]
    process: str = ""


class Admitted(Recorded, frozen=True, tag="admitted"):
    """The owner goes on under another environment than what was recorded before it: it executes nothing of that again."""


class SinkCommit(Recorded, frozen=True, tag="committed"):
    """A sink holds every time up to this one (a memo: the sink itself is the truth)."""

    sink: str
    time: _Step


class Cursor(Recorded, frozen=True, tag="cursor"):
    """What all positions of a source up to and including a time have taken; written with the `Collected` that makes them garbage."""

    source: str
    time: _Step
    cursor: dict[str, Any]


class Override(Recorded, frozen=True, tag="decided"):
    """What the user decided about a step, or may have to.

    Attributes:
        what: `accepted`: what was released of it stands, though a replay gave something else; `skipped`: it gives nothing;
            `failed`: it fails whenever it is tried, and nothing is decided yet.
        who: The processor or sink.
        time: The step, as it counts.
        said: Why, for people.
        messages: What the step takes, (edge, sender's time) each, of a processor that chooses: it may come at another step again.
    """

    what: str
    who: str
    time: _Step
    said: str
    messages: tuple[tuple[str, Time], ...] = ()


class Stopped(Recorded, frozen=True, tag="stopped"):
    """The owner stopped in good order: what was logged and not executed was never executed by anyone."""


class Snapshot(Recorded, frozen=True, tag="snapshot"):
    """The manifest: all that the records before it still mean, so that those can go.

    Attributes:
        dataflow: The dataflow's name.
        program: As the last claim had it.
        environment: Under which the recorded work was done (`History.environment`).
        cursors: Source to (time, cursor): what all positions up to and including that time have taken.
        committed: Sink to the last time it is known to hold.
        facts: What stands of processors.
        decided: What the user decided about single steps.
    """

    dataflow: str
    program: dict[str, Any]
    environment: dict[str, Any]
    cursors: dict[str, tuple[_Step, dict[str, Any]]]
    committed: dict[str, _Step]
    facts: tuple[Fact, ...]
    decided: tuple[Override, ...] = ()


Record = Admitted | Claim | SinkCommit | Cursor | Override | Stopped | Snapshot | Fact
