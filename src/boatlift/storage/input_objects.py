"""Objects of an input log: those with rows, and the parts of compacted segments.

A part is called `integrals/SOURCE/TTTTTTTTTTTT-NNNNNNNNNNNN-PPPPPP`: the token of its owner, the last number of the
segment's span, and the number of the part. So no two owners write one name, and a fenced owner that deletes leftovers
deletes nothing of a newer owner's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from boatlift.errors import RESTORE, DataError
from boatlift.storage.records.codec import (
    CompactedPart,
    CompactedSegment,
    InputObject,
    Push,
    checksum_of,
    decode_input,
    encode_input,
)
from boatlift.storage.store import Store


@dataclass(frozen=True, slots=True)
class InputPart:
    """An object with rows, as the input log remembers it."""

    base: int  # number of rows pushed before its first since the log began
    rows: int
    size: int
    checksum: bytes  # the object's checksum, 16 bytes


def rows_in(path: Path) -> tuple[int, bytes]:
    """Return an object's `base`, and its rows as an Arrow stream."""
    found = decode_input(path.read_bytes(), str(path))
    return found.base, found.rows


def number_in(name: str) -> int:
    """Return the number in an object's name.

    Raises:
        DataError: `[CORRUPT]` no object of an input log has such a name.
    """
    digits = name.rpartition("/")[2]
    if len(digits) != 12 or not digits.isdecimal():
        raise DataError("CORRUPT", f"{name} is no object of an input log: move it away")
    return int(digits)


COMPACTED = "integrals/"

COMPACTED_PART = "integral"


@dataclass(frozen=True, slots=True)
class LogSpan:
    """The objects of an input log that one compacted segment is to replace."""

    first: int  # the number of the first object; 1 at the beginning of the log
    compacted: tuple[CompactedSegment, ...]  # the compacted segments that have replaced the first objects already
    numbers: tuple[int, ...]  # the numbers of the objects with rows after those segments

    @property
    def last(self) -> int:
        return self.numbers[-1]


class InputParts:
    """The objects with rows of one source, by number. Thread-safe."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._parts: dict[int, InputPart] = {}
        self._freed = 0

    def parts(self, after: int) -> list[tuple[int, InputPart]]:
        """Return the objects with rows after a number, in order."""
        with self._changing:
            return [(number, part) for number, part in self._parts.items() if number > after]

    def numbers_within(self, first: int, last: int) -> list[int]:
        return [number for number, _ in self.parts(first - 1) if number <= last]

    def is_freed(self, number: int) -> bool:
        """Return whether no recovery needs the rows of an object."""
        with self._changing:
            return number <= self._freed


class NamedObjects:
    """Objects of one source that no owner reads before a key checkpoint names them; others are left over."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self.prefix = store, prefix
        self._present: set[str] = set()

    def look(self) -> None:
        """List the existing objects."""
        self._present = {*self._store.list(self.prefix)}

    def keep(self, names: AbstractSet[str]) -> None:
        """Delete all other objects."""
        if others := sorted(self._present - names):
            self._store.delete(*others)
        self._present &= names


class CompactedParts(NamedObjects):
    """The parts of one source's compacted segments. Only `check` and `read` are thread-safe."""

    def __init__(self, store: Store, store_id: str, source: str) -> None:
        super().__init__(store, f"{COMPACTED}{source}/")
        self._store_id, self._source = store_id, source

    def write(self, token: int, last: int, place: int, rows: int, stream: bytes) -> CompactedPart:
        """Make a part durable."""
        name = f"{self.prefix}{token:012}-{last:012}-{place:06}"
        pushes = (Push("", rows, b"", 0),)
        content = encode_input(
            InputObject(self._store_id, self._source, last, token, 0, 0, COMPACTED_PART, pushes=pushes, rows=stream)
        )
        self._store.create(name, content)
        self._present.add(name)
        return CompactedPart(name, rows, len(content), checksum_of(content))

    def read(self, part: CompactedPart) -> bytes:
        """Read the rows of a part, as an Arrow stream."""
        return decode_input(read_known(self._store, part.name, part.checksum), part.name).rows

    def check(self, part: CompactedPart) -> None:
        """Check that a part carries its recorded checksum.

        Raises:
            DataError: `[INPUT_MISSING]`, `[INPUT_CHANGED]`.
        """
        if checksum_in(self._store, part.name) != part.checksum:
            raise DataError("INPUT_CHANGED", f"{part.name} is not the object that was written: {RESTORE}")


def read_known(store: Store, name: str, checksum: bytes) -> bytes:
    """Read an object and compare its checksum.

    Raises:
        DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
    """
    content = store.read(name)
    if checksum_of(content) != checksum:
        raise DataError("CORRUPT", f"{name} is not the object that was written: {RESTORE}")
    return content


def checksum_in(store: Store, name: str) -> bytes:
    """Read the checksum at the end of an object.

    Raises:
        DataError: `[INPUT_MISSING]`.
    """
    missing = DataError("INPUT_MISSING", f"{name} is gone, and a recorded step needs it: {RESTORE}")
    size = store.size(name)
    if size is None:
        raise missing
    try:
        return checksum_of(store.read(name, max(0, size - 16)))
    except DataError as error:
        if error.condition != "MISSING_OBJECT":
            raise
        raise missing from error  # a compacted segment may have replaced it since


def sum_of(checksums: Iterable[bytes]) -> int:
    """Return the sum of checksums, modulo 2¹²⁸."""
    return sum(map(int.from_bytes, checksums)) % (1 << 128)
