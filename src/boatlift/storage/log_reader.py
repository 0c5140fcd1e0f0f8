"""Reads the log: from the newest object back to its manifest, then forward (`docs/formats/log.md`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from boatlift.errors import RESTORE, DataError
from boatlift.storage.identities import BEGUN, IDENTITY, TRUNCATED, Identities, last_mark, newest_mark
from boatlift.storage.records.codec import Header, checksum_of, decode_facts, decode_group, decode_names
from boatlift.storage.records.facts import Fact, GarbageCollection
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.live import LiveRecords
from boatlift.storage.records.manifest_objects import FACTS_AN_OBJECT, FactObjects, SeenNames
from boatlift.storage.records.records import (
    Claim,
    FactsObject,
    Membership,
    NamesObject,
    Record,
    Settled,
    Snapshot,
    Stopped,
    TakenNames,
)
from boatlift.storage.store import Store

LOG = "log/"
FACTS = "facts/"
NAMES = "names/"
FIRST = 1

READ_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Group:
    """One object of the log."""

    header: Header
    records: tuple[Record, ...]
    checksum: bytes
    size: int
    """Bytes."""


class LogReader:
    """The log of one dataflow, read to its end.

    Reading writes nothing, and a process that writes meanwhile does not disturb it.

    Args:
        dataflow: The dataflow whose log it must be; empty takes the store's own.

    Attributes:
        manifest: The number of the newest manifest, 0 for none.
        owner: The token of the owner that wrote the newest object, 0 for none.
        predecessor: The token of the owner before that one, 0 for none.
        acted: The number of the newest object that is no claim, 0 for none.
        begun, entries: The token of the owner that wrote it, and how much of that owner's stream the log has.
        settled: That owner has ended, and no sink carries more of its stream.
        objects_of_facts: The names of the objects of facts in the newest manifest; in the writer, also of those that
            the next manifest will name.
        written_at: When the newest object was written, in milliseconds since 1970, 0 if unknown.
    """

    def __init__(self, store: Store, dataflow: str, facts_an_object: int = FACTS_AN_OBJECT) -> None:
        self._store = store
        self._facts_an_object = facts_an_object
        self._identities = Identities(store, dataflow)
        self._reset()

    @property
    def dataflow(self) -> str:
        return self._identities.dataflow

    @property
    def store_id(self) -> str:
        return self._identities.store_id

    def load(self) -> None:
        """Read the log to its end.

        Raises:
            DataError: `[MISSING_OBJECT]` an object is missing, or *all* of the log is; `[CORRUPT]` an object is damaged
                or out of place; `[NEWER_FORMAT]`; `[STORE_OF_ANOTHER_DATAFLOW]`.
        """
        numbers = self._numbers()
        for _ in range(READ_ATTEMPTS):
            try:
                self._read(numbers)
            except DataError as error:
                # An owner may have written and truncated since the numbers were listed: then the last number is newer.
                before, numbers = numbers, self._numbers()
                if error.condition != "MISSING_OBJECT" or before[-1:] == numbers[-1:]:
                    raise
            else:
                return
        self._read(numbers)

    def catch_up(self) -> bool:
        """Read what was written since; return whether there was anything.

        The meaning is that of the whole log, read anew. A manifest is such a reading, because it replaces facts.

        Raises:
            DataError: as `load`.
            UnavailableError: `[STORE_FAILED]` the store cannot be read.
        """
        before = self.last
        try:
            while self.last and self._store.size(name_of(self.last + 1)) is not None:
                group = self._group(self.last + 1)
                if group.header.manifest != self.manifest:
                    break
                self._check_place(group, self.last + 1)
                self._apply(group)
        except DataError:  # truncated since, or a void claim: the log read anew tells
            self._reset()
        try:
            if max(self._numbers(), default=0) != self.last:
                self.load()
        except BaseException:
            self._reset()  # the next call reads all of it
            raise
        return self.last != before

    def groups(self, since: int = FIRST) -> Iterator[Group]:
        """Read the objects from the newest manifest on again, in order, those with smaller numbers left out."""
        for number in range(max(since, self.manifest, FIRST), self.last + 1):
            yield self._group(number)

    def claims(self) -> Iterator[int]:
        """Yield the tokens of all owners, the newest first.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]` one of the claims is not as it was written.
        """
        token, predecessor = self.owner, self.predecessor
        while token:
            header = self._group(token).header
            if not header.number == header.token == token > header.predecessor or (
                token == self.owner and header.predecessor != predecessor
            ):
                raise _misplaced(token, "is not the claim of the log's owner")
            yield token
            token = header.predecessor

    def names_taken(self, source: str) -> list[str]:
        """Return the names in a source's cursor, in order; every object of names is read and checked.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]` an object of names is not as it was written.
        """
        names = self.history.names.get(source, SeenNames()).record()
        found: list[str] = []
        unread = list(reversed(names.objects))
        while unread:
            content = self._content_of(unread.pop())
            unread += reversed(content.objects)
            found += content.new
        return [*found, *names.new]

    def names_before(self, source: str, count: int) -> TakenNames:
        """Return the first names in a source's cursor, by objects as far as these hold no other.

        Raises:
            DataError: as `names_taken`.
        """
        names = self.history.names.get(source, SeenNames()).record()
        objects, new, unread = list[NamesObject](), list[str](), list(names.objects)
        while unread and count > 0:
            each = unread.pop(0)
            if each.count <= count:
                objects.append(each)
                count -= each.count
            else:
                content = self._content_of(each)
                unread, new, names = list(content.objects), list(content.new[:count]), TakenNames()
        return TakenNames(tuple(objects), (*new, *names.new[:count]))

    def objects_of_names(self) -> set[str]:
        """Return the names of all objects of names below the newest manifest, without reading leaves."""
        found: set[str] = set()
        for names in self.history.names.values():
            unread = list(names.record().objects)
            while unread:
                each = unread.pop()
                found.add(each.name)
                if each.height:
                    unread += self._content_of(each).objects
        return found

    def claim_of(self, token: int) -> Claim | None:
        """Return the claim of an owner, such as `owner` or `predecessor`; None for 0. Claims outlive manifests."""
        if not token:
            return None
        (record,) = self._group(token).records
        if not isinstance(record, Claim):
            raise _misplaced(token, "is not the claim of the log's owner")
        return record

    @property
    def may_be_carried(self) -> bool:
        """Whether sinks may carry, or standbys hold, entries of the newest begun owner which the log lacks."""
        owner = None if self.settled else self.claim_of(self.begun)
        return self.members is not None or (owner is not None and owner.rides)

    @property
    def members(self) -> Membership | None:
        """The standbys that may hold entries of the newest owner that has begun, which the log lacks."""
        members = self.history.members
        counts = members is not None and members.lives and members.token == self.begun and not self.settled
        return members if counts else None

    def check_mark(self) -> None:
        """Refuse a mark of the newest clean shutdown that is damaged, or another store's."""
        if (mark := newest_mark(self._store)) is not None:
            self._identities.check(mark)

    def _content_of(self, named: NamesObject) -> TakenNames:
        content = self._read_named(named.name, "names")
        found = decode_names(content, named.name)
        height = 1 + found.objects[0].height if found.objects else 0
        if (checksum_of(content).hex(), found.count, height) != (named.digest, named.count, named.height):
            raise DataError("CORRUPT", f"{named.name} holds other names than the newest manifest names: {RESTORE}")
        return found

    def _numbers(self) -> list[int]:
        return [number_of(name) for name in self._store.list(LOG)]

    def _group(self, number: int, content: bytes | None = None) -> Group:
        name = name_of(number)
        content = self._store.read(name) if content is None else content
        header, records = decode_group(content, name)
        return Group(header, records, checksum_of(content), len(content))

    def _reset(self) -> None:
        self._fact_objects = FactObjects(self._facts_an_object)
        self.history = LogHistory(self.dataflow, live_records=LiveRecords(watch=self._fact_objects))
        self.objects_of_facts: set[str] = set()
        self.last = self.manifest = self.owner = self.predecessor = self.acted = self.written_at = 0
        self.begun = self.entries = 0
        self.settled = True
        self._checksum = b""
        self._leftovers: list[int] = []  # numbers before the manifest, unread: claims, and leftovers of a crash

    def _read(self, numbers: list[int]) -> None:
        self._reset()
        if not numbers:
            self._check_that_new()
            return
        self._identities.check(IDENTITY)
        self.history.dataflow = self.dataflow
        newest = self._group(numbers[-1])
        self.manifest = newest.header.manifest
        if self.manifest > numbers[-1]:
            raise _misplaced(numbers[-1], f"names manifest {self.manifest}, which comes after it")
        self._leftovers = [number for number in numbers if number < self.manifest]
        self._read_groups(set(numbers), newest)
        if (marked := last_mark(self._store)) > self.last:
            raise DataError(
                "MISSING_OBJECT",
                f"{name_of(marked)} is not there, though a clean shutdown was recorded in it, and the log ends with "
                f"{name_of(self.last)}: the objects between are lost: {RESTORE}",
            )
        if self.acted:
            self._identities.check(BEGUN)
        if len(self._leftovers) < self.manifest - FIRST:
            self._identities.check(TRUNCATED)
        elif not self.manifest and self._identities.exists(TRUNCATED):
            raise DataError(
                "MISSING_OBJECT", f"the log's newest manifest is not there, though {TRUNCATED} is: {RESTORE}"
            )

    def _read_groups(self, present: set[int], newest: Group) -> None:
        end = max(present)
        numbers = range(self.manifest or FIRST, end + 1)
        contents = self._store.read_all([name_of(number) for number in numbers if number in present and number != end])
        for number in numbers:
            if number not in present:
                raise DataError(
                    "MISSING_OBJECT",
                    f"{name_of(number)} is not there, though the log goes on to {name_of(end)}: {RESTORE}",
                )
            group = newest if number == end else self._group(number, next(contents))
            self._check_place(group, number)
            try:
                self._apply(group)
            except (TypeError, ValueError) as error:  # times of different domains do not compare
                raise _misplaced(number, f"holds times that do not go with those before ({error})") from error

    def _apply(self, group: Group) -> None:
        self.last, self._checksum = group.header.number, group.checksum
        self.manifest, self.written_at = group.header.manifest, group.header.at
        self.owner, self.predecessor = group.header.token, group.header.predecessor
        if group.header.number != group.header.token:
            self.acted, self.begun, self.entries = group.header.number, group.header.token, group.header.entries
            self.settled = isinstance(group.records[-1], Stopped | Settled) if group.records else False
        for record in group.records:
            if isinstance(record, Snapshot):
                self._begin_with(record)
            else:
                self.history.apply(record)

    def _begin_with(self, snapshot: Snapshot) -> None:
        """Apply a manifest, with the facts in its objects."""
        objects = [(named, self._facts_of(named)) for named in snapshot.standing]
        stored = [fact for named, facts in objects for fact in _not_gone(named, facts)]
        collections = [fact for fact in snapshot.facts if isinstance(fact, GarbageCollection)]  # remove no live fact
        new = [fact for fact in snapshot.facts if not isinstance(fact, GarbageCollection)]
        self.history.apply(msgspec.structs.replace(snapshot, facts=(*collections, *stored, *new), standing=()))
        for named, facts in objects:
            self._fact_objects.stored_in(named, facts)
            self.objects_of_facts.add(named.name)

    def _facts_of(self, named: FactsObject) -> tuple[Fact, ...]:
        content = self._read_named(named.name, "facts")
        facts = decode_facts(content, named.name)
        if (checksum_of(content).hex(), len(facts)) != (named.digest, named.count):
            raise DataError("CORRUPT", f"{named.name} holds other facts than the newest manifest names: {RESTORE}")
        return facts

    def _read_named(self, name: str, what: str) -> bytes:
        try:
            return self._store.read(name)
        except DataError as error:
            if error.condition != "MISSING_OBJECT":
                raise
            message = f"the newest manifest needs {what} that are lost: {error.message}"
            raise DataError("MISSING_OBJECT", message) from error

    def _check_place(self, group: Group, number: int) -> None:
        """Refuse an intact object in a wrong place: copied, renamed, or from another store."""
        header, records = group.header, group.records
        claims = any(isinstance(record, Claim) for record in records)
        manifest = any(isinstance(record, Snapshot) for record in records)
        begins = number == self.manifest and self.last == 0  # the objects before a manifest may be gone
        for holds, fault in (
            (header.dataflow == self.dataflow, f"belongs to dataflow {header.dataflow}, not {self.dataflow}"),
            (header.number == number, f"says it is number {header.number}"),
            (not (claims or manifest) or len(records) == 1, "holds more than its claim or manifest"),
            (header.manifest == self.manifest, f"names manifest {header.manifest}, the log's is {self.manifest}"),
            (
                manifest == (header.manifest == number),
                "is a manifest that does not name itself, or names itself as one",
            ),
            (header.previous == self._checksum or begins, "does not follow the object before it"),
            (header.token == (number if claims else self.owner) or begins, "is not by the log's owner"),
            (
                header.predecessor == (self.owner if claims else self.predecessor) or begins,
                f"names owner {header.predecessor} as the one before",
            ),
        ):
            if not holds:
                raise _misplaced(number, fault)

    def _check_that_new(self) -> None:
        """Refuse an empty log beside an object that is written after the first claim: the store lost its log."""
        found = next((name for name in self._store.list("") if name != IDENTITY), None)
        if found is not None:
            raise DataError(
                "MISSING_OBJECT",
                f"the folder holds {found} but no log: it is no store (give another path), or a store whose log is "
                f"lost ({RESTORE})",
            )
        if self._identities.exists(IDENTITY):
            self._identities.check(IDENTITY)
            self.history.dataflow = self.dataflow


def _not_gone(named: FactsObject, facts: tuple[Fact, ...]) -> Iterator[Fact]:
    end = 0
    for begin, following in named.gone:
        yield from facts[end:begin]
        end = following
    yield from facts[end:]


def name_of(number: int) -> str:
    """Return the name of the object with a number; names sort as numbers do."""
    return f"{LOG}{number:012}"


def number_of(name: str) -> int:
    """Return the number in an object's name.

    Raises:
        DataError: `[CORRUPT]` no object of a log has this name.
    """
    if re.fullmatch(r"log/[0-9]{12}", name) is None:
        raise DataError("CORRUPT", f"{name} is no object of a log: move it away")
    return int(name.removeprefix(LOG))


def _misplaced(number: int, fault: str) -> DataError:
    return DataError("CORRUPT", f"{name_of(number)} {fault}: {RESTORE}")
