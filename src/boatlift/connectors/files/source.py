"""A source of files, each taken once, whole; files that are found together are taken in order of name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boatlift.connectors.files.listing import Backlog, KnownDigests, Listing, digest_of, folded
from boatlift.connectors.kit import Columns, struct_of
from boatlift.dataflow.contracts import Delivery, Json, Names, SourceCapabilities
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from boatlift.connectors.files.formats import FileFormat, ReadFiles

__all__ = ["FilesSource"]

_FILES_NAMED = 3
"""How many files of a step an error names."""

_READ_FAILURES = ("FAILED_READ_FILE", "MALFORMED_RECORD", "CANNOT_READ_FILE", "PATH_NOT_FOUND")


class FilesSource:
    """Files by name. A position names each with size and digest; a cursor holds the names taken so far."""

    delivery = Delivery.EXACTLY_ONCE

    def __init__(
        self,
        listing: Listing,
        file_format: FileFormat,
        schema: str | StructType | None,
        columns: Columns | None,
        described: Json,
        max_files: int,
        max_bytes: int | None,
    ) -> None:
        self._listing = listing
        self._format = file_format
        self._declared = schema
        self._columns = columns
        self._described = described
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._schema: StructType | None = None
        self._readers: dict[SparkSession, ReadFiles] = {}
        self._digests = KnownDigests()
        self._backlog = Backlog(listing)

    @property
    def positioned(self) -> bool:
        """Return whether `load` adds `_position`."""
        return self._format.positioned

    @property
    def capabilities(self) -> SourceCapabilities:
        """Several steps can be read in one scan, and all files again."""
        bad_rows = None if self._format.lines is None else self
        return SourceCapabilities(
            reads_many_steps=self, rescannable=self, names_input=self, bad_rows=bad_rows, ordered_within="file"
        )

    def describe(self) -> Json:
        """Return kind, path, options and columns."""
        return {**self._described, "schema": [list(column) for column in self._known_columns()]}

    def schema(self, spark: SparkSession) -> StructType:
        """Return the declared schema, or that of the first Parquet file; every column may be NULL."""
        return self._format.rows_schema(self._read_schema(spark))

    def _read_schema(self, spark: SparkSession) -> StructType:
        """Return the declared schema, as it is; without one, that of the first Parquet file."""
        if self._schema is None:
            if self._declared is None:
                from boatlift.connectors.files.formats import spark_path

                first = self._first_file()
                self._schema = spark.read.parquet(spark_path(first)).schema
            else:
                self._schema = struct_of(self._declared)
                self._format.check_patterns(spark)
        return self._schema

    def start(self) -> Json:
        """Return the cursor that has taken nothing."""
        return {"taken": Names(), "digest": ""}

    def next(self, cursor: Json) -> Json | None:
        """Take new files, those of a listing in order of name, up to the limits of a step."""
        taken: Names = cursor["taken"]
        with self._reachable():
            files = self._chosen(self._backlog.left(taken))
            if not files:
                with self._there(began=bool(taken)):
                    found = self._backlog.listed(taken)
                files = self._chosen(found)
        return {"files": files} if files else None

    def _chosen(self, names: Iterable[str]) -> list[dict[str, Any]]:
        files: list[dict[str, Any]] = []
        total = 0
        for name in names:
            path = self._listing.path_of(name)
            try:
                total += path.stat().st_size
                if files and self._max_bytes is not None and total > self._max_bytes:
                    break
                content = digest_of(path)
            except FileNotFoundError:
                continue  # it was removed since it was listed
            if content is None:
                continue  # a process is still writing to it, so it is no input yet
            size, digest = content
            if size == 0:
                raise DataError("INPUT_EMPTY", f"{path} has no bytes: remove it, or put the whole file in its place")
            self._format.check_file(path, self._known_columns())
            files.append({"path": name, "size": size, "digest": digest})
            if len(files) == self._max_files:
                break
        return files

    def advance(self, cursor: Json, position: Json) -> Json:
        """Add a position's names to those taken, and their digests to the digest of all."""
        files = position["files"]
        digest = folded(cursor["digest"], (file["digest"] for file in files))
        return {"taken": cursor["taken"].plus(file["path"] for file in files), "digest": digest}

    def verify(self, position: Json) -> None:
        """Read every file that a position names, and compare size and digest."""
        for file in position["files"]:
            path = self._listing.path_of(file["path"])
            with self._reachable():
                try:
                    now = digest_of(path)
                except FileNotFoundError as error:
                    message = f"{path} is gone, and a recorded step needs it again: put it back"
                    raise DataError("INPUT_MISSING", message) from error
            if now == (file["size"], file["digest"]):
                continue
            if now is None:
                difference = "is being written to"
            elif now[0] != file["size"]:
                difference = f"has {now[0]} bytes, but had {file['size']} when it was taken"
            else:
                difference = f"has other bytes (digest {now[1]}) than when it was taken ({file['digest']})"
            raise DataError(
                "INPUT_CHANGED", f"{path} {difference}, and a recorded step needs it: put the original back"
            )

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        """Read all files taken so far."""
        paths = map(self._listing.path_of, cursor["taken"])
        return self._scan(spark, [(path, place) for place, path in enumerate(paths)])

    def verify_everything(self, cursor: Json) -> None:
        """Compare the digest of all files taken so far; a file is read again only if its size or times changed."""
        with self._reachable():
            try:
                digest = folded("", map(self._digests.of, map(self._listing.path_of, cursor["taken"])))
            except FileNotFoundError as error:
                message = f"{error.filename} is gone, and a batch over all files needs it: put it back"
                raise DataError("INPUT_MISSING", message) from error
        if digest != cursor["digest"]:
            raise DataError(
                "INPUT_CHANGED",
                f"one of the {len(cursor['taken'])} files in {self._listing.base} that were taken has other bytes now, "
                "and a batch over all files needs them as they were: put the originals back",
            )

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        """Read the files of a position, strictly, in one or few calls into the JVM."""
        return self._scan(spark, [(path, place) for place, path in enumerate(self._paths(position))])

    def load_together(self, spark: SparkSession, positions: Sequence[Json]) -> DataFrame:
        """Read the files of several positions in one scan."""
        taken = [self._paths(position) for position in positions]
        files = [(path, place) for paths in taken for place, path in enumerate(paths)]
        return self._scan(spark, files, [ordinal for ordinal, paths in enumerate(taken) for _ in paths])

    def size_bytes(self, position: Json) -> int:
        """Return the sum of the files' sizes."""
        return sum(int(file["size"]) for file in position["files"])

    def names(self, position: Json) -> str:
        """Return the paths of a position's first files, and how many others there are."""
        paths = [str(path) for path in self._paths(position)]
        return ", ".join(paths[:_FILES_NAMED]) + (
            f" and {len(paths) - _FILES_NAMED} more files" if len(paths) > _FILES_NAMED else ""
        )

    def diagnose(self, position: Json, text: str) -> Exception | None:
        """Find the file, the line and the field that Spark could not read."""
        if not self._readers or not any(sign in text for sign in _READ_FAILURES):
            return None
        try:
            self.verify(position)
        except BoatliftError as error:
            return error
        spark = next(iter(self._readers))
        for file in position["files"]:
            path = self._listing.path_of(file["path"])
            found = self._format.explain(spark, path, self._known_columns(), self._read_schema(spark))
            if found is not None:
                return found
        return None

    def sorting_out(self) -> FilesSource:
        """Return the source of the same files with bad rows among its rows."""
        from boatlift.connectors.files.bad_rows import SortedOut

        return FilesSource(
            self._listing,
            SortedOut(self._format, self._listing.base),
            self._declared,
            self._columns,
            {**self._described, "bad_rows": "dead_letters"},
            self._max_files,
            self._max_bytes,
        )

    def letters(self, rows: DataFrame) -> DataFrame:
        """Return the dead letters of bad rows."""
        from boatlift.connectors.files.bad_rows import SortedOut

        assert isinstance(self._format, SortedOut)
        return self._format.letters(rows, self._known_columns(), self._read_schema(rows.sparkSession))

    def acknowledge(self, position: Json) -> None:
        """Do nothing: the user may remove acknowledged files."""

    def _paths(self, position: Json) -> list[Path]:
        return [self._listing.path_of(file["path"]) for file in position["files"]]

    def _scan(self, spark: SparkSession, files: Sequence[tuple[Path, int]], ordinals: Sequence[int] = ()) -> DataFrame:
        """Read files, each with its place in the step that takes it; with `_ordinal`, if ordinals are given."""
        if spark not in self._readers:
            self._readers[spark] = self._format.reader(spark, self._read_schema(spark))
        return self._readers[spark](files, ordinals)

    def _known_columns(self) -> Columns:
        if self._columns is None:
            from boatlift.connectors.files.parquet_format import columns_of_footer

            self._columns = columns_of_footer(self._first_file())
        return self._columns

    def _first_file(self) -> Path:
        with self._reachable(), self._there(began=False):
            names = self._listing.names()
        if not names:
            message = f"no file in {self._listing.base} yet to take the schema from: give schema='NAME TYPE, …'"
            raise InvalidError("NO_INPUT", message)
        return self._listing.path_of(names[0])

    @contextmanager
    def _there(self, *, began: bool) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            if began:
                raise
            message = f"there is no folder {self._listing.base} to find files in: make it, or correct the path"
            raise InvalidError("NO_INPUT", message) from error

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"{self._listing.base} cannot be read ({error}): run again when it can"
            raise UnavailableError("INPUT_UNAVAILABLE", message) from error
