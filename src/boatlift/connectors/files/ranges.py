"""Ranges of large files, and digests of bytes, on the driver.

A range has whole lines: it ends after a line feed, or with the file. The ranges of Parquet are those of
`formats.parquet`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import xxhash

from boatlift.connectors.kit.object_place import InputFile

_CHUNK = 1 << 20
_STRIDE = 1 << 16
_TAIL = 8
"""The bytes at the end of a Parquet file: the length of the footer, and `PAR1`."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """Some bytes of a file."""

    path: str
    begin: int
    end: int

    @property
    def name(self) -> str:
        """The range as a name among the names of files, which have no colon after their last slash."""
        return f"{self.path}:{self.begin}-{self.end}"

    @classmethod
    def named(cls, name: str) -> FileRange | None:
        """Return the range with this name; None if it is the name of a file."""
        if ":" not in name.rpartition("/")[2]:
            return None
        path, _, places = name.rpartition(":")
        begin, end = places.split("-")
        return cls(path, int(begin), int(end))


def range_in(path: Path, begin: int, most: int) -> dict[str, Any] | None:
    """Find the next range of a file: at least one line, and as many more as fit into `most` bytes.

    Returns:
        The bytes `begin` to `end` with their `digest`, and the size `of` the file; None if a process wrote to the file
        meanwhile.
    """
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        end = end_of_range(file, begin, most, before.st_size)
        digest, size = _digest(file, begin, end)
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns, size) != (after.st_size, after.st_mtime_ns, end - begin):
        return None
    return {"begin": begin, "end": end, "of": before.st_size, "digest": digest}


def end_of_range(file: IO[bytes], begin: int, most: int, size: int) -> int:
    """Return the end of a range that begins at a line, has at most `most` bytes or one line, and ends by `size`."""
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


def digest_between(path: InputFile, begin: int, end: int) -> str:
    """Return the xxh3-128 of some bytes of a file, in hex; the end of the file also ends them."""
    with path.open("rb", buffering=0) as file:
        return _digest(file, begin, end)[0]


def _digest(file: IO[bytes], begin: int, end: int | None) -> tuple[str, int]:
    digest = xxhash.xxh3_128()
    file.seek(begin)
    size = 0
    while part := file.read(_CHUNK if end is None else min(_CHUNK, end - begin - size)):
        digest.update(part)
        size += len(part)
    return digest.hexdigest(), size


def footer_of(path: Path) -> str:
    """Return the digest of a Parquet file's footer, which says where all rows are."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _TAIL))
        length = int.from_bytes(file.read(4), "little")
    return digest_between(path, max(0, size - _TAIL - length), size)


def has_another_footer(path: Path, entry: Any) -> bool:
    """Return whether an entry of a position or cursor has the footer of a file, and the file has another one now."""
    return "footer" in entry and footer_of(path) != entry["footer"]


def folded(before: str, digests: Iterable[str]) -> str:
    """Return the digest of all files, from the digest of the earlier ones and the digests of the next, in order."""
    for digest in digests:
        before = xxhash.xxh3_128_hexdigest(f"{before}{digest}".encode())
    return before


def proof_in(entry: Any) -> str:
    """Return what an entry of a position has to prove that its bytes are unchanged: an ETag or a digest."""
    return str(entry.get("etag") or entry["digest"])


def _digest_of(path: Path, part: FileRange | None) -> str:
    if part is not None:
        return digest_between(path, part.begin, part.end)
    content = digest_of(path)
    return "" if content is None else content[1]


class KnownDigests:
    """Digests of files and ranges, read again if a file's size or times change; empty while a process writes to it."""

    def __init__(self, read: Callable[[Path, FileRange | None], str] = _digest_of) -> None:
        self._read = read
        self._known: dict[tuple[Path, FileRange | None], tuple[tuple[int, ...], str]] = {}

    def of(self, path: Path, part: FileRange | None = None) -> str:
        found = path.stat()
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = self._known.get((path, part))
        if known is None or known[0] != stamp:
            digest = self._read(path, part)
            if not digest:
                return ""
            known = self._known[path, part] = (stamp, digest)
        return known[1]
