"""The log: one sequence of numbered objects for claims, groups of records and manifests.

Numbering is the fence (design, section 6; `docs/decisions/0002-one-numbering-is-the-fence.md`): a number can be created
once, a new owner's first act is to take the next one, and whoever loses a number is fenced. There is no check before a
write, so there is no pause between check and write to lose to.

A number must therefore never become free again while someone may still try it. An owner that was paused tries the
number after its last, and that is the claim of whoever came next: so claims are never deleted. Who was paused before
its claim may find a number free that was truncated; it looks, after the claim, whether the log goes on beyond it.

`docs/formats/log.md` describes the bytes.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from boatlift.errors import BoatliftError, DataError, FencedError, InternalError
from boatlift.storage.records.codec import (
    Header,
    StoreIdentity,
    checksum_of,
    decode_group,
    decode_identity,
    encode_group,
    encode_identity,
)
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim, Record, Snapshot, Stopped
from boatlift.storage.stops import drop_older_marks, last_mark, mark_of, newest_mark
from boatlift.storage.store import Store

__all__ = ["BEGUN", "FIRST", "IDENTITIES", "IDENTITY", "LOG", "TRUNCATED", "Group", "Log", "name_of", "number_of"]

LOG = "log/"
FIRST = 1
IDENTITY = "dataflow"
"""The object that says whose store this is; created before the first claim."""
BEGUN = "begun"
"""The object that says that there was a claim; created after the first, before anything rests on it."""
TRUNCATED = "truncated"
"""The object that says that the log begins with a manifest; created before the first truncation."""
IDENTITIES = (IDENTITY, BEGUN, TRUNCATED)

STORE_ID_BYTES = 16
CLAIM_ATTEMPTS = 16
READ_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Group:
    """One object of the log."""

    header: Header
    records: tuple[Record, ...]
    checksum: bytes


class Log:
    """The log of one dataflow, read to its end; after `claim` also its writer.

    `append` and `checkpoint` are for one thread at a time, by a lock. After any failure to write, the log refuses all
    further writes: what became of the object is not known before the store is opened again.

    Attributes:
        dataflow: The dataflow's name.
        store_id: Tells the store, and copies of it, from all others; empty before the first claim of a new one.
        history: What the records mean; it follows what this process writes.
        last: The number of the newest object, 0 for none.
        manifest: The number of the newest manifest, 0 for none.
        owner: The token of the owner that wrote the newest object, 0 for none.
        predecessor: The token of the owner before that one, 0 for none.
        written_at: When the newest object was written, in milliseconds since 1970, 0 if unknown.
    """

    def __init__(self, store: Store, dataflow: str, clock: Callable[[], int]) -> None:
        self.dataflow = dataflow
        self.store_id = ""
        self._store, self._clock = store, clock
        self._token: int | None = None
        self._failure: BaseException | None = None
        self._writing = threading.Lock()
        self._only_claims = True
        self._garbage: list[int] = []  # what this process has read or written, except claims
        self._leftovers: list[int] = []  # what was before the manifest, unread: claims, and what a crash left
        self._reset()

    @classmethod
    def open(cls, store: Store, dataflow: str | None, *, clock: Callable[[], int] = lambda: 0) -> Log:
        """Reads a store's log: the last object, the manifest it names, and everything from there on.

        It writes nothing, so it is for readers too. A process that writes meanwhile does not disturb it.

        Args:
            store: Where the log is. Without any object it is a new store, with an empty log.
            dataflow: Whose log it must be; None takes it as it is.
            clock: Gives the time of day for what is written, in milliseconds since 1970; 0 is no time.

        Raises:
            DataError: `[MISSING_OBJECT]` an object that must be there is not, also when *all* of the log is gone;
                `[CORRUPT]` an object is damaged or out of place; `[NEWER_FORMAT]`; `[STORE_OF_ANOTHER_DATAFLOW]`.
        """
        log = cls(store, dataflow or "", clock)
        log._load()
        return log

    # -- writing ------------------------------------------------------------------------------------------------------

    def claim(self, record: Claim) -> int:
        """Takes the dataflow over: from now on nobody who claimed before can write.

        Returns:
            The token: the number of the claim, larger than that of every earlier owner.

        Raises:
            DataError: `[PROGRAM_CHANGED]` the log, perhaps by someone who was just faster, is of another program.
            FencedError: `[FENCED]` others keep taking the next number.
        """
        if self._token is not None:
            raise InternalError("INTERNAL", f"this log was claimed already, with token {self._token}")
        for _ in range(CLAIM_ATTEMPTS):
            self._refuse_other_program(record)
            self._create_identity(IDENTITY)
            number = self.last + 1
            try:
                self._write(self._header(number, number, self.owner, self.manifest), (record,))
            except FencedError as error:
                if error.condition != "OBJECT_EXISTS":
                    raise
                self._failure = None
            if self._numbers()[-1] == number == self.last:
                self._token = number
                self._create_identity(BEGUN)
                return number
            self._load()
        raise FencedError("FENCED", f"other processes keep claiming {self.dataflow}: stop this one or those")

    def append(self, records: Sequence[Record]) -> int:
        """Makes records durable, all of them or none, and applies them to `history`.

        A group that ends with `Stopped` is marked beside the log (`storage/stops.py`), so that its loss is seen.

        Returns:
            The number of their object.

        Raises:
            FencedError: `[FENCED]` a newer owner has taken the number.
            UnavailableError: `[STORE_FAILED]` see `Store`.
        """
        with self._writing:
            number = self._write_next(tuple(records))
            if records and isinstance(records[-1], Stopped):
                self._create_identity(mark_of(number))
                drop_older_marks(self._store, number)
            return number

    def newer_owner(self) -> FencedError | None:
        """Return the error of an owner that has lost the log to another process; None if none has claimed it since. It writes nothing.

        Whatever goes wrong in a process may be a successor's doing, which has taken its scratch files and sinks.

        Raises:
            DataError: `[CORRUPT]` what was written after this process's last object is damaged.
            UnavailableError: `[STORE_FAILED]` the store cannot be read.
        """
        if self._store.size(name_of(self.last + 1)) is None:  # where a newer owner's claim would be, and stay
            return None
        later = [number for number in self._numbers() if number > self.last]
        return self._taken_over(later[0]) if later and not self._wrote(later[-1]) else None

    def _wrote(self, number: int) -> bool:
        """Return whether this owner wrote an object; of its newest one it may not know yet that it is there."""
        try:
            return self._group(number).header.token == self._token
        except DataError as error:
            match error.condition:
                case "NEWER_FORMAT":  # of a newer version of Boatlift
                    return False
                case "MISSING_OBJECT":  # truncated since it was listed, by this owner only if it has gone on beyond it
                    return number <= self.last
                case _:
                    raise

    def checkpoint(self, snapshot: Snapshot) -> int:
        """Writes a manifest: from now on the log begins here. See `append`."""
        with self._writing:
            return self._write_next((snapshot,))

    def truncate(self) -> None:
        """Deletes the objects before the newest manifest, except claims. A crash may leave some; nobody reads them."""
        with self._writing:
            garbage = [number for number in self._garbage if number < self.manifest]
            self._garbage = self._garbage[len(garbage) :]
            leftovers, self._leftovers = self._leftovers, []
        if leftovers:
            claims = set(self.claims())
            garbage += [number for number in leftovers if number not in claims]
        if garbage:
            self._create_identity(TRUNCATED)
        for number in garbage:
            self._store.delete(name_of(number))

    def claims(self) -> Iterator[int]:
        """Gives the tokens of all owners that there ever were, the newest first.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]` one of the claims is not as it was written.
        """
        token, predecessor = self.owner, self.predecessor
        while token:
            header = self._group(token).header
            if not header.number == header.token == token > header.predecessor or (
                token == self.owner and header.predecessor != predecessor
            ):
                raise _misplaced(token, "is not the claim that the log's owners rest on")
            yield token
            token = header.predecessor

    def last_claim(self) -> Claim | None:
        """Tells who owns the log, or owned it last; None if nobody ever did. Claims outlive manifests."""
        return self._claim_of(self.owner)

    def previous_claim(self) -> Claim | None:
        """Return the claim of the owner before the newest; None if there was none."""
        return self._claim_of(self.predecessor)

    def _claim_of(self, token: int) -> Claim | None:
        if not token:
            return None
        (record,) = self._group(token).records
        if not isinstance(record, Claim):
            raise _misplaced(token, "is not the claim that the log's owners rest on")
        return record

    def check_mark(self) -> None:
        """Refuse a mark of the newest stop in good order that is damaged, or another store's.

        Raises:
            DataError: `[CORRUPT]`.
        """
        if (mark := newest_mark(self._store)) is not None:
            self._check_identity(mark)

    def groups(self) -> Iterator[Group]:
        """Reads the objects from the newest manifest on again, in order."""
        for number in range(self.manifest or FIRST, self.last + 1):
            yield self._group(number)

    def _write_next(self, records: tuple[Record, ...]) -> int:
        self._refuse_after_failure()
        if self._token is None:
            raise InternalError("INTERNAL", "the log must be claimed before it is written")
        number = self.last + 1
        manifest = number if any(isinstance(record, Snapshot) for record in records) else self.manifest
        try:
            self._write(self._header(number, self._token, self.predecessor, manifest), records)
        except FencedError as error:
            self._failure = self._taken_over(number)
            raise self._failure from error
        return number

    def _header(self, number: int, token: int, predecessor: int, manifest: int) -> Header:
        return Header(self.dataflow, number, token, predecessor, self._checksum, manifest, self._clock())

    def _write(self, header: Header, records: tuple[Record, ...]) -> None:
        content = encode_group(header, records)
        try:
            self._store.create(name_of(header.number), content)
        except BaseException as error:
            self._failure = error
            raise
        self._take(Group(header, records, checksum_of(content)))

    def _create_identity(self, name: str) -> None:
        if self._store.size(name) is None:
            # A process that is faster makes the store: its id is then read below, and this one is nobody's.
            store = self.store_id or secrets.token_hex(STORE_ID_BYTES)
            try:
                self._store.create(name, encode_identity(StoreIdentity(self.dataflow, name, store)))
            except FencedError as error:
                if error.condition != "OBJECT_EXISTS":
                    raise
        self._check_identity(name)

    def _refuse_other_program(self, record: Claim) -> None:
        recorded = self.history.program
        if not recorded:
            return
        changed = sorted(
            key for key in {*recorded, *record.program} if not _same(recorded.get(key), record.program.get(key))
        )
        if changed:
            raise DataError(
                "PROGRAM_CHANGED",
                f"the store was written by another version of this program: {', '.join(changed)} changed: run the "
                "version that wrote it, or begin with a new store and new sinks",
            )

    def _refuse_after_failure(self) -> None:
        match self._failure:
            case None:
                return
            case BoatliftError() as error:
                raise type(error)(error.condition, error.message) from error
            case error:
                raise error

    def _taken_over(self, number: int) -> FencedError:
        try:
            records = self._group(number).records
        except BoatliftError:  # the newer owner may have truncated it: then its name is not known
            records = ()
        claims = [record for record in records if isinstance(record, Claim)]
        who = f"process {claims[0].pid} on {claims[0].host}" if claims else "a newer process"
        message = f"{who} has taken {self.dataflow} over from this process, which claimed it with token {self._token}"
        return FencedError("FENCED", f"{message}: this one stops")

    # -- reading ------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        numbers = self._numbers()
        for _ in range(READ_ATTEMPTS):
            try:
                self._read(numbers)
            except DataError as error:
                # Someone may have written and truncated since the numbers were listed: then there is a newer last one.
                before, numbers = numbers, self._numbers()
                if error.condition != "MISSING_OBJECT" or before[-1:] == numbers[-1:]:
                    raise
            else:
                return
        self._read(numbers)

    def _numbers(self) -> list[int]:
        return [number_of(name) for name in self._store.list(LOG)]

    def _read(self, numbers: list[int]) -> None:
        self._reset()
        if not numbers:
            self._check_that_new()
            return
        self._check_identity(IDENTITY)
        present = set(numbers)
        newest = self._group(numbers[-1])
        self.manifest = newest.header.manifest
        if self.manifest > numbers[-1]:
            raise _misplaced(numbers[-1], f"names manifest {self.manifest}, which comes after it")
        self._leftovers = [number for number in numbers if number < self.manifest]
        for number in range(self.manifest or FIRST, numbers[-1] + 1):
            if number not in present:
                raise DataError(
                    "MISSING_OBJECT",
                    f"{name_of(number)} is not there, though the log goes on to {name_of(numbers[-1])}: {RESTORE}",
                )
            group = newest if number == numbers[-1] else self._group(number)
            self._check_place(group, number)
            try:
                self._take(group)
            except (TypeError, ValueError) as error:  # times of different domains do not compare
                raise _misplaced(number, f"holds times that do not go with those before ({error})") from error
        if (marked := last_mark(self._store)) > self.last:
            raise DataError(
                "MISSING_OBJECT",
                f"{name_of(marked)} is not there, though an owner stopped in good order with it, and the log ends with "
                f"{name_of(self.last)}: what came between is lost: {RESTORE}",
            )
        if self.manifest or not self._only_claims:
            self._check_identity(BEGUN)
        if len(self._leftovers) < self.manifest - FIRST:
            self._check_identity(TRUNCATED)
        elif not self.manifest and self._store.size(TRUNCATED) is not None:
            raise DataError(
                "MISSING_OBJECT", f"the log's newest manifest is not there, though {TRUNCATED} is: {RESTORE}"
            )

    def _reset(self) -> None:
        self.history = LogHistory(self.dataflow)
        self.last = self.manifest = self.owner = self.predecessor = self.written_at = 0
        self._checksum = b""
        self._only_claims = True
        self._garbage, self._leftovers = [], []

    def _take(self, group: Group) -> None:
        self.last, self._checksum = group.header.number, group.checksum
        self.manifest, self.written_at = group.header.manifest, group.header.at
        self.owner, self.predecessor = group.header.token, group.header.predecessor
        if self.last != self.owner:
            self._garbage.append(self.last)
        for record in group.records:
            self._only_claims = self._only_claims and isinstance(record, Claim)
            self.history.apply(record)

    def _group(self, number: int) -> Group:
        name = name_of(number)
        content = self._store.read(name)
        header, records = decode_group(content, name)
        return Group(header, records, checksum_of(content))

    def _check_place(self, group: Group, number: int) -> None:
        """Refuses a whole object in a wrong place: copied, renamed, or from another store."""
        header, records = group.header, group.records
        claims = any(isinstance(record, Claim) for record in records)
        manifest = any(isinstance(record, Snapshot) for record in records)
        begins = number == self.manifest and self.last == 0  # what came before a manifest may be gone
        for holds, what in (
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
                raise _misplaced(number, what)

    def _check_identity(self, name: str) -> None:
        if self._store.size(name) is None:
            raise DataError("MISSING_OBJECT", f"{name} is not there, though the store holds a log: {RESTORE}")
        identity = decode_identity(self._store.read(name), name)
        if identity.role != name:
            raise DataError("CORRUPT", f"{name} is a copy of {identity.role}: {RESTORE}")
        if not self.dataflow:
            self.dataflow = self.history.dataflow = identity.dataflow
        if identity.dataflow != self.dataflow:
            raise DataError(
                "STORE_OF_ANOTHER_DATAFLOW",
                f"the store belongs to dataflow {identity.dataflow}, not {self.dataflow}: give each its own",
            )
        if name == IDENTITY:
            self.store_id = identity.store
        if identity.store != self.store_id:
            raise DataError("CORRUPT", f"{name} is of store {identity.store}, not {self.store_id}: {RESTORE}")

    def _check_that_new(self) -> None:
        """An empty log is a new store's only if nothing else is there but what comes before the first claim."""
        found = next((name for name in self._store.list("") if name != IDENTITY), None)
        if found is not None:
            raise DataError(
                "MISSING_OBJECT",
                f"the folder holds {found} but no log: it is a store that lost its log ({RESTORE}), or no "
                "store at all (give another path)",
            )
        if self._store.size(IDENTITY) is not None:
            self._check_identity(IDENTITY)


def name_of(number: int) -> str:
    """Names the object of a number, so that names sort as numbers do."""
    return f"{LOG}{number:012}"


def number_of(name: str) -> int:
    """Gives the number in an object's name.

    Raises:
        DataError: `[CORRUPT]` no object of a log has this name.
    """
    if re.fullmatch(r"log/[0-9]{12}", name) is None:
        raise DataError("CORRUPT", f"{name} is no object of a log: move it away")
    return int(name.removeprefix(LOG))


def _misplaced(number: int, what: str) -> DataError:
    return DataError("CORRUPT", f"{name_of(number)} {what}: {RESTORE}")


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal once written: a tuple is a list then."""
    encode = msgspec.msgpack.encode
    return encode(one, order="deterministic") == encode(other, order="deterministic")
