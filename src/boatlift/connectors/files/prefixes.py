"""What was taken of a file that grows: its first bytes, with a proof whose cost does not grow with them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import xxhash

from boatlift.connectors.files.listing import folded
from boatlift.connectors.files.ranges import end_of_range

BLOCK = 1 << 16
"""Digests are of blocks of so many bytes. The last one or two of a prefix are digested as one piece."""

_STRIDE = 1 << 16


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first bytes of a file.

    Law: it depends on the bytes alone, and not on the steps in which they were taken.

    Attributes:
        end: How many bytes.
        blocks: The digest of the digests of all blocks before the rest.
        rest: The digest of the rest: at least one block, if there are so many bytes, and fewer than two.
    """

    end: int
    blocks: str
    rest: str

    @classmethod
    def of(cls, entry: Any) -> Prefix:
        return cls(entry["end"], entry["blocks"], entry["rest"])

    def named(self) -> dict[str, Any]:
        return {"end": self.end, "blocks": self.blocks, "rest": self.rest}

    @property
    def digest(self) -> str:
        return folded(self.blocks, [self.rest])


NOTHING = Prefix(0, "", xxhash.xxh3_128_hexdigest(b""))
"""The prefix of a file of which nothing was taken."""


def lengthened(file: IO[bytes], before: Prefix, begin: int, end: int) -> tuple[Prefix, str] | None:
    """Prove the last bytes of a prefix, and read on.

    Args:
        file: The file.
        before: The prefix.
        begin: From where the new bytes count: at the end of the prefix, or behind it.
        end: Where they end.

    Returns:
        The longer prefix, and the digest of the bytes from `begin` to `end`; None if the last bytes of `before` are
        others now, or the file ends before `end`.
    """
    known, taken, rest = xxhash.xxh3_128(), xxhash.xxh3_128(), xxhash.xxh3_128()
    blocks, place, last = before.blocks, _rest_begins(before.end), _rest_begins(end)
    file.seek(place)
    while place < end:
        block = file.read(min(BLOCK, end - place))
        if not block:
            return None
        known.update(block[: max(0, before.end - place)])
        taken.update(block[max(0, begin - place) :])
        if place < last:
            blocks = folded(blocks, [xxhash.xxh3_128_hexdigest(block)])
        else:
            rest.update(block)
        place += len(block)
    if known.hexdigest() != before.rest:
        return None
    return Prefix(end, blocks, rest.hexdigest()), taken.hexdigest()


def ends_as(file: IO[bytes], prefix: Prefix) -> bool:
    """Return whether a file has the last bytes of a prefix, one or two blocks of them, at their place."""
    return lengthened(file, prefix, prefix.end, prefix.end) is not None


def prefix_of(path: Path, end: int) -> Prefix | None:
    """Read the first bytes of a file; None if it has fewer.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < end:
            return None
        found = lengthened(file, NOTHING, 0, end)
    return None if found is None else found[0]


def end_of_lines(file: IO[bytes], begin: int, size: int, most: int | None) -> int:
    """Return where the next lines of a file end, each with its line feed; `begin` if there is none.

    Args:
        file: The file.
        begin: Where the first of them begins.
        size: Where the file ends.
        most: How many bytes to take; more if the first line alone has more. None: all.
    """
    upto = size
    while upto > begin:
        start = max(begin, upto - _STRIDE)
        file.seek(start)
        place = file.read(upto - start).rfind(b"\n")
        if place >= 0:
            return end_of_range(file, begin, size if most is None else most, start + place + 1)
        upto = start
    return begin


def _rest_begins(end: int) -> int:
    """Return where the bytes begin that are digested as one piece."""
    return max(0, end // BLOCK - 1) * BLOCK
