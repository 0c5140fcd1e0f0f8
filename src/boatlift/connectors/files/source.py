"""A source of files: each file is taken once, and the files of a listing in order of name.

A file with more bytes than a step may take is taken over several steps, in ranges of lines or row groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from boatlift.connectors.files.bounded import FilesInBounds
from boatlift.connectors.files.formats.base import ReadFiles, TextFormat
from boatlift.connectors.files.lines import Span
from boatlift.connectors.files.listing import FilesOptions, Listing, StepInputs
from boatlift.connectors.files.ranges import (
    FileRange,
    KnownDigests,
    digest_between,
    digest_of,
    folded,
    has_another_footer,
    proof_in,
)
from boatlift.connectors.kit import Columns, SourceBase, struct_of
from boatlift.connectors.kit.object_place import InputFile
from boatlift.dataflow.columns import ORDINAL
from boatlift.dataflow.contracts import FrameOfTask, Json, Names, SourceCapabilities, WaitingInput
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType


_FILES_NAMED = 3
"""How many files of a step an error names."""

_OF_PART = ("path", "end", "of", "footer", "etag", "version")
"""What a cursor has of a file that is taken in ranges."""

_READ_FAILURES = ("FAILED_READ_FILE", "MALFORMED_RECORD", "CANNOT_READ_FILE", "PATH_NOT_FOUND")


class FilesSource(SourceBase):
    """Files by name. A position has the size and digest of each file, or one range with its digest.

    A cursor holds the names of the files and ranges taken so far, in order, the digest of their digests, and the place
    where a file goes on that is taken in ranges. The name of such a file comes after the names of its ranges.
    """

    def __init__(self, options: FilesOptions) -> None:
        self._options, self._format = options, options.format
        self._listing: Listing = options.listing
        self._columns = options.columns
        self._source = f"the files in {self._listing.base}"
        self.positioned = self._format.positioned
        self._inputs = StepInputs(options, self._known_columns)
        self._schema: StructType | None = None
        self._readers: dict[SparkSession, ReadFiles] = {}
        self._spark: SparkSession | None = None
        self._parameters: tuple[Json, bytes | None] | None = None  # of the last position
        self._digests = KnownDigests()

    @property
    def capabilities(self) -> SourceCapabilities:
        return SourceCapabilities(
            reads_many_steps=self,
            parameterized_read=self if self._format.has_task else None,
            rescannable=self,
            names_input=self,
            bad_rows=None if self._format.sorting_in(self._listing.base) is None else self,
            ordered_within="file",
            preflight=self._preflight,
            waiting=self.waiting,
            gone=self.gone,
            bytes_up_to=self.bytes_up_to,
            divided_anew=self.divided_anew,
            contains=self.contains,
            bounded=FilesInBounds(self._options, type(self)),
        )

    def describe(self) -> Json:
        return {**self._options.described, "schema": [list(column) for column in self._known_columns()]}

    def schema(self, spark: SparkSession) -> StructType:
        return self._format.rows_schema(self._read_schema(spark))

    def _read_schema(self, spark: SparkSession) -> StructType:
        """Return the declared schema; without one, the schema of the first Parquet file."""
        if self._schema is None:
            if self._options.schema is None:
                from boatlift.connectors.files.formats.parquet import schema_of_file

                self._schema = schema_of_file(spark, self._first_file())
            else:
                self._schema = struct_of(self._options.schema)
                self._format.check_patterns(spark)
        return self._schema

    def start(self) -> Json:
        return {"taken": Names(), "digest": ""}

    def next(self, cursor: Json) -> Json | None:
        taken: Names = cursor["taken"]
        with self._reachable():
            if (part := cursor.get("part")) is not None:
                files = self._inputs.next_of(part)
            elif not (files := self._inputs.first_of(self._inputs.left(taken))):
                with self._there(began=bool(taken)):
                    found = self._inputs.listed(taken)
                files = self._inputs.first_of(found)
        return {"files": files} if files else None

    def waiting(self, cursor: Json) -> WaitingInput:
        """Count the files that were not taken whole; `oldest_at` is the time of a file's last change."""
        with self._reachable():
            try:
                names = self._listing.names(cursor["taken"])
            except FileNotFoundError:
                names = []
        sizes, times = [], []
        begun = self._bytes_taken(cursor)
        for name in names:
            with suppress(FileNotFoundError):
                found = (self._listing.base / name).stat()
                if (size := found.st_size - begun.get(name, 0)) > 0:
                    sizes.append(size)
                    times.append(found.st_mtime_ns // 1_000_000)
        return WaitingInput(len(sizes), "files", sum(sizes), min(times, default=None))

    def contains(self, taken: Json, item: str) -> bool:
        """Return whether a position has the end of a file, or a cursor has it whole."""
        if "files" not in taken:
            return item in taken["taken"]
        return any(file["path"] == item and file.get("end") == file.get("of") for file in taken["files"])

    def gone(self, since: Json, upto: Json) -> str:
        with self._reachable():
            begun = [*upto.get("open", ()), *([upto["part"]["path"]] if "part" in upto else [])]
            for name in chain(islice(upto["taken"], len(since["taken"]), None), begun):
                part = FileRange.named(name)
                path = self._listing.path_of(name if part is None else part.path)
                if not path.exists():
                    return f"{path} is gone"
        return ""

    def _bytes_taken(self, cursor: Json) -> dict[str, int]:
        part = cursor.get("part")
        return {} if part is None else {part["path"]: part["end"]}

    def advance(self, cursor: Json, position: Json) -> Json:
        files = position["files"]
        names: list[str] = []
        part: dict[str, Any] = {}
        for file in files:
            if "end" not in file:
                names.append(file["path"])
                continue
            names.append(FileRange(file["path"], file["begin"], file["end"]).name)
            if file["end"] == file["of"]:
                names.append(file["path"])
            else:
                known = {key: file[key] for key in _OF_PART if key in file}
                part = {"part": known}
        digest = folded(cursor["digest"], map(proof_in, files))
        return {"taken": cursor["taken"].plus(names), "digest": digest, **part}

    def verify(self, position: Json) -> None:
        for file in position["files"]:
            path = self._listing.path_of(file["path"])
            with self._reachable():
                try:
                    difference = _difference(path, file)
                except FileNotFoundError as error:
                    message = f"{path} is gone, and a recorded step needs it again: put it back"
                    raise DataError("INPUT_MISSING", message) from error
            if difference is not None:
                raise DataError(
                    "INPUT_CHANGED", f"{path} {difference}, and a recorded step needs it: put the original back"
                )

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        files: list[Json] = [{"path": name} for name in cursor["taken"] if FileRange.named(name) is None]
        if (part := cursor.get("part")) is not None:
            path = self._listing.path_of(part["path"])
            files.append({"path": part["path"], "begin": self._format.rows_begin(path), "end": part["end"]})
        return self._scan(spark, [{"files": files}])

    def verify_everything(self, cursor: Json) -> None:
        with self._reachable():
            try:
                digest = folded("", self._digests_of(cursor))
            except FileNotFoundError as error:
                message = f"{error.filename} is gone, and a batch over all files needs it: put it back"
                raise DataError("INPUT_MISSING", message) from error
        if digest != cursor["digest"]:
            raise DataError(
                "INPUT_CHANGED",
                f"one of the files in {self._listing.base} that were taken has other bytes now, "
                "and a batch over all files needs them as they were: put the originals back",
            )

    def bytes_up_to(self, cursor: Json) -> int:
        total = sum(self._bytes_taken(cursor).values())
        with self._reachable():
            for name in (each for each in cursor["taken"] if FileRange.named(each) is None):
                try:
                    total += self._size(name)
                except FileNotFoundError as error:
                    path = self._listing.path_of(name)
                    message = f"{path} is gone, and the past cannot be computed without it: put it back"
                    raise DataError("INPUT_MISSING", message) from error
        return total

    def divided_anew(self, cursor: Json, most: int) -> list[Json]:
        steps: list[list[Json]] = []
        ranged: set[str] = set()
        free = 0.0
        for name in cursor["taken"]:
            if (part := FileRange.named(name)) is not None:
                ranged.add(part.path)
                steps.append([self._entry_anew(part.path, part)])
                free = 0
            elif name not in ranged:
                size = self._size(name)
                if not steps or len(steps[-1]) >= self._options.max_files or size > free:
                    steps.append([])
                    free = math.inf if self._options.max_bytes is None else max(size, self._options.max_bytes)
                steps[-1].append(self._entry_anew(name))
                free -= size
        together = -(-len(steps) // most) if steps else 1
        return [{"files": list(chain(*steps[at : at + together]))} for at in range(0, len(steps), together)]

    def _entry_anew(self, name: str, part: FileRange | None = None) -> Json:
        """Return an entry of a position that `divided_anew` makes; what proves it is left out."""
        return {"path": name} if part is None else {"path": name, "begin": part.begin, "end": part.end}

    def _digests_of(self, cursor: Json) -> Iterator[str]:
        ends: dict[str, int] = {}
        for name in cursor["taken"]:
            if (part := FileRange.named(name)) is not None:
                ends[part.path] = part.end
                yield self._digests.of(self._listing.path_of(part.path), part)
            elif name not in ends:
                yield self._digests.of(self._listing.path_of(name))
            elif self._size(name) != ends[name]:
                yield "of another length"  # which is no digest
        open_file = cursor.get("part")
        if open_file is not None and self._size(open_file["path"]) != open_file["of"]:
            yield "of another length"
        elif open_file is not None and has_another_footer(self._listing.path_of(open_file["path"]), open_file):
            yield "of another footer"

    def _size(self, name: str) -> int:
        return self._listing.path_of(name).stat().st_size

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        return self._scan(spark, [position])

    def load_together(self, spark: SparkSession, positions: Sequence[Json]) -> DataFrame:
        return self._scan(spark, positions, ordinals=True)

    def load_parameterized(self, spark: SparkSession, frame_of: FrameOfTask | None = None) -> DataFrame:
        self._spark, self._parameters = spark, None  # which depend on settings of the session

        def in_one_partition(task: Any, columns: Any) -> DataFrame:
            return spark.range(0, 1, 1, 1).mapInArrow(task, columns)

        return self._format.rows_by_task(self._source, self._read_schema(spark), frame_of or in_one_partition)

    def parameters_for(self, position: Json, folder: str) -> bytes | None:  # noqa: ARG002 - nothing is digested
        if (spark := self._spark) is None:
            return None
        found = self._parameters
        if found is None or found[0] != position:  # all units that read a step ask, at about the same time
            spans = list(self._spans(position, 0))
            found = position, msgspec.msgpack.encode(spans) if self._format.by_task(spans, spark) else None
            self._parameters = found
        return found[1]

    def _spans(self, position: Json, ordinal: int) -> Iterator[Span]:
        for place, file in enumerate(position["files"]):
            span = self._span(file, ordinal, place)
            if span.end is None or span.begin < span.end:  # a step may be of no lines
                yield span

    def _span(self, file: Json, ordinal: int, place: int) -> Span:
        path = str(self._listing.path_of(file["path"]))
        return Span(path, file["path"], file.get("begin", 0), file.get("end"), ordinal, place=place)

    def size_bytes(self, position: Json) -> int:
        return sum(int(file["size"] if "size" in file else file["end"] - file["begin"]) for file in position["files"])

    def _place_in(self, file: Json) -> InputFile:
        """Return the file of an entry of a position."""
        return self._listing.path_of(file["path"])

    def _place_now(self, name: str) -> InputFile:
        return self._listing.path_of(name)

    def names(self, position: Json) -> str:
        paths = []
        for file in position["files"]:
            of = f", bytes {file['begin']} to {file['end']}" if "end" in file else ""
            paths.append(f"{self._listing.path_of(file['path'])}{of}")
        more = f" and {len(paths) - _FILES_NAMED} more files" if len(paths) > _FILES_NAMED else ""
        return ", ".join(paths[:_FILES_NAMED]) + more

    def diagnose(self, position: Json, text: str) -> Exception | None:
        spark = self._spark or next(iter(self._readers), None)
        if spark is None or not any(sign in text for sign in _READ_FAILURES):
            return None
        try:
            self.verify(position)
        except BoatliftError as error:
            return error
        for file in position["files"]:
            path = self._place_in(file)
            found = self._format.explain(spark, path, self._known_columns(), self._read_schema(spark))
            if found is not None:
                return found
        return None

    def sorting_out(self) -> FilesSource:
        sorting = self._format.sorting_in(self._listing.base)
        assert sorting is not None
        # The bound of a line decides which rows are bad.
        sorts = {"bad_rows": "dead_letters", "max_line_bytes": sorting.max_line_bytes}
        described = {**self._options.described, **sorts}
        return type(self)(replace(self._options, format=sorting, columns=self._columns, described=described))

    def dead_letters(self, rows: DataFrame) -> DataFrame:
        assert isinstance(self._format, TextFormat)
        return self._format.dead_letters(rows, self._known_columns(), self._read_schema(rows.sparkSession))

    def places(self, dead_letters: Sequence[Row]) -> list[str]:
        text = self._format
        assert isinstance(text, TextFormat)
        offsets: dict[str, set[int]] = {}
        for each in dead_letters:
            offsets.setdefault(each["file"], set()).add(each["offset"])
        numbers = {
            (file, offset): number
            for file, wanted in offsets.items()
            for offset, number in text.numbers_of(self._place_now(file), wanted).items()
        }
        return [f"{each['file']}:{numbers[each['file'], each['offset']]}" for each in dead_letters]

    def _size_for_tasks(self, path: InputFile) -> int | None:
        """Return the size of a file that tasks must read; None if not, or if it is gone: its reader says so."""
        with self._reachable():
            try:
                return path.stat().st_size if self._format.needs_tasks(path) else None
            except FileNotFoundError:
                return None

    def _scan(self, spark: SparkSession, positions: Sequence[Json], *, ordinals: bool = False) -> DataFrame:
        """Read the files and ranges of positions; `ordinals` adds `_ordinal`, the index of a row's position."""
        schema = self._read_schema(spark)
        if spark not in self._readers:
            self._readers[spark] = self._format.reader(spark, schema)
        whole, ranges = list[Span](), list[Span]()
        for ordinal, position in enumerate(positions):
            for span in self._spans(position, ordinal):
                if span.end is not None:
                    ranges.append(span)
                elif (size := self._size_for_tasks(span.input)) is None:
                    whole.append(span)
                elif size:
                    ranges.append(span._replace(end=size))
        parts: list[DataFrame] = []
        if whole or not ranges:
            parts.append(self._readers[spark](whole, ordinals=ordinals and bool(whole)))
        if ranges:
            rows = self._format.rows_of_ranges(spark, self._source, ranges, schema)
            parts.append(rows if ordinals else rows.drop(ORDINAL))
        return parts[0] if len(parts) == 1 else parts[0].union(parts[1])

    def _known_columns(self) -> Columns:
        if self._columns is None:
            from boatlift.connectors.files.formats.parquet import columns_of_footer

            self._columns = columns_of_footer(self._first_file())
        return self._columns

    def _preflight(self) -> None:
        with self._reachable(), self._there(began=False):
            self._listing.base.stat()

    def _first_file(self) -> InputFile:
        with self._reachable(), self._there(began=False):
            names = self._listing.names()
        if not names:
            message = f"no file in {self._listing.base} yet to take the schema from: give schema='NAME TYPE, …'"
            raise InvalidError("NO_INPUT", message)
        return self._place_now(names[0])

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


def _difference(path: Path, file: Json) -> str | None:
    """Return how a file or range differs from its entry in a position; None if it does not."""
    if "end" in file:
        if (size := path.stat().st_size) != file["of"]:
            return f"has {size} bytes, but had {file['of']} when a range of it was taken"
        if has_another_footer(path, file):
            return "has another footer than when a range of it was taken"
        now = digest_between(path, file["begin"], file["end"])
        if now == file["digest"]:
            return None
        where = f"from {file['begin']} to {file['end']}"
        return f"has other bytes {where} (digest {now}) than when they were taken ({file['digest']})"
    content = digest_of(path)
    if content == (file["size"], file["digest"]):
        return None
    if content is None:
        return "is being written to"
    if content[0] != file["size"]:
        return f"has {content[0]} bytes, but had {file['size']} when it was taken"
    return f"has other bytes (digest {content[1]}) than when it was taken ({file['digest']})"
