"""The meaning of a log: a pure fold over its records.

A `LogHistory` is to the log as a balance is to a bank statement. The log feeds it records in order, recovery reads it,
and `snapshot` turns it into a single record that can replace all earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from boatlift.errors import InternalError
from boatlift.storage.records.facts import payloads_of
from boatlift.storage.records.live import LiveRecords
from boatlift.storage.records.manifest_objects import FactObjects, SeenNames
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import (
    UNITS,
    Admitted,
    Claim,
    Cursor,
    Evolved,
    KeptPoint,
    Membership,
    Override,
    PointsDropped,
    Record,
    RestorePoint,
    Settled,
    SinkCommit,
    SinkNumbers,
    Snapshot,
    Stopped,
    TakenNames,
    UnitWork,
    edges_of,
    units_in,
)
from boatlift.storage.records.renaming import Renaming
from boatlift.times import last_epoch, last_number


@dataclass(slots=True)
class LogHistory:
    """The meaning of all records applied so far.

    Attributes:
        program: The program's identity and units (`division`) in the last claim; {} before the first. Facts of units
            and edges that the last claim no longer has are dropped.
        environment: The environment under which the recorded work was done. A new owner's environment replaces it with
            the owner's first record after the claim, since the owner may still be refused; at once if nothing was
            recorded before.
        cursors: Source to (time, cursor): the cursor after all positions up to and including that time, without names.
        committed: Sink to the last time that it is recorded to hold.
        decisions: The overrides of single steps, and failed steps, by kind, processor and step.
        stopped: The newest record is a clean shutdown.
        resumed: Only claims follow a clean shutdown: the current owner's, and those of owners that did no work. (An
            owner with another environment records `Admitted` first.)
        heir: The life of the standby that a clean shutdown, the newest record, hands the dataflow over to.
        tainted: Operators whose state or past rows are not those of their code over the whole past.
        numbers: How sinks count, of those that have come or changed with a transition.
        points: The restore points by name, in the order of time.
        rewound: The newest record, but for claims and transitions, has taken the dataflow back.
        given: Sink to the largest own number that it had before a transition: a receiver may know a step by it.
        places: Sink that was renamed to its first name, by which its place knows it.
        rested: Whether nothing but claims has followed a clean shutdown.
        ahead: By how much the tokens that sinks know are larger than the numbers of claims; above 0 if the store was an
            older copy once, so that places may hold what it does not know.
        work: What units have done until the newest clean shutdown; of a way back and of a crash it says nothing.
        members: The newest; they may be those of an owner that has ended.
    """

    dataflow: str = ""
    program: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    cursors: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    names: dict[str, SeenNames] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    live_records: LiveRecords = field(default_factory=LiveRecords)
    decisions: dict[tuple[str, str, int], Override] = field(default_factory=dict)
    stopped: bool = False
    resumed: bool = False
    heir: str = ""
    numbers: dict[str, SinkNumbers] = field(default_factory=dict)
    tainted: frozenset[str] = frozenset()
    points: dict[str, KeptPoint] = field(default_factory=dict)
    rewound: bool = False
    given: dict[str, int] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    ahead: int = 0
    rested: bool = field(default=False, compare=False)
    work: dict[str, UnitWork] = field(default_factory=dict)
    members: Membership | None = None
    _claimed: dict[str, Any] | None = None
    _evolving: dict[str, Any] | None = None  # the environment of the newest claim that began a transition

    @classmethod
    def of(cls, records: Iterable[Record], dataflow: str = "") -> LogHistory:
        history = cls(dataflow)
        for record in records:
            history.apply(record)
        return history

    def apply(self, record: Record) -> None:
        if isinstance(record, Claim):
            self._apply_claim(record)
            return
        if isinstance(record, Membership):
            self.members = record
        if isinstance(record, Settled | Membership):
            return  # says nothing of what the run has done
        if isinstance(record, Evolved):
            self.rested = False
            self._evolve(record)
            return
        if self._evolving is not None:
            self._claimed, self._evolving = self._evolving, None
        if self._claimed is not None:
            self.environment, self._claimed = self._claimed, None
        self.stopped = self.rested = isinstance(record, Stopped)
        self.resumed = self.rewound = False
        self.heir = record.heir if isinstance(record, Stopped) else ""
        match record:
            case Cursor(source, time, cursor, names):
                self.cursors[source] = (time, cursor)
                if names:
                    self.names.setdefault(source, SeenNames()).add(names)
            case SinkCommit(sink, time):
                self.committed[sink] = time  # the newest counts: a user may have emptied the sink
                if (numbers := self.numbers.get(sink)) is not None and numbers.difference and time >= numbers.time:
                    self.numbers[sink] = SinkNumbers(numbers.ahead, None, numbers.time)
            case Override(what, who, time):
                self.decisions[what, who, time] = record
                if what == "skipped":
                    self.decisions.pop(("failed", who, time), None)
            case Snapshot():
                if record.standing:
                    raise InternalError("INTERNAL", "a snapshot was applied without the facts in its objects")
                self._become(record)
            case RestorePoint():
                others = {name: point for name, point in self.points.items() if name != record.name}
                self.points = {**others, record.name: self._kept(record)}
            case PointsDropped(names):
                self.points = {name: point for name, point in self.points.items() if name not in names}
            case Stopped():
                self.work = record.work or self.work
            case Admitted():
                pass
            case _:
                self.live_records.apply(record)

    def snapshot(self, stored: FactObjects | None = None) -> Snapshot:
        """Return the record that can replace all earlier ones, without the facts that objects store."""
        live = self.live_records
        return Snapshot(
            dataflow=self.dataflow,
            program=self.program,
            environment=next(each for each in (self._evolving, self._claimed, self.environment) if each is not None),
            cursors=dict(self.cursors),
            committed=dict(self.committed),
            facts=tuple(live.facts() if stored is None else [*live.collections(), *stored.new()]),
            decided=tuple(self.decisions.values()),
            standing=() if stored is None else stored.objects,
            names={source: names.record() for source, names in self.names.items()},
            numbers=dict(self.numbers),
            tainted=tuple(sorted(self.tainted)),
            points=tuple(self.points.values()),
            given=dict(self.given),
            places=dict(self.places),
            ahead=self.ahead,
            work=dict(self.work),
            members=self.members,
        )

    def renamed(self, was: Mapping[str, str]) -> LogHistory:
        """Return the same meaning under other names of processors.

        Args:
            was: New name to former name.
        """
        if not was:
            return self
        copy = LogHistory(stopped=self.stopped, resumed=self.resumed, heir=self.heir, rewound=self.rewound)
        copy._become(self.snapshot())
        copy._rename(was)
        return copy

    def unclaimed(self) -> LogHistory:
        """Return the same meaning as if nobody had claimed it since its clean shutdown."""
        copy = LogHistory(stopped=self.rested, rewound=self.rewound)
        copy._become(self.snapshot())
        return copy

    def at(self, name: str, names: Mapping[str, TakenNames]) -> LogHistory:
        """Return the meaning of the log at a restore point, as after a clean shutdown; at the beginning if it is empty.

        Args:
            names: Source to the names that its cursor had there.

        Raises:
            KeyError: there is no such point.
        """
        past = LogHistory(self.dataflow, self.program, self.environment, stopped=True)
        past.places, past.ahead = dict(self.places), self.ahead
        if name:
            point = self.points[name]
            past.program, past.environment = point.program, point.environment
            past.cursors, past.committed = dict(point.cursors), dict(point.committed)
            past.live_records = LiveRecords.of(point.facts)
            past.decisions = {(each.what, each.who, each.time): each for each in point.decided}
            past.numbers, past.tainted = dict(point.numbers), frozenset(point.tainted)
            before = list(self.points)
            past.points = {each: self.points[each] for each in before[: before.index(name) + 1]}
        past.names = {source: SeenNames(each.objects, each.new) for source, each in names.items()}
        return past

    def checkpointed(self) -> None:
        if self._evolving is not None:
            self._claimed, self._evolving = self._evolving, None
        if self._claimed is not None:
            self.environment, self._claimed = self._claimed, None
        self.stopped = self.resumed = self.rested = False
        self.heir = ""

    def live_runs(self) -> set[str]:
        """Return the names of all runs of live facts: those that a recovery may need."""
        payloads = (payload for fact in self.live_records.facts() for payload in payloads_of(fact))
        named = {run.name for payload in (*payloads, *self.differences()) for run in runs_of(payload)}
        return named.union(*map(runs_of_point, self.points.values()))

    def differences(self) -> Iterator[Any]:
        """Yield the messages of a transition that are not known to have reached their sinks."""
        yield from (each.difference for each in self.numbers.values() if each.difference is not None)

    def last_closed(self, source: str) -> int:
        """Return the last time that a source has closed; -1 for none."""
        return max(last_epoch(self.live_records.determinants.get(source, {})), self.cursors.get(source, (-1, {}))[0])

    def last_executed(self, processor: str) -> int:
        """Return the number of the last step that a processor is recorded to have executed; -1 for none."""
        live = self.live_records
        return max(
            last_epoch(live.results.get(processor, ())),
            last_number(live.collected.states.get(processor, ())),
            *(last_number(frontier) for frontier in live.states.get(processor, ())),
        )

    def held(self, sink: str) -> int:
        """Return the last time that the log knows a sink to hold, -1 for none; the sink may hold more.

        A commit is recorded after it was made, and older versions recorded none for steps that a sink was found to
        hold. But a sink holds at least its stable frontier, since records were collected on that ground.
        """
        return max(self.committed.get(sink, -1), last_number(self.live_records.collected.states.get(sink, ())))

    def own_number(self, sink: str) -> int:
        """Return `held` in the sink's own numbers."""
        return self.held(sink) - (self.numbers[sink].ahead if sink in self.numbers else 0)

    def names_of_place(self, sink: str) -> set[str]:
        """Return the names under which the place of a sink may have got steps; that of the sink is among them."""
        place = self.places.get(sink, sink)
        known = {*self.given, *self.committed, *self.numbers}
        return {sink, *(name for name in known if self.places.get(name, name) == place)}

    def decided(self, what: str) -> set[tuple[str, int]]:
        """Return (processor or sink, step) of all overrides of one kind, such as `accepted`."""
        return {(who, time) for decision, who, time in self.decisions if decision == what}

    def _evolve(self, change: Evolved) -> None:
        """Take another program; the environment of the work so far, and a clean shutdown, count as before."""
        self.resumed, self.stopped, self.heir = self._goes_on() or change.back is not None, False, ""
        self._claimed, self._evolving = self._evolving, None
        self.rewound, self.ahead = self.rewound or change.back is not None, change.ahead
        if change.was:
            self._rename(change.was)
        for sink in self.committed:
            self.given[sink] = max(self.given.get(sink, -1), self.own_number(sink))
        if change.back is not None:
            self._go_back(change.back, change.names)
        self.points = self._points_after(change)
        live, gone = self.live_records, set(change.forgotten)
        before, now = units_in(self.program), units_in(change.program)
        live.forget(gone | (before.keys() - now.keys()), change.edges)
        for old, new in change.renamed.items():
            live.rename(old, new)
            if old in self.cursors:
                self.cursors[new] = self.cursors.pop(old)
            if old in self.names:
                self.names[new] = self.names.pop(old)
        for named in (self.cursors, self.names, self.committed, self.numbers):
            for name in gone & named.keys():
                del named[name]
        decided = [each for each in self.decisions.values() if each.who not in gone]
        decided = [msgspec.structs.replace(each, who=change.renamed.get(each.who, each.who)) for each in decided]
        self.decisions = {(each.what, each.who, each.time): each for each in decided}
        self.program, self.tainted = change.program, frozenset(change.tainted)
        self.work = {unit: done for unit, done in self.work.items() if unit in now}
        for fact in change.facts:
            live.apply(fact)
        self.cursors.update(change.cursors)
        self.committed.update(change.committed)
        self.numbers.update(change.sinks)
        there = {entry.removeprefix("sink ") for entry in self.program if entry.startswith("sink ")}
        kept = {entry for point in self.points.values() for entry in point.program}
        for sink in [sink for sink, place in self.places.items() if sink not in there and place in there]:
            if f"sink {sink}" not in kept:
                del self.places[sink]  # another sink has the name, and perhaps the place

    def _rename(self, was: Mapping[str, str]) -> None:
        to = Renaming({old: new for new, old in was.items()})
        facts = to.facts(self.live_records.facts())
        known = {entry for each in (self.program, *(point.program for point in self.points.values())) for entry in each}
        self.program = to.program(self.program)
        taken = {f"{kind} {new}" for kind in ("source", "processor", "sink") for new in was}  # by what has gone since
        self.points = {name: to.point(each) for name, each in self.points.items() if taken.isdisjoint(each.program)}
        for new, old in was.items():
            if f"sink {old}" in known:
                self.places[new] = self.places.pop(old, old)
        self.live_records.become(facts)
        self.cursors, self.names = to.keys(self.cursors), to.keys(self.names)
        self.committed, self.numbers, self.given = to.keys(self.committed), to.keys(self.numbers), to.keys(self.given)
        self.decisions = {(each.what, each.who, each.time): each for each in to.decided(self.decisions.values())}
        self.tainted = frozenset(map(to.name, self.tainted))
        self.work = to.keys(self.work)

    def _go_back(self, name: str, names: Mapping[str, TakenNames]) -> None:
        past = self.at(name, names)
        self.live_records.become(past.live_records.facts())
        self.program, self.environment = past.program, past.environment
        self.cursors, self.names = past.cursors, past.names
        self.committed, self.decisions, self.points = past.committed, past.decisions, past.points
        self.numbers, self.tainted = past.numbers, past.tainted
        self.work = {}

    def _points_after(self, change: Evolved) -> dict[str, KeptPoint]:
        """Return the points that outlive a transition.

        None does if sources change: the names in their cursors, and what they can take again, are others then. Nor does
        one with a sink that comes back by its last or its first name, perhaps at another place: its numbers of steps
        in the point are those of the former place.
        """
        before, now = self.program, change.program
        sources = [
            {entry: each for entry, each in part.items() if entry.startswith("source ")} for part in (before, now)
        ]
        if sources[0] != sources[1] or change.cursors or change.renamed or change.drops_points:
            return {}
        come = self._places_of(now.keys() - before.keys())
        return {name: point for name, point in self.points.items() if come.isdisjoint(self._places_of(point.program))}

    def _places_of(self, entries: Iterable[str]) -> set[str]:
        """Return the first names of the sinks among the entries of a program."""
        sinks = (entry.removeprefix("sink ") for entry in entries if entry.startswith("sink "))
        return {self.places.get(sink, sink) for sink in sinks}

    def _kept(self, point: RestorePoint) -> KeptPoint:
        return KeptPoint(
            point.name,
            point.at,
            point.until,
            self.program,
            self.environment,
            dict(self.cursors),
            dict(self.committed),
            tuple(self.live_records.facts()),
            tuple(self.decisions.values()),
            {source: names.count for source, names in self.names.items()},
            dict(self.numbers),
            tuple(sorted(self.tainted)),
        )

    def _apply_claim(self, claim: Claim) -> None:
        if claim.evolves:
            self._evolving = claim.environment
            return
        resumed, self._evolving = self._goes_on(), None
        if self.program:
            self._claimed = claim.environment
        else:
            self.environment = claim.environment
        if self.program.get(UNITS) != claim.program.get(UNITS):
            before, now = units_in(self.program), units_in(claim.program)
            self.live_records.forget(before.keys() - now.keys(), edges_of(before) - edges_of(now))
        self.program, self.heir = claim.program, ""
        self.stopped, self.resumed = False, resumed

    def claimed_environment(self) -> dict[str, Any]:
        """Return the environment of the newest claim, whose owner may have been refused since."""
        return self.environment if self._claimed is None else self._claimed

    def _goes_on(self) -> bool:
        """Return whether no work has been done since a clean shutdown, now that another owner begins."""
        did_nothing = self._claimed is not None and self._claimed != self.environment
        return self.stopped or (self.resumed and did_nothing)

    def _become(self, snapshot: Snapshot) -> None:
        self.dataflow = snapshot.dataflow
        self.program, self.environment = snapshot.program, snapshot.environment
        self.cursors, self.committed = dict(snapshot.cursors), dict(snapshot.committed)
        self.names = {source: SeenNames(names.objects, names.new) for source, names in snapshot.names.items()}
        self.live_records = LiveRecords.of(snapshot.facts, self.live_records.watch)
        self.decisions = {(each.what, each.who, each.time): each for each in snapshot.decided}
        self.numbers, self.tainted = dict(snapshot.numbers), frozenset(snapshot.tainted)
        self.points = {each.name: each for each in snapshot.points}
        self.given, self.places, self.ahead = dict(snapshot.given), dict(snapshot.places), snapshot.ahead
        self.work, self.members = dict(snapshot.work), snapshot.members


def steps_of_point(point: KeptPoint) -> dict[str, int]:
    """Return each source's last step before a restore point; -1 for none."""
    sources = [entry.removeprefix("source ") for entry in point.program if entry.startswith("source ")]
    closed = LogHistory(cursors=point.cursors, live_records=LiveRecords.of(point.facts))
    return {source: closed.last_closed(source) for source in sources}


def runs_of_point(point: KeptPoint) -> set[str]:
    """Return the names of the runs that a restore point keeps."""
    return {run.name for fact in point.facts for payload in payloads_of(fact) for run in runs_of(payload)}
