"""Prefixes of files that grow: the bytes taken so far, with a proof whose cost does not grow with them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import xxhash

from boatlift.connectors.files.ranges import end_of_range, folded

BLOCK = 1 << 16
"""The bytes of a block. Each block has a digest; the last one or two blocks of a prefix have one together."""

_STRIDE = 1 << 16


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first bytes of a file.

    Law: a prefix depends on the bytes alone, and not on the steps that took them.

    Attributes:
        end: The number of bytes.
        blocks: The digest of the digests of all blocks before the rest.
        rest: The digest of the rest: fewer than two blocks, and at least one if the prefix is so long.
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
"""The empty prefix."""


def lengthened(file: IO[bytes], before: Prefix, begin: int, end: int) -> tuple[Prefix, str] | None:
    """Prove the last bytes of a prefix, and read on.

    Args:
        before: The prefix.
        begin: Where the new bytes begin: at the end of the prefix, or behind it.
        end: Where they end.

    Returns:
        The longer prefix, and the digest of the bytes from `begin` to `end`; None if the last bytes of `before` have
        changed, or the file ends before `end`.
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
    """Return whether a file has the last one or two blocks of a prefix at their place."""
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
    """Return the end of the next lines of a file that have their line feed; `begin` if no line has.

    Args:
        begin: Where the first line begins.
        size: Where the file ends.
        most: The most bytes of all lines, unless the first line is longer; None: no bound.
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
    """Return where the last blocks begin, which have one digest together."""
    return max(0, end // BLOCK - 1) * BLOCK
