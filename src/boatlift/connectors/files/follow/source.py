"""The source of files that grow, and the choice of the lines of a step.

A replay needs the bytes that were taken, under the file's name. So a file that was renamed, cut or written anew is
refused, before any of its lines is taken again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from boatlift.connectors.files.follow.unchanged import (
    NOTHING,
    DoneFiles,
    Prefix,
    Stamp,
    end_of_lines,
    ends_as,
    lengthened,
    prefix_of,
    written_when_done,
)
from boatlift.connectors.files.listing import FilesOptions
from boatlift.connectors.files.ranges import FileRange, KnownDigests, digest_between, folded
from boatlift.connectors.files.source import FilesSource
from boatlift.connectors.kit import Columns
from boatlift.dataflow.contracts import Json, Names, SourceCapabilities
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PUT_BACK = "put the file back as it was; a file of tail= may only grow, and keeps its name: give new lines a new file"


class _ReplacedError(Exception):
    """A name has another file than in the last listing, so all files must be listed again."""


class GrowingFiles:
    """Makes the entries of positions for files that may grow.

    A check gets the size of each file that is not done. The files with new lines are then taken in order of name, each
    once, before the next check: so no file waits for ever behind one that grows quickly. If a name has another file by
    then, the next check comes first.
    """

    def __init__(
        self, options: FilesOptions, columns: Callable[[], Columns], clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._listing, self._format, self._columns = options.listing, options.format, columns
        self._max_files, self._max_bytes, self._idle = options.max_files, options.max_bytes, options.idle
        self._clock = clock
        self._waiting: list[tuple[str, Stamp]] = []  # files of the last check, the next one last
        self._identities: dict[str, tuple[int, int]] = {}  # of files that were begun
        self._nothing_in: dict[str, tuple[Stamp, int]] = {}  # files without new lines behind this place
        self._done = DoneFiles(self._listing.base, clock)

    def entries(self, cursor: Json) -> list[dict[str, Any]]:
        known: Mapping[str, Any] = cursor["open"]
        taken = self._from_waiting(cursor["taken"], known)
        if not taken:
            self._waiting = sorted(self._check(cursor["taken"], known), reverse=True)
            taken = self._from_waiting(cursor["taken"], known)
        return taken

    def _from_waiting(self, done: Names, known: Mapping[str, Any]) -> list[dict[str, Any]]:
        files: list[dict[str, Any]] = []
        done_now: list[tuple[dict[str, Any], Stamp]] = []
        left = self._max_bytes
        while self._waiting and len(files) < self._max_files:
            name, seen = self._waiting[-1]
            try:
                entry, stamp = (None, seen) if name in done else self._entry(name, seen, known.get(name), left)
            except _ReplacedError:
                break  # nothing more is taken after this check
            if entry is not None and left is not None:
                if files and entry["end"] - entry["begin"] > left:
                    break  # a line is longer than what is left
                left = max(0, left - (entry["end"] - entry["begin"]))
            self._waiting.pop()
            if entry is None:
                continue
            files.append(entry)
            if entry.get("done"):
                done_now.append((entry, stamp))
        for entry, stamp in done_now:  # only now the position is complete
            has_rows = entry["end"] > self._format.rows_begin(self._listing.path_of(entry["path"]))
            self._done.add(entry["path"], stamp, Prefix.of(entry), has_rows=has_rows)
        return files

    def _check(self, done: Names, known: Mapping[str, Any]) -> Iterator[tuple[str, Stamp]]:
        """Prove that no file has changed but by growing; yield the files that may have new lines."""
        names = self._listing.names(done)
        if missing := next(iter(sorted(known.keys() - set(names))), None):
            raise gone(self._listing.path_of(missing), known[missing]["end"])
        stamps: dict[str, Stamp] = {}
        for name in names:
            try:
                stamps[name] = Stamp.of(self._listing.path_of(name).stat())
            except FileNotFoundError as error:
                if name in known:
                    raise gone(self._listing.path_of(name), known[name]["end"]) from error
        self._identities = {name: self._identities[name] for name in known if name in self._identities}
        self._refuse_lost(known, stamps)
        self._done.refuse_changed(stamps)
        self._nothing_in = {name: self._nothing_in[name] for name in stamps if name in self._nothing_in}
        for name, stamp in stamps.items():
            end = known[name]["end"] if name in known else 0
            is_known = self._nothing_in.get(name) == (stamp, end)
            if not is_known or (stamp.size and self._is_idle(stamp.written)):
                yield name, stamp

    def _refuse_lost(self, known: Mapping[str, Any], stamps: Mapping[str, Stamp]) -> None:
        """Raise if a file that was begun has been replaced or cut, or if a file has two names."""
        for name in sorted(known.keys() & stamps.keys()):
            path, stamp, prefix = self._listing.path_of(name), stamps[name], Prefix.of(known[name])
            if stamp.size < prefix.end:
                raise shrank(path, stamp.size, prefix.end)
            if self._identities.get(name) != stamp.identity:
                # A replaced file may be a copy, and is read whole. In a process's first check the last bytes suffice.
                with path.open("rb") as file:
                    is_whole = name in self._identities
                    same = prefix_of(path, prefix.end) == prefix if is_whole else ends_as(file, prefix)
                if not same:
                    raise changed(path, prefix.end)
                self._identities[name] = stamp.identity
        named = {self._identities[name]: name for name in known}
        for name, stamp in stamps.items():
            if name not in known and (other := named.get(stamp.identity)) is not None:
                raise DataError(
                    "INPUT_ROTATED",
                    f"{self._listing.path_of(name)} is the file that has, or had, the name {other}, of which "
                    f"{known[other]['end']} bytes were taken: {_PUT_BACK}, or let the path match one name alone",
                )

        first: dict[object, str] = {}
        for name, stamp in sorted(stamps.items()):
            if (other := first.setdefault(stamp.identity, name)) != name:
                one, two = self._listing.path_of(other), self._listing.path_of(name)
                names = f"{one} and {two} are names of one file"
                raise DataError("INPUT_ROTATED", f"{names}: let the path match one of them alone")

    def _entry(self, name: str, seen: Stamp, known: Any, most: int | None) -> tuple[dict[str, Any] | None, Stamp]:
        """Return the entry of the next lines of a file, with the file's stamp; the entry is None without new lines."""
        path = self._listing.path_of(name)
        before = NOTHING if known is None else Prefix.of(known)
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                if Stamp.of(found).identity != seen.identity:
                    raise _ReplacedError(name)
                if found.st_size < before.end:
                    raise shrank(path, found.st_size, before.end)
                entry = self._next(file, path, found, before, most)
        except FileNotFoundError as error:
            if known is None:
                return None, seen  # it was removed since it was listed
            raise gone(path, before.end) from error
        if entry is None:
            self._nothing_in[name] = (Stamp.of(found), before.end)
            return None, seen
        self._identities.setdefault(name, seen.identity)
        return {"path": name, **entry}, Stamp.of(found)

    def _next(
        self, file: IO[bytes], path: Path, found: os.stat_result, before: Prefix, most: int | None
    ) -> dict[str, Any] | None:
        begin = before.end
        if not begin:
            if (reason := self._format.whole_because(path)) is not None:
                message = f"file {path} cannot be followed line by line, because {reason}: let the path not match it"
                raise InvalidError("BAD_NAME", message)
            begin = self._format.rows_begin(path)
        idle = self._is_idle(found.st_mtime_ns)
        end = end_of_lines(file, begin, found.st_size, most)
        if idle and end == begin:
            end = found.st_size  # the last line, without a line feed
        done = idle and end == found.st_size > 0
        if not before.end and (done or end > begin):
            self._format.check_file(path, self._columns())  # its first line is whole
        if (grown := lengthened(file, before, begin, end)) is None:
            raise changed(path, before.end)
        if (end == begin and not done) or (done and Stamp.of(os.fstat(file.fileno())) != Stamp.of(found)):
            return None  # nothing new, or a process has just written to the file
        prefix, digest = grown
        return {"begin": begin, **prefix.named(), "digest": digest, **({"done": True} if done else {})}

    def _is_idle(self, written: int) -> bool:
        return self._idle is not None and self._clock() - written >= self._idle * 1e9


def gone(path: Path, end: int) -> DataError:
    """Return the error of a file that is gone."""
    return DataError("INPUT_MISSING", f"{path} is gone, and its first {end} bytes were taken: {_PUT_BACK}")


def shrank(path: Path, size: int, end: int) -> DataError:
    """Return the error of a file that has fewer bytes than were taken."""
    return DataError("INPUT_SHRANK", f"{path} has {size} bytes, but its first {end} were taken: {_PUT_BACK}")


def changed(path: Path, end: int) -> DataError:
    """Return the error of a file whose taken bytes have changed."""
    return DataError("INPUT_CHANGED", f"{path} has other bytes among its first {end}, which were taken: {_PUT_BACK}")


def _digest_by_blocks(path: Path, part: FileRange | None) -> str:
    assert part is None, "a file that is done has no ranges"
    whole = prefix_of(path, path.stat().st_size)
    return "" if whole is None else folded(whole.blocks, [whole.rest])


class TailedFilesSource(FilesSource):
    """Files of lines that grow. A position has the bytes and digest of lines, and the prefix of the file up to them.

    A cursor has the prefix taken of each file that may still grow, the names of the files that are done, in order, and
    the digest of these.
    """

    def __init__(self, options: FilesOptions) -> None:
        super().__init__(options)
        self._digests = KnownDigests(_digest_by_blocks)
        self._growing = GrowingFiles(options, self._known_columns)

    @property
    def capabilities(self) -> SourceCapabilities:
        # A cursor has one range of each growing file.
        return replace(super().capabilities, divided_anew=None, contains=None)

    def start(self) -> Json:
        return {"taken": Names(), "digest": "", "open": {}}

    def next(self, cursor: Json) -> Json | None:
        with self._reachable(), self._there(began=bool(cursor["taken"]) or bool(cursor["open"])):
            files = self._growing.entries(cursor)
        return {"files": files} if files else None

    def advance(self, cursor: Json, position: Json) -> Json:
        growing = dict(cursor["open"])
        done: list[str] = []
        digest = cursor["digest"]
        for file in position["files"]:
            prefix = Prefix.of(file)
            if file.get("done"):
                growing.pop(file["path"], None)
                done.append(file["path"])
                digest = folded(digest, [folded(prefix.blocks, [prefix.rest])])
            else:
                growing[file["path"]] = prefix.named()
        return {"taken": cursor["taken"].plus(done), "digest": digest, "open": growing}

    def _bytes_taken(self, cursor: Json) -> dict[str, int]:
        return {name: file["end"] for name, file in cursor["open"].items()}

    def verify(self, position: Json) -> None:
        for file in position["files"]:
            path = self._listing.path_of(file["path"])
            with self._reachable():
                try:
                    size = path.stat().st_size
                    digest = digest_between(path, file["begin"], file["end"])
                except FileNotFoundError as error:
                    raise gone(path, file["end"]) from error
            if file.get("done") and size != file["end"]:
                raise written_when_done(path, size, file["end"])
            if size < file["end"]:
                raise shrank(path, size, file["end"])
            if digest != file["digest"]:
                raise changed(path, file["end"])

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        files: list[Json] = [{"path": name} for name in cursor["taken"]]
        for name, taken in cursor["open"].items():
            begin = self._format.rows_begin(self._listing.path_of(name))
            files.append({"path": name, "begin": begin, "end": taken["end"]})
        return self._scan(spark, [{"files": files}])

    def verify_everything(self, cursor: Json) -> None:
        with self._reachable():
            for name, taken in cursor["open"].items():
                path = self._listing.path_of(name)
                try:
                    size = path.stat().st_size
                    if size < taken["end"]:
                        raise shrank(path, size, taken["end"])
                    if prefix_of(path, taken["end"]) != Prefix.of(taken):
                        raise changed(path, taken["end"])
                except FileNotFoundError as error:
                    raise gone(path, taken["end"]) from error
        super().verify_everything(cursor)

    def _digests_of(self, cursor: Json) -> Iterator[str]:
        return (self._digests.of(self._listing.path_of(name)) for name in cursor["taken"])
