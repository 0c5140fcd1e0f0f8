"""The records of the log: claims, commits, cursors, overrides, shutdowns, restore points, manifests and facts.

Each is immutable, on disk msgpack tagged by its kind (`docs/formats/log.md`). A *group* of records is one numbered
object: durable as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from boatlift.decoders import look_up
from boatlift.storage.records.facts import Fact, Recorded
from boatlift.times import LAST, Time

_Step = Annotated[int, Meta(ge=-1, lt=LAST)]  # the number of a last step; -1 for none
_Count = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[int, Meta(ge=0, lt=253_402_300_800_000)]  # milliseconds since 1970, up to the year 9999


class RunRef(Recorded, frozen=True):
    """A reference to a run: its name, contents and checksum.

    Attributes:
        name: The object's name in the store (`runs/…`), or a scratch file's path before the run is durable.
        first, last: The interval of times whose effects the run holds.
        modulus, residue: The run holds key groups g with g % modulus == residue.
        digest: xxh3-128 of the file, or of its tail, in hex.
        expires: The time after which no step needs its rows, in milliseconds since 1970, by the processor's clock or
            watermark; None: never.
        tail: Bytes of the file's tail, which begins with the checksums of all blocks before it (`storage/blocks.py`).
            None: the digest covers the whole file.
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
    """A process takes the dataflow over. The number of this record's object is the process's token.

    `address` is where standbys and commands reach the process; empty if it does not listen. `fingerprint` is that of
    the certificate that it shows there; empty if it speaks in clear text. `pushes` has for each source that takes rows
    over HTTP the URL at which clients reach the process.
    `evolves` is the id of a transition to `program`, which `Evolved` makes the log's; until then the log's program, and
    all else, is as it was. `rides` is whether sinks may carry, or show, what rests on entries of this owner
    that the log lacks (`storage/records/stream.py`). `sinks` has for each sink its kind and place, for
    `boatlift console`; no start reads it.
    """

    host: str
    pid: int
    at: Milliseconds
    program: dict[str, Any]
    environment: dict[str, Any]
    process: str = ""
    bytes_in_flight: _Count = 0
    address: str = ""
    evolves: str = ""
    fingerprint: str = ""
    pushes: dict[str, str] = field(default_factory=dict)
    rides: bool = False
    sinks: dict[str, Any] = field(default_factory=dict)


class Admitted(Recorded, frozen=True, tag="admitted"):
    """The owner continues under another environment than was recorded, and executes no recorded step again."""


class SinkCommit(Recorded, frozen=True, tag="committed"):
    """A sink holds every time up to this one. For a sink without a ledger of its own, this record is the ledger."""

    sink: str
    time: _Step


class Cursor(Recorded, frozen=True, tag="cursor"):
    """The cursor of a source after a time; written with the `GarbageCollection` of the positions before it."""

    source: str
    time: _Step
    cursor: dict[str, Any]
    names: tuple[str, ...] = ()


class Override(Recorded, frozen=True, tag="decided"):
    """A user's decision about a step, or a failed step that awaits one."""

    what: str
    who: str
    time: _Step
    said: str
    messages: tuple[tuple[str, Time], ...] = ()
    place: str = ""  # of a bad row; empty for every bad row


class UnitWork(Recorded, frozen=True):
    """What a unit has done in all runs until a clean shutdown.

    Attributes:
        rows: The input rows of its steps; those of a replay count once.
        rate: The input rows a second of its quickest step.
    """

    rows: _Count = 0
    rate: _Count = 0


class Stopped(Recorded, frozen=True, tag="stopped"):
    """A clean shutdown: no process has executed a step that is logged and has no result.

    `heir` is the life of the standby that the dataflow is handed over to; empty for none.
    `work` is what each unit has done so far, for people; empty if the run executed nothing.
    """

    heir: str = ""
    work: dict[str, UnitWork] = field(default_factory=dict)


class Settled(Recorded, frozen=True, tag="settled"):
    """The run ends with an error, and the log has all that its sinks carry: nothing has to be asked of them."""


class Membership(Recorded, frozen=True, tag="members"):
    """The standbys that hold the entries of an owner, in force once this is stored; no other owner's count.

    Attributes:
        token: Of the owner.
        lives: The life of each standby to its process, as `host:pid`.
        depth: The least number of holders with which an entry of the owner counts as held.
    """

    token: _Count
    lives: dict[str, str]
    depth: Annotated[int, Meta(ge=1)]


class SinkNumbers(Recorded, frozen=True):
    """How a sink counts the steps of a dataflow whose program has changed.

    Attributes:
        ahead: The sink's own number of a step is the dataflow's less this.
        difference: The message that is the sink's step at the transition; None once the sink holds it.
        time: The dataflow's number of that step.
        takes_back: The sink empties its own steps after this one first; None: no step.
    """

    ahead: int
    difference: Any = None
    time: _Step = -1
    takes_back: _Step | None = None


class Evolved(Recorded, frozen=True, tag="evolved"):
    """A transition: the log is of another version of the program from now on, or goes back to a restore point first.

    Attributes:
        id: Of the plan that was consented to.
        program: The new program, with its units.
        forgotten: Units, sources and sinks whose facts are void.
        edges: Edges whose messages are void.
        renamed: Source to the name under which its facts go on.
        facts: The states and determinants with which the new program begins.
        cursors: Source that begins to its first cursor, at the time of its determinant among the facts.
        committed: Sink to the last step that it holds.
        sinks: How sinks count, of those for which that changes.
        tainted: Operators whose state or past rows are not those of their code over the whole past.
        back: The restore point to go back to; empty for the beginning, None to go back to none.
        names: Of a way back: source to the names that its cursor had.
        was: Processor that the user has renamed to its former name, under which the log knows it until now. All else
            here has the new names.
        ahead: By how much the tokens that sinks know are larger than the numbers of claims.
        drops_points: A sink lacks steps that it had at restore points.
    """

    id: str
    program: dict[str, Any]
    forgotten: tuple[str, ...]
    edges: tuple[str, ...]
    renamed: dict[str, str]
    facts: tuple[Fact, ...]
    cursors: dict[str, tuple[_Step, dict[str, Any]]]
    committed: dict[str, _Step]
    sinks: dict[str, SinkNumbers]
    tainted: tuple[str, ...] = ()
    back: str | None = None
    names: dict[str, TakenNames] = field(default_factory=dict)
    was: dict[str, str] = field(default_factory=dict)
    ahead: _Count = 0
    drops_points: bool = False


class FactsObject(Recorded, frozen=True):
    """A reference to an object of facts, and which of its facts are no longer live."""

    name: str
    digest: str
    count: _Count
    gone: tuple[tuple[_Count, _Count], ...] = ()  # index ranges [from, up to)


class NamesObject(Recorded, frozen=True):
    """A reference to an object of names: a leaf, or a node above other objects."""

    name: str
    digest: str
    count: _Count
    height: Annotated[int, Meta(ge=0, le=9)] = 0


class TakenNames(Recorded, frozen=True):
    """The names in a source's cursor, in order: first those in objects, then those in none.

    In a manifest it covers all names. As the content of an object of names it has either objects or names. Objects are
    ordered by descending height.
    """

    objects: tuple[NamesObject, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return sum(each.count for each in self.objects) + len(self.new)


class RestorePoint(Recorded, frozen=True, tag="point"):
    """A moment to which the dataflow can go back: no step is under way, and every state is durable.

    `until` is the time up to which it is kept; None: until a user drops it.
    """

    name: str
    at: Milliseconds
    until: Milliseconds | None = None


class PointsDropped(Recorded, frozen=True, tag="dropped"):
    """Restore points that are not needed any more."""

    names: tuple[str, ...]


class KeptPoint(Recorded, frozen=True):
    """The meaning of the log at a restore point; fields as of `Snapshot`, of the names only their number."""

    name: str
    at: Milliseconds
    until: Milliseconds | None
    program: dict[str, Any]
    environment: dict[str, Any]
    cursors: dict[str, tuple[_Step, dict[str, Any]]]
    committed: dict[str, _Step]
    facts: tuple[Fact, ...]
    decided: tuple[Override, ...]
    names: dict[str, _Count]
    numbers: dict[str, SinkNumbers]
    tainted: tuple[str, ...]


class Snapshot(Recorded, frozen=True, tag="snapshot"):
    """The manifest: the meaning of all records before it (`LogHistory`), so that these can be deleted.

    It has the live facts that are in no object of facts; the objects of `standing` hold all others.
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
    numbers: dict[str, SinkNumbers] = field(default_factory=dict)
    tainted: tuple[str, ...] = ()
    points: tuple[KeptPoint, ...] = ()
    given: dict[str, _Step] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    work: dict[str, UnitWork] = field(default_factory=dict)
    ahead: _Count = 0
    members: Membership | None = None


Record = (
    Admitted
    | Claim
    | SinkCommit
    | Cursor
    | Override
    | Stopped
    | Settled
    | Membership
    | Evolved
    | RestorePoint
    | PointsDropped
    | Snapshot
    | Fact
)


UNITS = "units"  # the entry of a recorded program with the operators, edges and policy of each unit


class UnitRecord(msgspec.Struct, frozen=True):
    """A unit of the division of a program at a claim: recorded with the program, but no part of its identity."""

    operators: tuple[str, ...]  # its operators; none for a source that is staged unchanged
    inputs: dict[str, str]  # edge to the sending source or unit
    outputs: dict[str, str]  # edge to the sink that the unit stages rows for
    policy: dict[str, Any]  # the name and options of its policy
    goes_back: dict[str, str] = field(default_factory=dict)  # sink to how it goes back to a restore point (`WayBack`)


look_up(UnitRecord)


def units_in(program: Mapping[str, Any]) -> dict[str, UnitRecord]:
    """Return the units of a recorded program by name.

    Raises:
        ValidationError: an entry is no unit.
    """
    return msgspec.convert(program.get(UNITS, {}), dict[str, UnitRecord])


def without_units(program: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a recorded program."""
    return {key: about for key, about in program.items() if key != UNITS}


def edges_of(units: Mapping[str, UnitRecord]) -> set[str]:
    """Return the names of all edges of some units."""
    return {edge for unit in units.values() for edge in (*unit.inputs, *unit.outputs)}
