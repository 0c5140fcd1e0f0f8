"""The records of the log: claims, commits, cursors, overrides, stops, manifests and facts. One immutable record each.

On disk a record is msgpack by msgspec, tagged by its kind; `docs/formats/log.md` describes the bytes.
A *group* of records is one numbered object; a group is durable whole or not at all.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from boatlift.storage.records.facts import Fact, Recorded, Time
from boatlift.times import LAST

__all__ = [
    "Admitted",
    "Claim",
    "Cursor",
    "FactsObject",
    "Milliseconds",
    "NamesObject",
    "Override",
    "Record",
    "RunRef",
    "SinkCommit",
    "Snapshot",
    "Stopped",
    "TakenNames",
]

_Step = Annotated[int, Meta(ge=-1, lt=LAST)]
"""The last of some steps; -1 for none."""
_Count = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[int, Meta(ge=0, lt=253_402_300_800_000)]
"""Since 1970, up to the last year that a date has."""


class RunRef(Recorded, frozen=True):
    """The name of a run, with all that is needed to check and place it.

    Attributes:
        name: The object's name in the store (`runs/…`), or a scratch file's path before the run is durable.
        first, last: The interval of times whose effects the run holds.
        modulus, residue: The run holds key groups g with g % modulus == residue.
        rows: Number of rows.
        size: Bytes.
        digest: xxh3-128 of the file, or of its tail, in hex.
        expires: The time after which no step needs its rows, in milliseconds since 1970, by the clock or the bound that
            the processor goes by; None: they may be needed for ever.
        tail: How many bytes the file's tail has: it begins with the checksums of all blocks before it
            (`storage/blocks.py`), so that its digest proves the file. None: the digest is of the whole file.
    """

    name: str
    first: int
    last: int
    modulus: int
    residue: int
    rows: int
    size: int
    digest: str
    expires: int | None = None
    tail: int | None = None


class Claim(Recorded, frozen=True, tag="claim"):
    """A process takes the dataflow over; the number of the object that holds this is its token.

    Attributes:
        host, pid, at: The process, and the time of the claim (milliseconds since 1970), for people.
        program: The program's identity: graph, schemas, keys, canonical plans (`docs/formats/log.md`).
        environment: Versions and settings that results depend on.
        process: The identity that tells the process from others with its number on that host
            (`runtime/host/ownership.py`), for people; empty if unknown.
        bytes_in_flight: The process asks sources for no further step while so many bytes wait in scratch; 0: unknown.
    """

    host: str
    pid: int
    at: Milliseconds
    program: dict[str, Any]
    environment: dict[str, Any]
    process: str = ""
    bytes_in_flight: _Count = 0


class Admitted(Recorded, frozen=True, tag="admitted"):
    """The owner goes on under another environment than was recorded before, and executes no recorded step again."""


class SinkCommit(Recorded, frozen=True, tag="committed"):
    """A sink holds every time up to this one (a memo, unless the sink keeps no account: then this is the account)."""

    sink: str
    time: _Step


class Cursor(Recorded, frozen=True, tag="cursor"):
    """The cursor of a source after a time; written with the `GarbageCollection` of the positions before.

    Attributes:
        cursor: The cursor, without the names that it holds.
        names: The names that the cursor holds after those that the records before have of it, in order.
    """

    source: str
    time: _Step
    cursor: dict[str, Any]
    names: tuple[str, ...] = ()


class Override(Recorded, frozen=True, tag="decided"):
    """A decision of the user about a step, or a step that may need one.

    Attributes:
        what: `accepted`: the released rows of the step stand, though its replay differed; `skipped`: the step has no
            result; `failed`: the step fails at each try, and nothing is decided yet; `set_aside`: bad rows of a source
            are kept in the store, and the steps that take them go on without them.
        who: The processor or sink; of `set_aside` the source.
        time: The number of the step; of `set_aside` -1 for every bad row, else the number of such decisions before.
        said: The reason, for people.
        messages: The input of the step, (edge, sender's time) each, of a processor that chooses it: the same messages
            may come again at another step.
        place: Of `set_aside`: the place of the one row that it is about; empty for every bad row.
    """

    what: str
    who: str
    time: _Step
    said: str
    messages: tuple[tuple[str, Time], ...] = ()
    place: str = ""


class Stopped(Recorded, frozen=True, tag="stopped"):
    """The owner stopped in good order: a step that is logged and not executed was never executed by any process."""


class FactsObject(Recorded, frozen=True):
    """The name of an object of facts, and which of its facts are live no more.

    Attributes:
        name: The object's name in the store (`facts/…`).
        digest: The checksum that the object carries, in hex.
        count: Number of facts in it.
        gone: The places, in the object, of facts that no recovery needs: ranges from and up to, in order.
    """

    name: str
    digest: str
    count: _Count
    gone: tuple[tuple[_Count, _Count], ...] = ()


class NamesObject(Recorded, frozen=True):
    """The name of an object of names.

    Attributes:
        name: The object's name in the store (`names/…`).
        digest: The checksum that the object carries, in hex.
        count: How many names the object has, or the objects have that it names.
        height: 0 of an object that has names itself, h + 1 of one that names objects of height h.
    """

    name: str
    digest: str
    count: _Count
    height: Annotated[int, Meta(ge=0, le=9)] = 0


class TakenNames(Recorded, frozen=True):
    """Names that a source's cursor holds, in order: those of objects, and then those that stand in none.

    A manifest has it of all names, an object of names has it of its own: objects alone, or names alone.

    Attributes:
        objects: The objects; none is of greater height than the one before.
        new: The names that stand in no object.
    """

    objects: tuple[NamesObject, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of all names."""
        return sum(each.count for each in self.objects) + len(self.new)


class Snapshot(Recorded, frozen=True, tag="snapshot"):
    """The manifest: the meaning of all records before it, so that those can go.

    Attributes:
        dataflow: The dataflow's name.
        program: The program's identity, of the last claim.
        environment: The environment under which the recorded work was done (`LogHistory.environment`).
        cursors: Source to (time, cursor): the cursor after all positions up to and including that time, without names.
        committed: Sink to the last time that it is recorded to hold.
        facts: The live facts of processors that stand in no object of facts.
        decided: The overrides of single steps.
        standing: The objects of facts, in which all other live facts stand.
        names: Source to the names that its cursor holds.
    """

    dataflow: str
    program: dict[str, Any]
    environment: dict[str, Any]
    cursors: dict[str, tuple[_Step, dict[str, Any]]]
    committed: dict[str, _Step]
    facts: tuple[Fact, ...]
    decided: tuple[Override, ...] = ()
    standing: tuple[FactsObject, ...] = ()
    names: dict[str, TakenNames] = field(default_factory=dict)


Record = Admitted | Claim | SinkCommit | Cursor | Override | Stopped | Snapshot | Fact
