"""The log: one sequence of numbered objects for claims, groups of records and manifests.

Numbering is the fence (`docs/decisions/0002-one-object-numbering-as-the-fence.md`): a number can be created once, a new
owner first takes the next one, and a process that loses a number is fenced. No check precedes a write, so no pause
between check and write can do harm.

Therefore a number must never become free again while a process may still try it. A paused owner tries the number after
its last, which is the next owner's claim: so claims are never deleted. A process that was paused before its claim may
find a truncated number free: so after the claim it checks whether the log continues beyond it.

`docs/formats/log.md` describes the bytes; `log_reader.py` reads them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from boatlift.errors import BoatliftError, DataError, FencedError, InternalError
from boatlift.storage.identities import BEGUN, IDENTITY, TRUNCATED, drop_older_marks, mark_of
from boatlift.storage.input_log import InputLog
from boatlift.storage.log_reader import FACTS, NAMES, Group, LogReader, name_of
from boatlift.storage.records.codec import Header, checksum_of, encode_facts, encode_group, encode_names
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.manifest_objects import FACTS_AN_OBJECT, NAMES_AN_OBJECT, NamesObjectSize, SeenNames
from boatlift.storage.records.records import Claim, FactsObject, Record, Snapshot, Stopped, without_units
from boatlift.storage.store import Store

CLAIM_ATTEMPTS = 16

WORTH = 3  # a manifest pays if it frees this multiple of its own bytes
LITTLE = 4  # a manifest adds little to new facts that have this multiple of its own bytes


class Log(LogReader):
    """The log of one dataflow, read to its end; after `claim` also its writer.

    A lock admits one thread at a time to `append` and `checkpoint`. After a failed write the log refuses all further
    writes, because only opening the store again shows whether the object exists.

    Args:
        clock: Returns the time of writing in milliseconds since 1970; 0 for unknown.

    Attributes:
        bytes_applied: The bytes of all objects that this process has read or written.
    """

    _garbage: list[int]  # the numbers of the objects that this process has read or written, except claims
    _dissolved: list[str]  # objects of facts and names that the newest manifest does not need; to be deleted
    _bytes_since: int  # bytes of the log's objects from the newest manifest on
    _objects_since: int  # number of objects after the newest manifest

    def __init__(
        self,
        store: Store,
        dataflow: str,
        clock: Callable[[], int],
        facts_an_object: int = FACTS_AN_OBJECT,
        names_an_object: NamesObjectSize = NAMES_AN_OBJECT,
    ) -> None:
        self._clock = clock
        self._names_an_object = names_an_object
        self._facts_written = self._names_written = self.bytes_applied = 0
        self._token: int | None = None
        self._failure: BaseException | None = None
        self._writing = threading.Lock()
        self._meaning = threading.Lock()  # held briefly, never while an object is written
        super().__init__(store, dataflow, facts_an_object)

    @classmethod
    def open(
        cls,
        store: Store,
        dataflow: str | None,
        *,
        clock: Callable[[], int] = lambda: 0,
        facts_an_object: int = FACTS_AN_OBJECT,
        names_an_object: NamesObjectSize = NAMES_AN_OBJECT,
    ) -> Log:
        """Read a store's log to its end; nothing is written before `claim`.

        Args:
            dataflow: The dataflow whose log it must be; None takes the store's own.
        """
        log = cls(store, dataflow or "", clock, facts_an_object, names_an_object)
        log.load()
        return log

    def claim(
        self,
        record: Claim,
        refuse: Callable[[LogHistory], None] = lambda _history: None,
        accepts: Callable[[LogHistory, Claim], Mapping[str, Any]] = lambda history, _: history.program,
    ) -> int:
        """Take the dataflow over: no process with an earlier claim can write any more.

        Args:
            refuse: Raises if the log's content does not fit the claim.
            accepts: Returns the recorded program as the claim may have it: takes the log's content and the claim.

        Returns:
            The token: the number of the claim, larger than that of every earlier owner.

        Raises:
            DataError: `[PROGRAM_CHANGED]` the log, perhaps written by a faster process, is of another program.
            FencedError: `[FENCED]` other processes keep taking the next number.
        """
        if self._token is not None:
            raise InternalError("INTERNAL", f"this log was claimed already, with token {self._token}")
        for _ in range(CLAIM_ATTEMPTS):
            if not record.evolves:  # else `refuse` compares the programs
                self.refuse_other_program(record, accepts)
            refuse(self.history)
            self._identities.create(IDENTITY)
            number = self.last + 1
            try:
                self._write(number, number, self.owner, self.manifest, (record,))
            except FencedError as error:
                if error.condition != "OBJECT_EXISTS":
                    raise
                self._failure = None
            if self._numbers()[-1] == number == self.last:
                self._token = number
                self._identities.create(BEGUN)
                needed = self.objects_of_facts | self.objects_of_names()
                self._dissolved = [  # left by earlier owners
                    name
                    for kind in (FACTS, NAMES)
                    for name in self._store.list(kind)
                    if name < f"{kind}{number:012}" and name not in needed
                ]
                return number
            self.load()
        raise FencedError("FENCED", f"other processes keep claiming {self.dataflow}: stop this one or those")

    def append(self, records: Sequence[Record], entries: int = 1) -> int:
        """Make records durable, all of them or none, and apply them to `history`.

        Args:
            entries: Of the owner's stream, so many are in the records.

        A mark beside the log reveals the loss of a group that ends with `Stopped` (`identities.py`).

        Raises:
            FencedError: `[FENCED]` a newer owner has taken the number.
            UnavailableError: `[STORE_FAILED]` see `Store`.
        """
        with self._writing:
            number = self._write_next(tuple(records), entries)
            if records and isinstance(records[-1], Stopped):
                self._identities.create(mark_of(number))
                drop_older_marks(self._store, number)
            return number

    def pays(self, frees: int = 0) -> bool:
        """Return whether a manifest is worth its bytes.

        It is if it frees several times its bytes, with the `frees` bytes of other objects that can be deleted after it.
        It also is if it frees many objects, or if new facts or names fill an object and the rest of the manifest is
        small: then the log opens faster, and the next manifest is smaller.
        """
        with self._meaning:
            self._fact_objects.dissolve()
            head = msgspec.structs.replace(self.history.snapshot(self._fact_objects), facts=(), standing=(), names={})
            adds = len(msgspec.msgpack.encode(head)) + self._fact_objects.bytes_of_names
            new = self._fact_objects.bytes_of_new
            fill = self._fact_objects.fill_an_object
            for names in self.history.names.values():
                adds += names.bytes_of_objects
                new += names.bytes_of_new
                fill = fill or names.fill_an_object(self._names_an_object)
            return (
                self._bytes_since + frees >= WORTH * (adds + new)
                or self._objects_since >= self._store.requests.most_objects
                or (fill and new >= LITTLE * adds)
            )

    def move_out(self) -> None:
        """Move new facts and names into objects of their own if there are many, so that the next manifest is small.

        The log can be appended to meanwhile. No reader reads the objects before a manifest names them.
        """
        self._refuse_after_failure()
        self._move_facts()
        with self._meaning:
            sources = list(self.history.names.items())
        for source, names in sources:
            self._move_names(source, names)

    def _move_facts(self) -> None:
        with self._meaning:
            self._fact_objects.dissolve()
            parts = self._fact_objects.to_write()
        for facts in parts:
            self._facts_written += 1
            name = f"{FACTS}{self._token:012}-{self._facts_written:012}"
            content = encode_facts(name, facts)
            self._store.create(name, content)
            with self._meaning:
                self._fact_objects.stored_in(FactsObject(name, checksum_of(content).hex(), len(facts)), facts)
                self.objects_of_facts.add(name)

    def _move_names(self, source: str, names: SeenNames) -> None:
        while True:
            with self._meaning:
                part = names.next_object(self._names_an_object)
            if part is None:
                return
            self._names_written += 1
            name = f"{NAMES}{self._token:012}-{self._names_written:012}"
            content = encode_names(name, source, part)
            self._store.create(name, content)
            with self._meaning:
                names.stored_in(name, checksum_of(content).hex(), part)

    def checkpoint(self) -> int:
        """Write a manifest, with which the log begins from now on. See `append`.

        The manifest refers to the objects of `move_out`, and contains the facts and names that are in none.
        """
        with self._writing:
            with self._meaning:
                snapshot = self.history.snapshot(self._fact_objects)
            number = self._write_next((snapshot,), 0)
            with self._meaning:
                # The manifest names objects dissolved meanwhile; the next one names objects made meanwhile.
                needed = {each.name for each in (*snapshot.standing, *self._fact_objects.objects)}
                self._dissolved += sorted(self.objects_of_facts - needed)
                self.objects_of_facts = needed
            return number

    def truncate(self) -> None:
        """Delete the garbage of the newest manifest: earlier objects except claims, and unneeded facts and names.

        A crash may leave some of it, which no reader reads.
        """
        with self._writing:
            garbage = [number for number in self._garbage if number < self.manifest]
            self._garbage = self._garbage[len(garbage) :]
            leftovers, self._leftovers = self._leftovers, []
            dissolved, self._dissolved = self._dissolved, []
        if leftovers:
            claims = set(self.claims())
            garbage += [number for number in leftovers if number not in claims]
        if garbage:
            self._identities.create(TRUNCATED)
        if names := [*map(name_of, garbage), *dissolved]:
            self._store.delete(*names)

    @property
    def stored(self) -> int:
        """The number of this owner's entries in the log."""
        return self.entries if self.begun == self._token else 0

    def newer_owner(self) -> FencedError | None:
        """Return the error of an owner that has lost the log to another process; None if it still owns the log.

        Nothing is written. A successor takes the owner's scratch files and sinks, and so may cause any failure in it:
        the owner asks here before it reports a failure.

        Raises:
            DataError: `[CORRUPT]` an object after this process's last one is damaged.
            UnavailableError: `[STORE_FAILED]` the store cannot be read.
        """
        if self._store.size(name_of(self.last + 1)) is None:  # where a newer owner's claim would be, and stay
            return None
        later = [number for number in self._numbers() if number > self.last]
        return self._taken_over(later[0]) if later and not self._wrote(later[-1]) else None

    def _reset(self) -> None:
        super()._reset()
        self._garbage, self._dissolved = [], []
        self._bytes_since = self._objects_since = 0

    def _apply(self, group: Group) -> None:
        super()._apply(group)
        begins = group.header.number == group.header.manifest
        self._bytes_since = group.size + (0 if begins else self._bytes_since)
        self.bytes_applied += group.size
        self._objects_since = 0 if begins else self._objects_since + 1
        if self.last != self.owner:
            self._garbage.append(self.last)

    def _begin_with(self, snapshot: Snapshot) -> None:
        if self._token is None:
            super()._begin_with(snapshot)
        else:
            self.history.checkpointed()  # the process's own manifest is no news to it

    def _wrote(self, number: int) -> bool:
        """Return whether this owner wrote an object; its last write may have succeeded and not returned yet."""
        try:
            return self._group(number).header.token == self._token
        except DataError as error:
            match error.condition:
                case "NEWER_FORMAT":  # of a newer version of Boatlift
                    return False
                case "MISSING_OBJECT":  # truncated since it was listed; by this owner only if it wrote beyond it
                    return number <= self.last
                case _:
                    raise

    def _write_next(self, records: tuple[Record, ...], entries: int) -> int:
        self._refuse_after_failure()
        if self._token is None:
            raise InternalError("INTERNAL", "the log must be claimed before it is written")
        number = self.last + 1
        manifest = number if any(isinstance(record, Snapshot) for record in records) else self.manifest
        try:
            self._write(number, self._token, self.predecessor, manifest, records, self.stored + entries)
        except FencedError as error:
            self._failure = self._taken_over(number)
            raise self._failure from error
        return number

    def _write(
        self, number: int, token: int, predecessor: int, manifest: int, records: tuple[Record, ...], entries: int = 0
    ) -> None:
        header = Header(self.dataflow, number, token, predecessor, self._checksum, manifest, self._clock(), entries)
        content = encode_group(header, records)
        try:
            self._store.create(name_of(number), content)
        except BaseException as error:
            self._failure = error
            raise
        with self._meaning:
            self._apply(Group(header, records, checksum_of(content), len(content)))

    def input_log(self, source: str) -> InputLog:
        """Return the input log of a source, to be read beside its owner."""
        return InputLog(self._store, self.store_id, source)

    def refuse_other_program(self, record: Claim, accepts: Callable[[LogHistory, Claim], Mapping[str, Any]]) -> None:
        """Raise if a claim is of another program than the log.

        Raises:
            DataError: `[PROGRAM_CHANGED]`.
        """
        if not without_units(self.history.program):
            return
        recorded, now = without_units(accepts(self.history, record)), without_units(record.program)
        encode = partial(msgspec.msgpack.encode, order="deterministic")  # JSON values: a tuple is a list
        changed = sorted(key for key in {*recorded, *now} if encode(recorded.get(key)) != encode(now.get(key)))
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
        except BoatliftError:  # the newer owner may have truncated it: then the owner's name is unknown
            records = ()
        claims = [record for record in records if isinstance(record, Claim)]
        owner = f"process {claims[0].pid} on {claims[0].host}" if claims else "a newer process"
        message = f"{owner} has taken {self.dataflow} over from this process, which claimed it with token {self._token}"
        return FencedError("FENCED", f"{message}: this one stops")
