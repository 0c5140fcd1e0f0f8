"""The files of a source: names, sizes, digests."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import translate
from glob import has_magic
from pathlib import Path

import xxhash

from boatlift.connectors.files.ranges import FileRange, digest_between, digest_of
from boatlift.dataflow.contracts import Names
from boatlift.errors import InvalidError, UnavailableError

_HIDDEN = ("_", ".")
_UNFINISHED = (".tmp", ".crc")


class Listing:
    """The files of a path: those directly in a folder, or those that match a glob.

    A file must appear whole: written under another name (one that begins with `_` or `.`, or ends in `.tmp`) and
    renamed. Hadoop's `.crc` files are no input either.

    Args:
        path: A folder, a file or a glob, as the user wrote it.

    Attributes:
        base: The folder that names are relative to.
        pattern: The parts of the glob below the base; None: a folder or a file.

    Raises:
        InvalidError: `[BAD_OPTION]` there can be no such path.
        UnavailableError: `[INPUT_UNAVAILABLE]` the path cannot be looked at, as one in a private folder.
    """

    def __init__(self, path: str | Path) -> None:
        whole = _without_dots(Path(path).absolute())
        if _unnamable(whole) or "\0" in str(path):
            raise InvalidError(
                "BAD_OPTION", f"path {_shown(whole)!r} is no UTF-8, or has a zero byte: give another path"
            )
        try:
            is_there, is_file = whole.exists(), whole.is_file()
        except OSError as error:
            message = f"{path} cannot be looked at ({error}): run again when it can"
            raise UnavailableError("INPUT_UNAVAILABLE", message) from error
        if not has_magic(str(path)) or is_there:
            self.base = whole.parent if is_file else whole
            self.pattern: tuple[str, ...] | None = None
            self._only = whole.name if is_file else None
            return
        parts = whole.parts
        first = next(index for index, part in enumerate(parts) if has_magic(part))
        if "**" in parts:
            raise InvalidError("BAD_OPTION", f"path {path} has **: name the folders, or use one * a folder")
        self.base = Path(*parts[:first])
        self.pattern = parts[first:]
        self._only = None

    @property
    def flat(self) -> bool:
        """Return whether all files are in one folder, so that a file's name alone tells it from the others."""
        return self.pattern is None or len(self.pattern) == 1

    def names(self, but: Names | None = None) -> list[str]:
        """Return the names of all files but some, relative to the base, in order.

        Args:
            but: The names to leave out: such a name costs a look here, and nothing else.

        Raises:
            OSError: the base cannot be read.
        """
        with os.scandir(self.base) as entries:
            if self._only is None:
                found = self._found(entries, "", ("*",) if self.pattern is None else self.pattern, but or Names())
            else:
                found = iter((but or Names()).others([self._only]))
            return sorted(name for name in found if _counts(name) and (self.base / name).is_file())

    def _found(
        self, entries: Iterable[os.DirEntry[str]], under: str, parts: Sequence[str], but: Names
    ) -> Iterator[str]:
        """Yield what is below a folder, matches the parts of a pattern, and is not left out."""
        matches = re.compile(translate(parts[0])).match
        if len(parts) == 1:
            names = but.others(under + entry.name for entry in entries)
            yield from (name for name in names if matches(name.removeprefix(under)))
            return
        for entry in entries:
            if _counts(entry.name) and matches(entry.name) and entry.is_dir():
                with suppress(OSError), os.scandir(entry) as below:  # as `glob` does: a folder may be private
                    yield from self._found(below, f"{under}{entry.name}/", parts[1:], but)

    def path_of(self, name: str) -> Path:
        """Return a file's whole path.

        Raises:
            InvalidError: `[BAD_NAME]` Spark cannot read a file of that name, or the log cannot hold the name.
        """
        path = self.base / name
        if _unnamable(path):
            raise InvalidError(
                "BAD_NAME", f"the name of file {_shown(path)} is no UTF-8, as that of a position is: rename it"
            )
        if ":" in path.name:
            raise InvalidError("BAD_NAME", f"file {path} has a colon in its name, which Spark cannot read: rename it")
        return path


def folded(before: str, digests: Iterable[str]) -> str:
    """Return the digest of all files, from that of the earlier ones and the digests of the next, in order."""
    for digest in digests:
        before = xxhash.xxh3_128_hexdigest(f"{before}{digest}".encode())
    return before


class Backlog:
    """The files of the newest listing that were not taken yet.

    While there are some, no step needs another listing: its time would be that of all files.
    """

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._names: list[str] = []
        self._begin = 0

    def left(self, taken: Names) -> Iterator[str]:
        """Yield the files of the newest listing, in order of name, without those that were taken since."""
        while self._begin < len(self._names) and self._names[self._begin] in taken:
            self._begin += 1
        names = map(self._names.__getitem__, range(self._begin, len(self._names)))  # `islice` would walk to the begin
        return (name for name in names if name not in taken)

    def listed(self, taken: Names) -> Iterator[str]:
        """List the files anew, and yield those that were not taken.

        Raises:
            OSError: the folder cannot be read.
        """
        self._names, self._begin = self._listing.names(taken), 0
        return iter(self._names)


def _digest(path: Path, part: FileRange | None) -> str:
    if part is not None:
        return digest_between(path, part.begin, part.end)
    content = digest_of(path)
    return "" if content is None else content[1]


class KnownDigests:
    """Digests of files and ranges, each read once as long as the file's size and times stay the same.

    Args:
        read: Returns the digest of a file, or of a range of it; empty while a process writes to the file.
    """

    def __init__(self, read: Callable[[Path, FileRange | None], str] = _digest) -> None:
        self._read = read
        self._known: dict[tuple[Path, FileRange | None], tuple[tuple[int, ...], str]] = {}

    def of(self, path: Path, part: FileRange | None = None) -> str:
        """Return the digest of a file, or of a range of it; empty while a process writes to the file.

        Raises:
            OSError: the file cannot be read.
        """
        found = path.stat()
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = self._known.get((path, part))
        if known is None or known[0] != stamp:
            digest = self._read(path, part)
            if not digest:
                return ""
            known = self._known[path, part] = (stamp, digest)
        return known[1]


def _without_dots(path: Path) -> Path:
    """Resolve a path up to its last `..`, as the system does: Spark would cancel `..` with the name before it."""
    if ".." not in path.parts:
        return path
    last = len(path.parts) - path.parts[::-1].index("..")
    return Path(*path.parts[:last]).resolve().joinpath(*path.parts[last:])


def _unnamable(path: Path) -> bool:
    """Return whether a path has bytes that are no UTF-8: Python has half surrogate pairs for them."""
    return not str(path).isascii() and any("\ud800" <= character <= "\udfff" for character in str(path))


def _shown(path: Path) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def _counts(name: str) -> bool:
    return not any(part.startswith(_HIDDEN) for part in name.split("/")) and not name.endswith(_UNFINISHED)
