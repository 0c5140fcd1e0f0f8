"""The objects with the rows of integrals: `integrals/SOURCE/TTTTTTTTTTTT-NNNNNNNNNNNN-PPPPPP`.

A name has the token of the owner that wrote the object, the last number of the integral's span, and the number of the
part. So no other owner writes an object of this name: an owner that was fenced and deletes what it had found to be left
over deletes nothing of a newer owner's.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from boatlift.errors import DataError
from boatlift.storage.records.codec import (
    CompactedPart,
    CompactedSegment,
    InputObject,
    Push,
    checksum_of,
    decode_input,
    encode_input,
)
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.store import Store

__all__ = ["COMPACTED", "CompactedParts", "LogSpan", "checksum_in", "read_known", "sum_of"]

COMPACTED = "integrals/"

COMPACTED_PART = "integral"


@dataclass(frozen=True, slots=True)
class LogSpan:
    """The objects of an input log whose rows one integral takes the place of.

    Attributes:
        first: The number of the first object; 1 if nothing comes before the span.
        compacted: CompactedSegments that stand for its first objects.
        numbers: The numbers of the objects with rows after those.
    """

    first: int
    compacted: tuple[CompactedSegment, ...]
    numbers: tuple[int, ...]

    @property
    def last(self) -> int:
        """The number of the last object."""
        return self.numbers[-1]


class CompactedParts:
    """The parts of integrals of one source. Not for several threads, but for `check` and `read`.

    Law: no owner reads a part before a memo of the input log names it; a part that none names is left over.

    Args:
        store, store_id, source: As an input log has them.
    """

    def __init__(self, store: Store, store_id: str, source: str) -> None:
        self._store, self._store_id, self._source = store, store_id, source
        self._present: set[str] = set()

    def look(self) -> None:
        """List the parts that are there now."""
        self._present = {*self._store.list(f"{COMPACTED}{self._source}/")}

    def write(self, token: int, last: int, place: int, rows: int, stream: bytes) -> CompactedPart:
        """Make a part durable.

        Args:
            token: The owner.
            last: The last number of the integral's span.
            place: The number of the part, from 0.
            rows, stream: How many rows, and the rows as an Arrow stream.

        Raises:
            UnavailableError: `[STORE_FAILED]`.
        """
        name = f"{COMPACTED}{self._source}/{token:012}-{last:012}-{place:06}"
        pushes = (Push("", rows, b"", 0),)
        content = encode_input(
            InputObject(self._store_id, self._source, last, token, 0, 0, COMPACTED_PART, pushes=pushes, rows=stream)
        )
        self._store.create(name, content)
        self._present.add(name)
        return CompactedPart(name, rows, len(content), checksum_of(content))

    def read(self, part: CompactedPart) -> bytes:
        """Read the rows of a part, as an Arrow stream.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
        """
        return decode_input(read_known(self._store, part.name, part.checksum), part.name).rows

    def check(self, part: CompactedPart) -> None:
        """Prove by the checksum that it carries that a part is the one that was written.

        Raises:
            DataError: `[INPUT_MISSING]`, `[INPUT_CHANGED]`.
        """
        if checksum_in(self._store, part.name) != part.checksum:
            raise DataError("INPUT_CHANGED", f"{part.name} is not the object that was written: {RESTORE}")

    def keep(self, names: AbstractSet[str]) -> None:
        """Delete all parts but those of some names."""
        for name in sorted(self._present - names):
            self._store.delete(name)
        self._present &= names


def read_known(store: Store, name: str, checksum: bytes) -> bytes:
    """Read an object whose checksum is known.

    Raises:
        DataError: `[MISSING_OBJECT]`, `[CORRUPT]` it has another one.
    """
    content = store.read(name)
    if checksum_of(content) != checksum:
        raise DataError("CORRUPT", f"{name} is not the object that was written: {RESTORE}")
    return content


def checksum_in(store: Store, name: str) -> bytes:
    """Read the checksum that an object carries now.

    Raises:
        DataError: `[INPUT_MISSING]`.
    """
    size = store.size(name)
    if size is None:
        raise DataError("INPUT_MISSING", f"{name} is gone, and a recorded step needs it: {RESTORE}")
    return checksum_of(store.read(name, max(0, size - 16)))


def sum_of(checksums: Iterable[bytes]) -> int:
    """Return the sum of checksums, modulo 2¹²⁸."""
    return sum(map(int.from_bytes, checksums)) % (1 << 128)
