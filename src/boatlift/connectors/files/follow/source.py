"""The source of files that grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.files.follow.done_files import written_when_done
from boatlift.connectors.files.follow.growing import GrowingFiles, changed, gone, shrank
from boatlift.connectors.files.follow.prefixes import Prefix, prefix_of
from boatlift.connectors.files.listing import FilesOptions
from boatlift.connectors.files.ranges import FileRange, KnownDigests, digest_between, folded
from boatlift.connectors.files.source import FilesSource
from boatlift.dataflow.contracts import Json, Names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _digest_by_blocks(path: Path, part: FileRange | None) -> str:
    """Return the digest of a file that is done."""
    assert part is None, "a file that is done has no ranges"
    whole = prefix_of(path, path.stat().st_size)
    return "" if whole is None else whole.digest


class TailedFilesSource(FilesSource):
    """Files of lines that grow. A position has the bytes and digest of lines, and the prefix of the file up to them.

    A cursor has the prefix taken of each file that may still grow, the names of the files that are done, in order, and
    the digest of these.
    """

    def __init__(self, options: FilesOptions) -> None:
        super().__init__(options)
        self._digests = KnownDigests(_digest_by_blocks)
        self._growing = GrowingFiles(options, self._known_columns)

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
                digest = folded(digest, [prefix.digest])
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
