"""The input log: pushed rows, which no other system keeps, durable before their client gets an answer.

Its objects are numbered, `input/SOURCE/NNNNNNNNNNNN`, and the numbering is the fence, as in the log
(`docs/decisions/0002`). A new owner's first act is to take the next number; an owner that
loses a number is fenced. So the next owner reads every row that a client knows of. Claims are never deleted, because
an owner that slept tries the number after its last.

A push may have a key. The log remembers keys for a while, also when the rows are long gone: a *memo* repeats them, so
that the objects before it can be deleted. Once they are many, a *pack* has them: an object `keys/SOURCE/…`, which the
memo names. `docs/formats/input-log.md` describes the bytes.

A batch reads the whole log, again and again. Where rows replace one another, *integrals* take the place of rows that no
failure needs: objects of their own, `integrals/SOURCE/…`, which the newest memo names. They are durable before that
memo, and the rows go after it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from boatlift.errors import DataError, FencedError, InvalidError
from boatlift.storage.compacted_parts import CompactedParts, LogSpan, checksum_in, read_known, sum_of
from boatlift.storage.input_objects import InputPart, number_in
from boatlift.storage.key_packs import KeyPacks
from boatlift.storage.records.codec import CompactedSegment, InputObject, Push, checksum_of, decode_input, encode_input
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.remembered_keys import RememberedKeys
from boatlift.storage.store import Store

__all__ = ["CLAIM", "INPUT", "InputLog"]

INPUT = "input/"

CLAIM, KEY_CHECKPOINT, ROWS, KEYS = "claim", "memo", "rows", "keys"

CLAIM_ATTEMPTS = READ_ATTEMPTS = 16

KEY_CHECKPOINT_AFTER, KEY_CHECKPOINT_BYTES = 256, 64 << 20
"""So many objects, or bytes, must be free before a memo repeats their keys and they are deleted; more if there are many
keys."""

KEY_BYTES = 256
"""For each key that a memo repeats, so many bytes must be free."""


class InputLog:
    """The pushed rows of one source. Several threads may use it, but only one calls `append` and `free`.

    Laws:
        * Once `append` has returned, every later owner and reader reads the rows.
        * Once a newer owner has claimed, `append` raises `FencedError [FENCED]`, and its rows are never read.
        * `free` removes rows, never the memory of keys.
        * `replace` removes only rows that are free, and only after what stands for them is durable.
        * The files of the last `files_up_to` stay until the next one.

    Args:
        store: The store.
        store_id: The id of the store: an object of another one is refused.
        source: The source's name.
        keeps_all: Whether rows, or integrals of them, are kept though no failure needs them, because a batch reads all
            of them again.

    Attributes:
        store_id, source, keeps_all: As given.
        last: The number of the newest object; 0: there is none.
        waiting: The bytes of all objects that are not free.
        keeps_rows: Whether later owners read the appended rows.
        begun: Whether rows can be appended, and keys looked up.
        compacted_parts: The objects with the rows of integrals.
        key_packs: The objects with packed keys.
        keys: The keys that are remembered.
    """

    keeps_rows = begun = True

    def __init__(self, store: Store, store_id: str, source: str, *, keeps_all: bool = False) -> None:
        self._store, self.store_id, self.source = store, store_id, source
        self.keeps_all = keeps_all
        self._prefix = f"{INPUT}{source}/"
        self.compacted_parts = CompactedParts(store, store_id, source)
        self.key_packs = KeyPacks(store, store_id, source)
        self._held: frozenset[str] = frozenset()
        self._changing = threading.Lock()
        self._token: int | None = None
        self._forget()

    def _forget(self) -> None:
        self.last = self.waiting = 0
        self._base = self._key_checkpoint = self._freed = self._gone = self._free_bytes = 0
        self._claims: tuple[int, ...] = ()
        self._parts: dict[int, InputPart] = {}
        self._present: set[int] = set()
        self._compacted: tuple[CompactedSegment, ...] = ()
        self.keys = RememberedKeys()

    @property
    def claims(self) -> tuple[int, ...]:
        """The numbers of all claims ever made, as the newest claim or memo names them."""
        return self._claims

    @property
    def compacted(self) -> tuple[CompactedSegment, ...]:
        """What stands for the rows of the first objects, one span behind the other."""
        return self._compacted

    def load(self, freed: int = 0) -> None:
        """Read the log.

        Args:
            freed: The number up to which no failure needs rows, as far as the caller knows.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`, `[NEWER_FORMAT]`.
        """
        numbers = self._numbers()
        self.compacted_parts.look()
        self.key_packs.look()
        for tries_left in reversed(range(READ_ATTEMPTS)):
            try:
                self._load(numbers, freed)
                break
            except DataError as error:
                # Its owner may have deleted free objects meanwhile: read the log as it is now.
                before, numbers = numbers, self._numbers()
                if error.condition != "MISSING_OBJECT" or numbers == before or not tries_left:
                    raise

    def _load(self, numbers: set[int], freed: int) -> None:
        with self._changing:
            self._forget()
            if not numbers:
                if freed:
                    raise DataError(
                        "MISSING_OBJECT", f"{self._prefix} is gone, though steps took rows of it: {RESTORE}"
                    )
                return
            self.last = max(numbers)
            self._present, self._freed = numbers, freed
            self._key_checkpoint = key_checkpoint = self._read(self.last).key_checkpoint
            begin = 1 + (
                self._read(key_checkpoint).freed if key_checkpoint else 0
            )  # without a memo no object was deleted
            for number in range(begin, self.last + 1):
                if number not in numbers:
                    raise DataError("MISSING_OBJECT", f"{self._name(number)} is not there: {RESTORE}")
                self._take(number)

    def parts(self, after: int) -> list[tuple[int, InputPart]]:
        """Return the objects with rows after a number, in order."""
        with self._changing:
            return [(number, part) for number, part in self._parts.items() if number > after]

    def find(self, key: str) -> Push | None:
        """Return the push with a key; None if the log knows none. Before it is claimed it knows no packed keys.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]` a pack cannot be read.
            FencedError: `[FENCED]` a pack cannot be read, since a newer owner has deleted it.
        """
        try:
            with self._changing:
                return self.keys.find(key) or self.key_packs.find(key)
        except DataError:
            self.check_newest()  # a newer owner deletes packs whose time is over
            raise

    def is_freed(self, number: int) -> bool:
        """Return whether no failure needs the rows of an object."""
        with self._changing:
            return number <= self._freed

    def files_up_to(self, last: int) -> list[tuple[Path, int]]:
        """Return the files with all rows of the objects up to a number, and the bytes of each.

        Of integrals they have the rows that stand for the others. They stay until this is called again.

        Raises:
            DataError: `[INPUT_MISSING]` the integrals stand for later rows, too.
        """
        with self._changing:
            if self._compacted and self._compacted[-1].last > last:
                raise DataError(
                    "INPUT_MISSING",
                    f"the rows pushed to {self.source} up to object {last} are part of an integral up to object "
                    f"{self._compacted[-1].last}: {RESTORE}",
                )
            named = [(part.name, part.size) for each in self._compacted for part in each.parts]
            named += [(self._name(number), part.size) for number, part in self._parts.items() if number <= last]
            self._held = frozenset(name for name, _ in named)
        return [(self._file(name), size) for name, size in named]

    def replaceable(self) -> LogSpan | None:
        """Return a span of free rows that one integral had better take the place of, if there is one.

        Law: if that is done each time, the bytes of all integrals ever written are in proportion to the bytes appended,
        times the logarithm of the bytes kept.
        """
        with self._changing:
            numbers = tuple(number for number in self._parts if number <= self._freed)
            size, keys = sum(self._parts[number].size for number in numbers), self.keys.unpacked
            many = len(numbers) >= max(KEY_CHECKPOINT_AFTER, keys // KEY_CHECKPOINT_AFTER)
            if not self.keeps_all or not (many or size >= max(KEY_CHECKPOINT_BYTES, KEY_BYTES * keys)):
                return None
            kept = list(self._compacted)
            while kept and kept[-1].size <= size:
                size += kept.pop().size
            return LogSpan(kept[-1].last + 1 if kept else 1, self._compacted[len(kept) :], numbers)

    def numbers_within(self, first: int, last: int) -> list[int]:
        """Return the numbers of the objects with rows in a range, both ends included."""
        return [number for number, _ in self.parts(first - 1) if number <= last]

    def checksum(self, number: int) -> bytes:
        """Read the checksum that an object carries now.

        Raises:
            DataError: `[INPUT_MISSING]`.
        """
        return checksum_in(self._store, self._name(number))

    def digest_up_to(self, last: int) -> int:
        """Return the sum of the checksums of all objects with rows up to a number, by what is there now.

        Raises:
            DataError: `[INPUT_MISSING]`, `[INPUT_CHANGED]` an integral is not the one that was written.
        """
        while True:
            with self._changing:
                compacted, numbers = self._compacted, [number for number in self._parts if number <= last]
            try:
                for part in (part for each in compacted for part in each.parts):
                    self.compacted_parts.check(part)
                return sum_of([*(each.digest for each in compacted), *map(self.checksum, numbers)])
            except DataError as error:
                if error.condition != "INPUT_MISSING" or compacted == self._compacted:
                    raise  # else an integral has taken their place meanwhile

    def path(self, number: int) -> Path:
        """Return the file in which tasks can read an object."""
        return self._file(self._name(number))

    def _file(self, name: str) -> Path:
        path = self._store.local_path(name)
        if path is None:
            raise InvalidError(
                "BAD_OPTION", "tasks read pushed rows as files: use a store whose objects are local files"
            )
        return path

    def claim(self, token: int, freed: int, taken: int = 0) -> None:
        """Take the source's input over: no earlier owner can append from now on.

        Args:
            token: The owner's token; newer owners have larger ones.
            freed: As for `load`.
            taken: The last number that a recorded step took: its object must be there.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`, `[NEWER_FORMAT]`.
            FencedError: `[FENCED]` a newer owner has the log.
        """
        for _ in range(CLAIM_ATTEMPTS):
            self.load(freed)
            if self.last < taken:
                raise DataError("MISSING_OBJECT", f"{self._name(taken)} is not there, and a step took it: {RESTORE}")
            if self.last and (newest := self._read(self.last)).token > token:
                raise self._fenced(newest.token)
            number = self.last + 1
            try:
                self._create(self._object(CLAIM, token=token, claims=(*self._claims, number)))
            except FencedError as error:
                if error.condition != "OBJECT_EXISTS":
                    raise
                continue
            if max(self._numbers()) == number:
                self._token = token
                self.key_packs.open(self.keys.packed)
                self._tidy()
                return
        raise FencedError("FENCED", f"other processes keep taking over the pushes to {self.source}: stop this process")

    def append(self, pushes: Sequence[Push], rows: bytes) -> int:
        """Make pushes durable, all or none; return the number of their object.

        Args:
            pushes: The pushes; `number` is set here.
            rows: All their rows, in order, as an Arrow stream.

        Raises:
            FencedError: `[FENCED]`.
            UnavailableError: `[STORE_FAILED]`; the pushes may or may not be there.
        """
        numbered = tuple(msgspec.structs.replace(push, number=self.last + 1) for push in pushes)
        self._write(self._object(ROWS, pushes=numbered, rows=rows))
        return self.last

    def record_keys(self, pushes: Sequence[Push]) -> int:
        """Make the keys of pushes durable, without their rows; return the number of their object.

        Raises:
            FencedError: `[FENCED]`.
            UnavailableError: `[STORE_FAILED]`.
        """
        numbered = tuple(msgspec.structs.replace(push, number=self.last + 1) for push in pushes)
        self._write(self._object(KEYS, pushes=numbered))
        return self.last

    def void(self, after: int) -> None:
        """Remove the keys that were recorded after a number: the results of their rows were lost."""
        with self._changing:
            kept = self.keys.up_to(after)
            void = len(kept) < len(self.keys)
            self._freed = self.last if void else self._freed
        if void:
            self._write_key_checkpoint(kept, self.last)
            self._tidy()

    def remember(self, since: int, up_to: int | None = None, *, full: bool = False) -> None:
        """Pack keys once they are many, and forget packs whose time is over.

        Args:
            since: Keys that are older than this (milliseconds since 1970) may be forgotten.
            up_to: No later key is packed, since it may become void; None: none may.
            full: Forget keys that are in no pack, too: there is no room for others.

        Raises:
            FencedError: `[FENCED]`.
            UnavailableError: `[STORE_FAILED]`.
        """
        last = self.last if up_to is None else up_to
        with self._changing:
            if not (self.keys.is_due(since, last) or (full and self.keys.forgets(since))):
                return
            keys = self.keys.newest(since)
        assert self._token is not None, "claim comes first"
        keys = keys.packed_up_to(last, self.key_packs, self._token, self.last + 1)
        self._write_key_checkpoint(keys, self._gone)
        self._drop_packs()  # and nothing else: parts of an integral may be written meanwhile

    def free(self, number: int, remember: int) -> None:
        """Free rows up to a number, and delete objects that no owner needs.

        Args:
            number: The number of an object.
            remember: Keys that are older than this (milliseconds since 1970) may be forgotten.
        """
        with self._changing:
            for each in range(self._freed + 1, number + 1):
                size = self._parts[each].size if each in self._parts else 0
                self.waiting, self._free_bytes = self.waiting - size, self._free_bytes + size
            self._freed = max(self._freed, number)
            keys = self.keys.unpacked
            many = self._freed - self._gone >= max(KEY_CHECKPOINT_AFTER, keys // KEY_CHECKPOINT_AFTER)
            wanted = not self.keeps_all and (many or self._free_bytes >= max(KEY_CHECKPOINT_BYTES, KEY_BYTES * keys))
            kept = self.keys.newest(remember) if wanted else None
        if kept is not None:
            self._write_key_checkpoint(kept, self._freed)
            self._tidy()

    def read_rows(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Read objects with rows; yield of each how many rows were pushed before it, and its rows as an Arrow stream.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]` one is not the object that the log took in.
        """
        with self._changing:
            known = [(number, self._parts[number].checksum) for number in numbers]
        for number, checksum in known:
            found = decode_input(read_known(self._store, self._name(number), checksum), self._name(number))
            yield found.base, found.rows

    def replace(self, compacted: CompactedSegment, remember: int) -> None:
        """Let an integral, whose parts are durable, take the place of all that its span has; delete that.

        Args:
            compacted: The integral; its span ends with an object that is free.
            remember: Keys that are older than this (milliseconds since 1970) may be forgotten.

        Raises:
            FencedError: `[FENCED]`.
            UnavailableError: `[STORE_FAILED]`.
        """
        with self._changing:
            assert compacted.last <= self._freed
            kept = tuple(each for each in self._compacted if each.last < compacted.first)
            keys = self.keys.newest(remember)
        self._write_key_checkpoint(keys, compacted.last, (*kept, compacted))
        self._tidy()

    def release(self) -> None:
        """Delete what only the last `files_up_to` has kept, and parts of integrals that took no rows' place.

        All that was written is known to be durable, and nothing is under way.
        """
        with self._changing:
            self._held = frozenset()
        self._tidy()

    def check_newest(self) -> None:
        """Make sure that no other owner has claimed the log: this owner knows all of its objects.

        Raises:
            FencedError: `[FENCED]` a newer owner has.
        """
        number = self.last + 1
        if self._store.size(self._name(number)) is not None and (found := self._read(number)).token != self._token:
            raise self._fenced(found.token)

    def _object(self, kind: str, *, token: int | None = None, **content: Any) -> InputObject:
        owner = self._token if token is None else token
        assert owner is not None, "claim comes first"
        number = self.last + 1
        key_checkpoint = number if kind == KEY_CHECKPOINT else self._key_checkpoint
        return InputObject(self.store_id, self.source, number, owner, self._base, key_checkpoint, kind, **content)

    def _write_key_checkpoint(
        self, keys: RememberedKeys, freed: int, compacted: tuple[CompactedSegment, ...] | None = None
    ) -> None:
        named = self._compacted if compacted is None else compacted
        content: dict[str, Any] = {"pushes": keys.pushes, "packed": keys.packed, "compacted": named}
        self._write(self._object(KEY_CHECKPOINT, claims=self._claims, freed=freed, **content))
        with self._changing:
            self.key_packs.open(keys.packed)  # lets go of those that it does not name, before they are deleted

    def _write(self, written: InputObject) -> None:
        """Write the next object."""
        try:
            self._create(written)
        except FencedError as error:
            if error.condition != "OBJECT_EXISTS":
                raise
            raise self._fenced(self._read(written.number).token) from error

    def _create(self, written: InputObject) -> None:
        content = encode_input(written)
        self._store.create(self._name(written.number), content)
        with self._changing:
            self.last = written.number
            self._present.add(written.number)
            self._apply(written, content)

    def _take(self, number: int) -> None:
        name = self._name(number)
        content = self._store.read(name)
        self._apply(self._checked(decode_input(content, name), number), content)

    def _apply(self, found: InputObject, content: bytes) -> None:
        if found.kind == ROWS:
            self._parts[found.number] = InputPart(found.base, found.count, len(content), checksum_of(content))
            self.waiting += len(content) if found.number > self._freed else 0
        elif found.kind != KEYS:
            self._claims = found.claims
        if found.kind == KEY_CHECKPOINT:
            self.keys, self._key_checkpoint = RememberedKeys(found.pushes, found.packed), found.number
            self._free_bytes = self._free_bytes if found.freed == self._gone else 0
            self._gone, self._compacted = found.freed, found.compacted
            self._parts = {number: part for number, part in self._parts.items() if number > found.freed}
        self._base = found.base + found.count
        if found.number > self._key_checkpoint:  # a memo has repeated the others
            self.keys.add(found.pushes)

    def _read(self, number: int) -> InputObject:
        return self._checked(decode_input(self._store.read(self._name(number)), self._name(number)), number)

    def _checked(self, found: InputObject, number: int) -> InputObject:
        if (found.store, found.source, found.number) != (self.store_id, self.source, number):
            raise DataError(
                "CORRUPT",
                f"{self._name(number)} is number {found.number} of {found.source} in store {found.store}, copied here: "
                f"{RESTORE}",
            )
        return found

    def _tidy(self) -> None:
        """Delete the objects that the newest memo covers, but no claims, and parts and packs that it does not name.

        No part of an integral is being written meanwhile.
        """
        with self._changing:
            kept = self._held.union(part.name for each in self._compacted for part in each.parts)
            covered = {number for number in self._present if number <= self._gone}.difference(self._claims)
            gone = {number for number in covered if self._name(number) not in kept}
            self._present -= gone
        for number in sorted(gone):
            self._store.delete(self._name(number))
        self.compacted_parts.keep(kept)
        self._drop_packs()

    def _drop_packs(self) -> None:
        self.key_packs.keep({pack.name for pack in self.keys.packed})

    def _numbers(self) -> set[int]:
        return {number_in(name) for name in self._store.list(self._prefix)}

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:012}"

    def _fenced(self, token: int) -> FencedError:
        return FencedError("FENCED", f"owner {token} takes the pushes to {self.source} now: stop this process")
