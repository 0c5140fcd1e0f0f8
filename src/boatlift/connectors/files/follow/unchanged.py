"""Proofs that what was taken of a file that grows is unchanged: of its first bytes, and of a file that is done.

The proof of a prefix costs the same however many bytes were taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import xxhash

from boatlift.connectors.files.ranges import end_of_range, folded
from boatlift.errors import DataError

BLOCK = 1 << 16
"""The bytes of a block. Each block has a digest; the last one or two blocks of a prefix have one together."""

_STRIDE = 1 << 16

REMEMBERED = 10_000
"""The number of files that are remembered, each with some 500 bytes; a check after a change looks at each."""

_TICK = 2 * 10**9
"""The nanoseconds after which a change of a folder certainly gives it another time."""

_KEEPS = "a file of tail= keeps its name, which no other file gets: undo that, and give new lines a new name"


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


NOTHING = Prefix(0, "", xxhash.xxh3_128_hexdigest(b""))
"""The empty prefix."""


def lengthened(file: IO[bytes], before: Prefix, begin: int, end: int) -> tuple[Prefix, str] | None:
    """Prove the last bytes of a prefix, and read on.

    Args:
        begin: Where the new bytes begin: at the end of the prefix, or behind it.

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
    """Read the first bytes of a file; None if it has fewer."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < end:
            return None
        found = lengthened(file, NOTHING, 0, end)
    return None if found is None else found[0]


def end_of_lines(file: IO[bytes], begin: int, size: int, most: int | None) -> int:
    """Return the end of the next lines of a file that have their line feed; `begin` if no line has.

    Args:
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


class Stamp(NamedTuple):
    """The state of a file: another stamp means that the file was written to or replaced."""

    device: int
    inode: int
    size: int
    written: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode


class _Done(NamedTuple):
    """A file that is done; its stamp is None once no file has the name."""

    stamp: Stamp | None
    prefix: Prefix
    has_rows: bool


class DoneFiles:
    """The newest files that became done since the process began.

    A file system may give the inode of a removed file to a new file, so the last bytes are compared too. A check is
    cheap as long as no folder changes.
    """

    def __init__(self, base: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._base, self._clock = base, clock
        self._files: dict[str, _Done] = {}  # in the order in which they became done
        self._names: dict[tuple[int, int], str] = {}  # of the files that have their names
        self._folders: dict[str, int | None] = {}  # when each had changed at the last look

    def add(self, name: str, stamp: Stamp, prefix: Prefix, *, has_rows: bool) -> None:
        self._files[name] = _Done(stamp, prefix, has_rows)
        self._names[stamp.identity] = name
        self._folders[_folder_of(name)] = None
        if len(self._files) > REMEMBERED:
            oldest = next(iter(self._files))
            self._lose(oldest)
            del self._files[oldest]
            if not any(_folder_of(each) == _folder_of(oldest) for each in self._files):
                del self._folders[_folder_of(oldest)]

    def refuse_changed(self, others: Mapping[str, Stamp]) -> None:
        for other, stamp in others.items():
            name = self._names.get(stamp.identity)
            # A file without rows proves nothing: many files begin with the same header.
            if name not in (None, other) and self._files[name].has_rows and self._has(other, self._files[name].prefix):
                raise DataError(
                    "INPUT_ROTATED",
                    f"{self._base / other} is the file that had the name {name}, and all of it was taken: {_KEEPS}",
                )
        for folder, seen in list(self._folders.items()):
            changed = self._changed_at(folder)
            if changed != seen or changed is None:
                self._refuse_others_in(folder)
                self._folders[folder] = changed

    def _changed_at(self, folder: str) -> int | None:
        """Return the time at which names in a folder changed; 0: no folder, None: perhaps just now."""
        try:
            changed = (self._base / folder).stat().st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return 0
        return changed if abs(self._clock() - changed) > _TICK else None

    def _refuse_others_in(self, folder: str) -> None:
        """Raise if a name in a folder has another file than the one that was taken; note the names that are gone."""
        gone = {name for name, done in self._files.items() if done.stamp is not None and _folder_of(name) == folder}
        under = f"{folder}/" if folder else ""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._base / folder) as entries:
            for entry in entries:
                done = self._files.get(name := under + entry.name)
                if done is None:
                    continue
                with suppress(FileNotFoundError):
                    found = Stamp.of(entry.stat())
                    gone.discard(name)
                    if found != done.stamp:
                        self._refuse_other(name, done, found)
        for name in gone:
            self._lose(name)

    def _refuse_other(self, name: str, done: _Done, found: Stamp) -> None:
        """Raise unless a file is the one that was taken under its name, or a copy of it."""
        path = self._base / name
        if found.size != done.prefix.end or not self._has(name, done.prefix):
            if done.stamp is not None and found.identity == done.stamp.identity and found.size >= done.prefix.end:
                raise written_when_done(path, found.size, done.prefix.end)
            raise DataError("INPUT_ROTATED", f"{path} is another file than the one that was taken: {_KEEPS}")
        self._lose(name)
        self._files[name] = done._replace(stamp=found)
        self._names[found.identity] = name

    def _lose(self, name: str) -> None:
        """Note that no file has this name any more: another file may get the inode."""
        done = self._files[name]
        if done.stamp is not None and self._names.get(done.stamp.identity) == name:
            del self._names[done.stamp.identity]
        self._files[name] = done._replace(stamp=None)

    def _has(self, name: str, prefix: Prefix) -> bool:
        with suppress(FileNotFoundError), (self._base / name).open("rb") as file:
            return ends_as(file, prefix)
        return False


def written_when_done(path: Path, size: int, end: int) -> DataError:
    """Return the error of a file that was done and has changed."""
    return DataError(
        "INPUT_CHANGED",
        f"{path} has {size} bytes, but had {end} when it was taken for done, after no write for as long as tail= says: "
        "put it back as it was, and what came later into a file of another name",
    )


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]
