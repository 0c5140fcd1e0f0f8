"""The input log: pushed rows, durable before their client gets an answer (`docs/formats/input-log.md`).

Its objects are numbered, `input/SOURCE/NNNNNNNNNNNN`, and the numbering is the fence, as in the log
(`docs/decisions/0002-one-object-numbering-as-the-fence.md`): a new owner first takes the next number, and an owner that
loses a number is fenced. So the next owner reads all rows that a client knows to be recorded. Claims are never deleted,
because a paused owner tries the number after its last.

A push may have an idempotency key. The log remembers keys for some time, even without their rows: a *key checkpoint*
repeats them, so that the objects before it can be deleted. Many keys go into a *pack*, an object `keys/SOURCE/…`.

A batch reads the whole log repeatedly. If rows replace one another, *compacted segments* replace the rows that no
recovery needs: objects `integrals/SOURCE/…`. Packs and segments are durable before the key checkpoint that names them,
and the objects that they replace are deleted after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from boatlift.errors import RESTORE, DataError, FencedError, InvalidError
from boatlift.storage.input_objects import (
    CompactedParts,
    InputPart,
    InputParts,
    LogSpan,
    checksum_in,
    number_in,
    read_known,
    sum_of,
)
from boatlift.storage.records.codec import CompactedSegment, InputObject, Push, checksum_of, decode_input, encode_input
from boatlift.storage.remembered_keys import KeyPacks, RememberedKeys
from boatlift.storage.store import Store

INPUT = "input/"

CLAIM, KEY_CHECKPOINT, ROWS, KEYS = "claim", "memo", "rows", "keys"

CLAIM_ATTEMPTS = READ_ATTEMPTS = 16

KEY_CHECKPOINT_AFTER, KEY_CHECKPOINT_BYTES = 256, 64 << 20
"""Freed objects, or freed bytes, from which on a key checkpoint is written; more if there are many keys."""

KEY_BYTES = 256  # freed bytes required for each key that the key checkpoint repeats


class InputLog(InputParts):
    """The pushed rows of one source. Thread-safe, but only one thread calls `append` and `free`.

    Laws:
        * Once `append` has returned, every later owner and reader reads the rows.
        * Once a newer owner has claimed, `append` raises `FencedError [FENCED]`, and its rows are never read.
        * `free` removes rows, never remembered keys.
        * `replace` removes only freed rows, and only once their compacted segment is durable.
        * The files of the last `files_up_to` are kept until the next call.

    Args:
        store_id: The id of the store: an object of another store is refused.
        keeps_all: Whether freed rows, or their compacted segments, are kept because a batch reads them again.

    Attributes:
        last: The number of the newest object; 0 for none.
        waiting: The bytes of all objects that are not freed.
        keeps_rows: Whether later owners read the appended rows.
        claims: The numbers of all claims, as the newest claim or key checkpoint lists them.
        gone: No object up to this number has its rows any more: they are deleted, or in compacted segments.
        compacted: The compacted segments that replace the oldest objects, in order and without gaps.
    """

    keeps_rows = begun = True

    def __init__(self, store: Store, store_id: str, source: str, *, keeps_all: bool = False) -> None:
        super().__init__()
        self._store, self.store_id, self.source = store, store_id, source
        self.keeps_all = keeps_all
        self._prefix = f"{INPUT}{source}/"
        self.compacted_parts = CompactedParts(store, store_id, source)
        self.key_packs = KeyPacks(store, store_id, source)
        self._held: frozenset[str] = frozenset()
        self._token: int | None = None
        self._forget()

    def _forget(self) -> None:
        self.last = self.waiting = 0
        self._base = self._key_checkpoint = self._freed = self.gone = self._free_bytes = 0
        self.claims: tuple[int, ...] = ()
        self._parts = {}
        self._present: set[int] = set()
        self.compacted: tuple[CompactedSegment, ...] = ()
        self.keys = RememberedKeys()

    def load(self, freed: int = 0) -> None:
        """Read the log. As far as the caller knows, no recovery needs rows up to the number `freed`.

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
                # Its owner may have deleted freed objects meanwhile: read the log as it is now.
                before, numbers = numbers, self._numbers()
                if error.condition != "MISSING_OBJECT" or numbers == before or not tries_left:
                    raise

    def _load(self, numbers: set[int], freed: int) -> None:
        with self._changing:
            self._forget()
            if not numbers:
                if freed:
                    raise DataError("MISSING_OBJECT", f"{self._prefix} is gone, though steps read its rows: {RESTORE}")
                return
            self.last = max(numbers)
            self._present, self._freed = numbers, freed
            self._key_checkpoint = self._read(self.last).key_checkpoint
            # Without a key checkpoint no object was deleted.
            deleted = self._read(self._key_checkpoint).freed if self._key_checkpoint else 0
            for number in range(deleted + 1, self.last + 1):
                if number not in numbers:
                    raise DataError("MISSING_OBJECT", f"{self._name(number)} is not there: {RESTORE}")
                content = self._store.read(self._name(number))
                self._apply(self._checked(content, number), content)

    def find(self, key: str) -> Push | None:
        """Return the push with a key, if the log remembers it. Packed keys are known only after `claim`.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]` a pack cannot be read.
            FencedError: `[FENCED]` a newer owner has deleted a pack.
        """
        try:
            with self._changing:
                return self.keys.find(key) or self.key_packs.find(key)
        except DataError:
            self.check_newest()  # a newer owner deletes expired packs
            raise

    def files_up_to(self, last: int) -> list[tuple[Path, int]]:
        """Return (file, bytes) of all objects with rows up to a number, and of the compacted segments before them.

        The files are kept until the next call.

        Raises:
            DataError: `[INPUT_MISSING]` a compacted segment covers later rows, too.
        """
        with self._changing:
            if self.compacted and self.compacted[-1].last > last:
                raise DataError(
                    "INPUT_MISSING",
                    f"the rows pushed to {self.source} up to object {last} are part of a compacted segment up to "
                    f"object {self.compacted[-1].last}: {RESTORE}",
                )
            named = [(part.name, part.size) for each in self.compacted for part in each.parts]
            named += [(self._name(number), part.size) for number, part in self._parts.items() if number <= last]
            self._held = frozenset(name for name, _ in named)
        return [(self._file(name), size) for name, size in named]

    def bytes_up_to(self, last: int) -> int:
        """Return the bytes of all objects with rows up to a number, and of the compacted segments before them."""
        with self._changing:
            compacted = sum(part.size for each in self.compacted for part in each.parts)
            return compacted + sum(part.size for number, part in self._parts.items() if number <= last)

    def replaceable(self) -> LogSpan | None:
        """Return the span of freed rows to compact next, if any.

        Law: if the caller always does so, the bytes of all compacted segments ever written are in proportion to the
        bytes appended, times the logarithm of the bytes kept.
        """
        with self._changing:
            numbers = tuple(number for number in self._parts if number <= self._freed)
            size, keys = sum(self._parts[number].size for number in numbers), self.keys.unpacked
            many = len(numbers) >= max(KEY_CHECKPOINT_AFTER, keys // KEY_CHECKPOINT_AFTER)
            if not self.keeps_all or not (many or size >= max(KEY_CHECKPOINT_BYTES, KEY_BYTES * keys)):
                return None
            kept = list(self.compacted)
            while kept and kept[-1].size <= size:
                size += kept.pop().size
            return LogSpan(kept[-1].last + 1 if kept else 1, self.compacted[len(kept) :], numbers)

    def checksum(self, number: int) -> bytes:
        """Read the checksum at the end of an object."""
        return checksum_in(self._store, self._name(number))

    def digest_up_to(self, last: int) -> int:
        """Return the sum of the checksums, read now, of all objects with rows up to a number.

        Raises:
            DataError: `[INPUT_MISSING]`, `[INPUT_CHANGED]` a compacted segment is not the one that was written.
        """
        while True:
            with self._changing:
                compacted, numbers = self.compacted, [number for number in self._parts if number <= last]
            try:
                for part in (part for each in compacted for part in each.parts):
                    self.compacted_parts.check(part)
                return sum_of([*(each.digest for each in compacted), *map(self.checksum, numbers)])
            except DataError as error:
                if error.condition != "INPUT_MISSING" or compacted == self.compacted:
                    raise  # else a compacted segment has replaced the objects meanwhile

    def path(self, number: int) -> Path:
        return self._file(self._name(number))

    def _file(self, name: str) -> Path:
        path = self._store.local_path(name)
        if path is None:
            raise InvalidError("BAD_OPTION", "tasks read pushed rows as files: use a store with local files")
        return path

    def claim(self, token: int, freed: int, taken: int = 0) -> None:
        """Take the source's input over: no earlier owner can append any more.

        Args:
            token: The owner's token; newer owners have larger ones.
            freed: As for `load`.
            taken: The number of the last object that a recorded step reads, which must exist.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`, `[NEWER_FORMAT]`.
            FencedError: `[FENCED]` a newer owner has the log.
        """
        for _ in range(CLAIM_ATTEMPTS):
            self.load(freed)
            if self.last < taken:
                name = self._name(taken)
                raise DataError("MISSING_OBJECT", f"{name} is not there, and a recorded step reads it: {RESTORE}")
            if self.last and (newest := self._read(self.last)).token > token:
                raise self._fenced(newest.token)
            number = self.last + 1
            try:
                self._create(self._object(CLAIM, token=token, claims=(*self.claims, number)))
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
        """Make pushes and all their rows durable, or none, and set their `number`; return the number of their object.

        Raises:
            FencedError: `[FENCED]`.
            UnavailableError: `[STORE_FAILED]`; the pushes may or may not be there.
        """
        return self._append(ROWS, pushes, rows=rows)

    def record_keys(self, pushes: Sequence[Push]) -> int:
        """Make the keys of pushes durable without their rows; return the number of their object. See `append`."""
        return self._append(KEYS, pushes)

    def _append(self, kind: str, pushes: Sequence[Push], **content: Any) -> int:
        numbered = tuple(msgspec.structs.replace(push, number=self.last + 1) for push in pushes)
        self._write(self._object(kind, pushes=numbered, **content))
        return self.last

    def void(self, after: int) -> None:
        """Remove the keys recorded after a number: the results of their rows were lost."""
        with self._changing:
            kept = self.keys.up_to(after)
            void = len(kept) < len(self.keys)
            self._freed = self.last if void else self._freed
        if void:
            self._write_key_checkpoint(kept, self.last)
            self._tidy()

    def remember(self, since: int, up_to: int | None = None, *, full: bool = False) -> None:
        """Pack keys once they are many, and forget expired packs.

        Args:
            since: Keys older than this (milliseconds since 1970) may be forgotten.
            up_to: Later keys may become void and are not packed; None: no key may.
            full: Also forget unpacked keys: there is no room for new ones.
        """
        last = self.last if up_to is None else up_to
        with self._changing:
            if not (self.keys.is_due(since, last) or (full and self.keys.forgets(since))):
                return
            keys = self.keys.newest(since)
        assert self._token is not None, "claim comes first"
        keys = keys.packed_up_to(last, self.key_packs, self._token, self.last + 1)
        self._write_key_checkpoint(keys, self.gone)
        self._drop_packs()  # and nothing else: parts of a compacted segment may be written meanwhile

    def free(self, number: int, remember: int) -> None:
        """Free rows up to a number, and delete objects that no owner needs.

        Args:
            remember: Keys older than this (milliseconds since 1970) may be forgotten.
        """
        with self._changing:
            for each in range(self._freed + 1, number + 1):
                size = self._parts[each].size if each in self._parts else 0
                self.waiting, self._free_bytes = self.waiting - size, self._free_bytes + size
            self._freed = max(self._freed, number)
            keys = self.keys.unpacked
            many = self._freed - self.gone >= max(KEY_CHECKPOINT_AFTER, keys // KEY_CHECKPOINT_AFTER)
            wanted = not self.keeps_all and (many or self._free_bytes >= max(KEY_CHECKPOINT_BYTES, KEY_BYTES * keys))
            kept = self.keys.newest(remember) if wanted else None
        if kept is not None:
            self._write_key_checkpoint(kept, self._freed)
            self._tidy()

    def read_rows(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Read objects with rows; yield for each its `base`, and its rows as an Arrow stream.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]` an object has changed since the log was loaded.
        """
        with self._changing:
            known = [(number, self._parts[number].checksum) for number in numbers]
        for number, checksum in known:
            found = decode_input(read_known(self._store, self._name(number), checksum), self._name(number))
            yield found.base, found.rows

    def replace(self, compacted: CompactedSegment, remember: int) -> None:
        """Replace the objects of a span by a compacted segment, and delete them.

        Args:
            compacted: The segment, with durable parts; its span ends with a freed object.
            remember: Keys older than this (milliseconds since 1970) may be forgotten.
        """
        with self._changing:
            assert compacted.last <= self._freed
            kept = tuple(each for each in self.compacted if each.last < compacted.first)
            keys = self.keys.newest(remember)
        self._write_key_checkpoint(keys, compacted.last, (*kept, compacted))
        self._tidy()

    def release(self) -> None:
        """Delete objects kept only for the last `files_up_to`, and parts of segments that were never used.

        Call it only while no write is under way, and every earlier one is known to be durable.
        """
        with self._changing:
            self._held = frozenset()
        self._tidy()

    def check_newest(self) -> None:
        """Check that no other owner has claimed the log, so that this owner knows all of its objects.

        Raises:
            FencedError: `[FENCED]`.
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
        named = self.compacted if compacted is None else compacted
        content: dict[str, Any] = {"pushes": keys.pushes, "packed": keys.packed, "compacted": named}
        self._write(self._object(KEY_CHECKPOINT, claims=self.claims, freed=freed, **content))
        with self._changing:
            self.key_packs.open(keys.packed)  # closes all other packs before they are deleted

    def _write(self, written: InputObject) -> None:
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

    def _apply(self, found: InputObject, content: bytes) -> None:
        if found.kind == ROWS:
            self._parts[found.number] = InputPart(found.base, found.count, len(content), checksum_of(content))
            self.waiting += len(content) if found.number > self._freed else 0
        elif found.kind != KEYS:
            self.claims = found.claims
        if found.kind == KEY_CHECKPOINT:
            self.keys, self._key_checkpoint = RememberedKeys(found.pushes, found.packed), found.number
            self._free_bytes = self._free_bytes if found.freed == self.gone else 0
            self.gone, self.compacted = found.freed, found.compacted
            self._parts = {number: part for number, part in self._parts.items() if number > found.freed}
        self._base = found.base + found.count
        if found.number > self._key_checkpoint:  # the key checkpoint has repeated earlier keys
            self.keys.add(found.pushes)

    def _read(self, number: int) -> InputObject:
        return self._checked(self._store.read(self._name(number)), number)

    def _checked(self, content: bytes, number: int) -> InputObject:
        found = decode_input(content, self._name(number))
        if (found.store, found.source, found.number) != (self.store_id, self.source, number):
            raise DataError(
                "CORRUPT",
                f"{self._name(number)} is number {found.number} of {found.source} in store {found.store}, copied here: "
                f"{RESTORE}",
            )
        return found

    def _tidy(self) -> None:
        """Delete the objects that the newest key checkpoint covers, except claims, and parts and packs not named in it.

        No part of a compacted segment is written meanwhile.
        """
        with self._changing:
            kept = self._held.union(part.name for each in self.compacted for part in each.parts)
            covered = {number for number in self._present if number <= self.gone}.difference(self.claims)
            gone = {number for number in covered if self._name(number) not in kept}
            self._present -= gone
        if gone:
            self._store.delete(*map(self._name, sorted(gone)))
        self.compacted_parts.keep(kept)
        self._drop_packs()

    def _drop_packs(self) -> None:
        self.key_packs.keep({pack.name for pack in self.keys.packed})

    def _numbers(self) -> set[int]:
        return {number_in(name) for name in self._store.list(self._prefix)}

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:012}"

    def _fenced(self, token: int) -> FencedError:
        return FencedError("FENCED", f"owner {token} has taken over the pushes to {self.source}: stop this process")
