"""The files of a source: which exist, which are left to take, and which of them a step takes."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from fnmatch import translate
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boatlift.connectors.files.ranges import digest_of, has_another_footer
from boatlift.connectors.kit import Columns
from boatlift.connectors.kit.object_place import InputFile
from boatlift.dataflow.contracts import Json, Names
from boatlift.errors import DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from boatlift.connectors.files.formats.base import FileFormat

logger = logging.getLogger(__name__)

_HIDDEN = ("_", ".")
_UNFINISHED = (".tmp", ".crc")


class Listing:
    """The files of a path: directly in a folder, or matching a glob.

    A file must appear whole. A writer gives it another name first, one that begins with `_` or `.` or ends in `.tmp`,
    and renames it. Hadoop's `.crc` files are no input either.

    Attributes:
        base: The folder that names are relative to.
        pattern: The parts of the glob below the base; None: a folder or a file.
        flat: Whether all files are in one folder, so that a file's name alone tells it from the others.
    """

    def __init__(self, path: str | Path) -> None:
        whole = _without_dots(Path(path).absolute())
        if _unnamable(whole) or "\0" in str(path):
            message = f"path {_shown(whole)!r} is no UTF-8, or has a zero byte: give another path"
            raise InvalidError("BAD_OPTION", message)
        try:
            is_there, is_file = whole.exists(), whole.is_file()
        except OSError as error:
            message = f"{path} cannot be looked at ({error}): run again when it can"
            raise UnavailableError("INPUT_UNAVAILABLE", message) from error
        self.flat = True
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
        self.flat = len(self.pattern) == 1
        self._only = None

    def names(self, but: Names | None = None) -> list[str]:
        """Return the names of files relative to the base, in order.

        Args:
            but: The names to leave out, at the cost of one look-up each.
        """
        with os.scandir(self.base) as entries:
            if self._only is None:
                found = self._found(entries, "", ("*",) if self.pattern is None else self.pattern, but or Names())
            else:
                found = iter((but or Names()).others([self._only]))
            return sorted(name for name in found if counts(name) and (self.base / name).is_file())

    def _found(
        self, entries: Iterable[os.DirEntry[str]], under: str, parts: Sequence[str], but: Names
    ) -> Iterator[str]:
        matches = re.compile(translate(parts[0])).match
        if len(parts) == 1:
            names = but.others(under + entry.name for entry in entries)
            yield from (name for name in names if matches(name.removeprefix(under)))
            return
        for entry in entries:
            if counts(entry.name) and matches(entry.name) and entry.is_dir():
                with suppress(OSError), os.scandir(entry) as below:  # as `glob` does: a folder may be private
                    yield from self._found(below, f"{under}{entry.name}/", parts[1:], but)

    def below(self, base: Path) -> Listing:
        """Return the listing of the same names below another folder."""
        other = copy(self)
        other.base = base
        return other

    def path_of(self, name: str) -> Path:
        path = self.base / name
        if _unnamable(path):
            message = f"the name of file {_shown(path)} is no UTF-8, as that of a position is: rename it"
            raise InvalidError("BAD_NAME", message)
        if ":" in path.name:
            raise InvalidError("BAD_NAME", f"file {path} has a colon in its name, which Spark cannot read: rename it")
        return path


@dataclass(frozen=True, slots=True)
class Looks:
    """How often the objects of a bucket are listed.

    Attributes:
        poll: The seconds between two listings, at least.
        rescan: If new names come after all earlier ones: the seconds between two listings of all. Otherwise None.
    """

    poll: float = 0.0
    rescan: float | None = None


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """The options of a source of files, checked.

    Attributes:
        listing: A `Listing`, or the `BucketListing` of objects.
        schema, columns: The declared ones; None: those of the first Parquet file.
        described: The options for the program's identity.
        max_files, max_bytes: The limits of a step. A larger file is taken in ranges, if its format has ranges.
        idle: The seconds without a write after which a growing file is done; None: never.
        looks: For objects of a bucket.
    """

    listing: Any
    format: FileFormat
    schema: str | StructType | None
    columns: Columns | None
    described: Json
    max_files: int
    max_bytes: int | None
    idle: float | None = None
    looks: Looks = Looks()


class StepInputs:
    """Chooses the entries of a position: whole files, or one range of a large file.

    No step lists the folder again before all files of the newest listing were taken.
    """

    def __init__(self, options: FilesOptions, columns: Callable[[], Columns]) -> None:
        self._listing, self._format, self._columns = options.listing, options.format, columns
        self._max_files, self._max_bytes = options.max_files, options.max_bytes
        self._warned = False
        self._listed: list[str] = []
        self._begin = 0

    def left(self, taken: Names) -> Iterator[str]:
        """Yield the files of the newest listing that were not taken, in order of name."""
        while self._begin < len(self._listed) and self._listed[self._begin] in taken:
            self._begin += 1
        names = map(self._listed.__getitem__, range(self._begin, len(self._listed)))  # `islice` would walk to the begin
        return (name for name in names if name not in taken)

    def listed(self, taken: Names) -> Iterator[str]:
        """List the files anew, and yield those that were not taken."""
        self._listed, self._begin = self._listing.names(taken), 0
        return iter(self._listed)

    def first_of(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return the first files within the limits of a step, or the first range of a large file."""
        files: list[dict[str, Any]] = []
        total = 0
        for name in names:
            path = self._listing.path_of(name)
            try:
                of = path.stat().st_size
                total += of
                if files and self._max_bytes is not None and total > self._max_bytes:
                    break
                if self._max_bytes is not None and of > self._max_bytes and self._can_be_divided(path, of):
                    self._format.check_file(path, self._columns())
                    if (begin := self._format.rows_begin(path)) < of:
                        return self._range(name, begin, self._max_bytes)
                content = digest_of(path)
            except FileNotFoundError:
                continue  # it was removed since it was listed
            if content is None:
                continue  # a process is still writing to it, so it is no input yet
            size, digest = content
            if size == 0:
                raise DataError("INPUT_EMPTY", f"{path} has no bytes: remove it, or put the whole file in its place")
            self._format.check_file(path, self._columns())
            files.append({"path": name, "size": size, "digest": digest})
            if len(files) == self._max_files:
                break
        return files

    def next_of(self, part: Json) -> list[dict[str, Any]]:
        """Return the next range of a file; none while a process writes to the file.

        Args:
            part: The file's `path`, the `end` of its last range, and the size `of` the file.
        """
        path = self._listing.path_of(part["path"])
        so_far = f"and its first {part['end']} bytes were taken: put the"
        try:
            size = path.stat().st_size
            if size != part["of"]:
                message = f"{path} has {size} bytes, but had {part['of']}, {so_far} original back"
                raise DataError("INPUT_CHANGED", message)
            if has_another_footer(path, part):
                raise DataError("INPUT_CHANGED", f"{path} has another footer than it had, {so_far} original back")
            files = self._range(part["path"], part["end"], self._max_bytes or part["of"])
            return [file for file in files if file["of"] == part["of"]]
        except FileNotFoundError as error:
            raise DataError("INPUT_MISSING", f"{path} is gone, {so_far} file back") from error

    def _range(self, name: str, begin: int, most: int) -> list[dict[str, Any]]:
        found = self._format.next_range(self._listing.path_of(name), begin, most)
        return [] if found is None else [{"path": name, **found}]

    def _can_be_divided(self, path: InputFile, size: int) -> bool:
        reason = self._format.whole_because(path)
        if reason is not None and not self._warned:
            self._warned = True
            message = "%s is taken whole, in one step: it has %d bytes, more than max_bytes_per_step=%d, and %s"
            logger.warning(message, path, size, self._max_bytes, reason)
        return reason is None


def _without_dots(path: Path) -> Path:
    """Resolve a path up to its last `..`, as the system does; Spark would cancel `..` and the name before it."""
    if ".." not in path.parts:
        return path
    last = len(path.parts) - path.parts[::-1].index("..")
    return Path(*path.parts[:last]).resolve().joinpath(*path.parts[last:])


def _unnamable(path: Path) -> bool:
    """Return whether a path is no UTF-8: Python has half surrogate pairs for the wrong bytes."""
    return not str(path).isascii() and any("\ud800" <= character <= "\udfff" for character in str(path))


def _shown(path: Path) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def counts(name: str) -> bool:
    """Return whether a name is that of a whole file, by its parts: none is hidden, and the last is not unfinished."""
    return not any(part.startswith(_HIDDEN) for part in name.split("/")) and not name.endswith(_UNFINISHED)
