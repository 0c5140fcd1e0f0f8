"""Ranges of a large file, on the driver: where each ends, and what its bytes are.

A range has whole lines: it ends after a line feed, or with the file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import xxhash

_CHUNK = 1 << 20
_STRIDE = 1 << 16


@dataclass(frozen=True, slots=True)
class FileRange:
    """Some bytes of a file.

    Attributes:
        path: The file's name.
        begin, end: The first byte, and the one after the last.
    """

    path: str
    begin: int
    end: int

    @property
    def name(self) -> str:
        """The range as a name among those of files, of which none has a colon after its last slash."""
        return f"{self.path}:{self.begin}-{self.end}"

    @classmethod
    def named(cls, name: str) -> FileRange | None:
        """Return the range of a name; None if it is a file's."""
        if ":" not in name.rpartition("/")[2]:
            return None
        path, _, places = name.rpartition(":")
        begin, end = places.split("-")
        return cls(path, int(begin), int(end))

    @classmethod
    def of(cls, file: Any) -> FileRange | None:
        return cls(file["path"], file["begin"], file["end"]) if "end" in file else None


def range_in(path: Path, begin: int, most: int) -> tuple[int, int, str] | None:
    """Find the next range of a file: as many lines as have so many bytes together, and one at least.

    Returns:
        The range's end, the size of the file, and the digest of the range; None if a process wrote to the file
        meanwhile.
    """
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        end = end_of_range(file, begin, most, before.st_size)
        digest, size = _digest(file, begin, end)
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns, size) != (after.st_size, after.st_mtime_ns, end - begin):
        return None
    return end, before.st_size, digest


def digest_of(path: Path) -> tuple[int, str] | None:
    """Read a whole file.

    Returns:
        The size in bytes, and the xxh3-128 of all bytes in hex; None if a process wrote to the file meanwhile.
    """
    with path.open("rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        digest, size = _digest(file, 0, None)
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns, size) != (after.st_size, after.st_mtime_ns, before.st_size):
        return None
    return size, digest


def digest_between(path: Path, begin: int, end: int) -> str:
    """Return the xxh3-128 of some bytes of a file, in hex; of fewer bytes if the file ends before them."""
    with path.open("rb", buffering=0) as file:
        return _digest(file, begin, end)[0]


def _digest(file: IO[bytes], begin: int, end: int | None) -> tuple[str, int]:
    """Return the digest of bytes, and how many there were."""
    digest = xxhash.xxh3_128()
    file.seek(begin)
    size = 0
    while part := file.read(_CHUNK if end is None else min(_CHUNK, end - begin - size)):
        digest.update(part)
        size += len(part)
    return digest.hexdigest(), size


def end_of_range(file: IO[bytes], begin: int, most: int, size: int) -> int:
    """Return where a range ends that begins at a line, has at most so many bytes or one line, and ends by `size`."""
    if begin + most >= size:
        return max(begin, size)
    upto = begin + most
    while upto > begin:  # back to the last line that ends in time
        start = max(begin, upto - _STRIDE)
        file.seek(start)
        place = file.read(upto - start).rfind(b"\n")
        if place >= 0:
            return start + place + 1
        upto = start
    file.seek(begin + most)
    while part := file.read(_CHUNK):  # one line is longer than the bound
        if (place := part.find(b"\n")) >= 0:
            return file.tell() - len(part) + place + 1
    return size
