"""A checksum for each block of a file, so that a reader verifies only the blocks that it needs.

A file has two parts: blocks, and a *tail* that begins with a table of their checksums. A record of the file has the
length and the digest of the tail. So the digest proves the tail, and the tail each block (`docs/formats/run.md`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import xxhash

BLOCK_BYTES = 8192

_MAGIC = b"BLKSUMS1"
_HEAD = struct.Struct("<8sIIQQQ")
_WORD = 8


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The table of a file.

    Attributes:
        sums: The xxh3-64 of each block, eight bytes each, most significant first.
        starts, marks: 64-bit integers of the file's writer, least significant byte first. For a run: the start of each
            record batch, and the hash of every `mark_rows`-th row of each.
        mark_rows: Number of rows from one mark to the next.
    """

    sums: memoryview
    starts: memoryview
    marks: memoryview
    mark_rows: int

    @classmethod
    def of_tail(cls, tail: bytes | memoryview) -> BlockTable:
        """Read the table of a verified tail.

        Raises:
            ValueError: the tail does not begin with a table.
        """
        content = memoryview(tail).cast("B")  # Arrow's bytes are signed, and never equal a byte above 127
        if len(content) < _HEAD.size:
            raise ValueError("the tail has no table of checksums")
        magic, block, mark_rows, *counts = _HEAD.unpack_from(content)
        if magic != _MAGIC or block != BLOCK_BYTES or _HEAD.size + _WORD * sum(counts) > len(content):
            raise ValueError("the tail has no table of checksums")
        ends = accumulate((_WORD * count for count in counts), initial=_HEAD.size)
        sums, starts, marks = (content[begin:end] for begin, end in pairwise(ends))
        return cls(sums, starts, marks, mark_rows)

    def __len__(self) -> int:
        return len(self.sums) // _WORD

    def proves(self, number: int, block: bytes | memoryview) -> bool:
        return xxhash.xxh3_64_digest(block) == self.sums[_WORD * number : _WORD * (number + 1)]

    def damaged(self, first: int, content: bytes | memoryview) -> Iterator[int]:
        """Yield the numbers of damaged blocks in `content`, which starts with block `first`."""
        blocks = memoryview(content)
        for place in range(0, len(blocks), BLOCK_BYTES):
            number = first + place // BLOCK_BYTES
            if not self.proves(number, blocks[place : place + BLOCK_BYTES]):
                yield number


class BlockWriter:
    """Builds the table while a file is written."""

    def __init__(self) -> None:
        self._sums: list[bytes] = []
        self._open = xxhash.xxh3_64()
        self._in_open = 0

    def write(self, content: bytes | memoryview) -> None:
        rest = memoryview(content).cast("B")
        if self._in_open:
            head = rest[: BLOCK_BYTES - self._in_open]
            self._open.update(head)
            self._in_open += len(head)
            rest = rest[len(head) :]
            if self._in_open == BLOCK_BYTES:
                self._close()
        whole = len(rest) - len(rest) % BLOCK_BYTES
        digest = xxhash.xxh3_64_digest
        self._sums += [digest(rest[place : place + BLOCK_BYTES]) for place in range(0, whole, BLOCK_BYTES)]
        if whole < len(rest):
            self._open.update(rest[whole:])
            self._in_open = len(rest) - whole

    def table(self, starts: bytes, marks: bytes, mark_rows: int) -> bytes:
        """Return the table of all bytes so far; see `BlockTable`."""
        if self._in_open:
            self._close()
        counts = len(self._sums), len(starts) // _WORD, len(marks) // _WORD
        return b"".join([_HEAD.pack(_MAGIC, BLOCK_BYTES, mark_rows, *counts), *self._sums, starts, marks])

    def _close(self) -> None:
        self._sums.append(self._open.digest())
        self._open.reset()
        self._in_open = 0
