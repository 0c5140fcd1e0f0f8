"""What a format of files decides, and what formats share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Protocol

from boatlift.connectors.files.compression import damage_of, is_compressed, length_of_bom
from boatlift.connectors.files.lines import LINES, LONGEST, ReadLines, Span, has_long_line, lines_in, lines_of, too_long
from boatlift.connectors.files.ranges import end_of_range, range_in
from boatlift.connectors.kit import Columns, nullable, required_of, struct_of
from boatlift.connectors.kit.object_place import InputFile, ObjectPlace
from boatlift.connectors.kit.text_forms import TextForms
from boatlift.connectors.kit.text_rows import Texts
from boatlift.dataflow.columns import ORDINAL, quoted
from boatlift.dataflow.contracts import BAD_ROW, FrameOfTask, Json
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

TEXT_TYPES = (
    "string int bigint smallint tinyint float double boolean decimal date timestamp timestamp_ntz".split()  # noqa: SIM905
)
"""The types that a single text can be a value of."""

CORRECTED = "corrected, the file needs a new name"

_PLACED, _SIZE = "_boatlift_place", "SIZE"
_PLACE = "struct<line: binary, file: string, offset: bigint, size: bigint>"
_GLOB_CHARACTERS = re.compile(r"[\\\[\]{}*?^,]")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._=/-]+")


class ReadFiles(Protocol):
    """Reads files lazily."""

    def __call__(self, files: Sequence[Span], *, ordinals: bool) -> DataFrame:
        """Return the rows of whole files; with `ordinals` each has the index of its file's step in `_ordinal`."""


class FileFormat(ABC):
    """How files of a kind are read.

    Law: every row of a file is a row of the reader, with all its fields, or the read fails. This holds also if a query
    does not use the field, or drops the row.
    """

    positioned = False

    @property
    @abstractmethod
    def has_task(self) -> bool:
        """Whether one task can read most such files; see `by_task`."""

    def sorting_in(self, base: InputFile) -> TextFormat | None:  # noqa: ARG002
        """Return the format that sorts bad rows out, by names relative to a folder; None if that cannot be done."""
        return None

    @abstractmethod
    def describe(self) -> Json:
        """Return the options that results depend on."""

    def rows_schema(self, schema: StructType) -> StructType:
        """Return the schema of rows, without `_position`, from the declared schema."""
        return nullable(schema)

    def check_columns(self, columns: Columns) -> None:  # noqa: B027 - most formats hold all types
        """Raise if such files cannot hold a declared type."""

    def check_patterns(self, spark: SparkSession) -> None:  # noqa: B027 - Parquet has none
        """Raise if Spark does not know a pattern of dates and times."""

    @abstractmethod
    def check_file(self, path: InputFile, columns: Columns) -> None:
        """Compare a file's name and its own columns with the declared columns."""

    @abstractmethod
    def whole_because(self, path: InputFile) -> str | None:
        """Return the reason why a file is taken whole, whatever its size; None if it can be taken in ranges."""

    @abstractmethod
    def rows_begin(self, path: InputFile) -> int:
        """Return where the rows of a file begin that can be taken in ranges."""

    def next_range(self, path: Path, begin: int, most: int) -> dict[str, Any] | None:
        """Return a position's entry for the next range of a file; None if a process wrote to the file meanwhile."""
        return range_in(path, begin, most)

    def range_end(self, path: InputFile, begin: int, most: int) -> int:
        """Return the end of the next range: at most so many bytes, or the one line or row group that has more."""
        with path.open("rb") as file:
            return end_of_range(file, begin, most, path.stat().st_size)

    def refuse_unread_by_tasks(self, path: InputFile) -> None:  # noqa: B027 - tasks read all text
        """Raise if tasks cannot read the rows of a file as Spark's reader does."""

    def needs_tasks(self, path: InputFile) -> bool:  # noqa: ARG002
        """Return whether tasks must read a whole file, because Spark's reader cannot, or has no bounds for it."""
        return False

    def by_task(self, spans: Sequence[Span], spark: SparkSession) -> bool:  # noqa: ARG002
        """Return whether `rows_by_task` may read the files and ranges of a step."""
        return self.has_task

    @abstractmethod
    def rows_by_task(self, source: str, schema: StructType, frame_of: FrameOfTask) -> DataFrame:
        """Return the rows of the files and ranges in a job's parameters, read by the job's one task.

        Law: these are the rows of `reader`, the rows of a file in the same order, or both fail.
        """

    @abstractmethod
    def rows_of_ranges(self, spark: SparkSession, source: str, ranges: Sequence[Span], schema: StructType) -> DataFrame:
        """Return the rows of ranges with their `_ordinal`, as `reader` returns them for whole files."""

    @abstractmethod
    def reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        """Return the reader for all steps: making a reader takes many calls into the JVM, using it few.

        A NULL in a column that the schema has as NOT NULL fails the read; in the schema of the rows every column may be
        NULL.
        """

    @abstractmethod
    def explain(self, spark: SparkSession, path: InputFile, columns: Columns, schema: StructType) -> DataError | None:
        """Return the reason why a file cannot be read; None if it can."""


class TextFormat(FileFormat):
    """A format of text, whose rows are lines or, if `multi_line`, perhaps the elements of an array.

    Attributes:
        max_line_bytes: The bytes that a line may have; the subclass says what the bound means for `multi_line`.
        sorts_in: If bad rows are sorted out (`SortsOutBadRows`): the folder that names of files are relative to, so
            that bad rows stay the same if the input is moved. Rows then have `_bad_row`, which is NULL if they fit.
        header: Whether the first line of a file that is not blank is no row.
        encoding: The encoding of files, as Python calls it.
    """

    multi_line: bool
    forms: TextForms
    max_line_bytes: int
    sorts_in: InputFile | None
    header: bool
    encoding: str
    types: Collection[str] = TEXT_TYPES
    title: str

    @property
    def has_task(self) -> bool:
        return not self.multi_line

    def check_columns(self, columns: Columns) -> None:
        for name, kind in columns:
            if re.split("[(<]", kind, maxsplit=1)[0] not in self.types:
                message = f"{self.title} cannot hold column {name} of type {kind}: declare it as string"
                raise InvalidError("BAD_OPTION", message)

    def check_patterns(self, spark: SparkSession) -> None:
        self.forms.check(spark)

    def whole_because(self, path: InputFile) -> str | None:
        if is_compressed(path):
            return "it is compressed"
        return "of multi_line, a row may have several lines" if self.multi_line else None

    def rows_begin(self, path: InputFile) -> int:
        return length_of_bom(path)

    def rows_schema(self, schema: StructType) -> StructType:
        from pyspark.sql.types import _parse_datatype_string

        rows = super().rows_schema(schema)
        if self.sorts_in is None:
            return rows
        if any(name.lower() == BAD_ROW for name in schema.fieldNames()):
            raise InvalidError("RESERVED_NAME", f"a column is named {BAD_ROW}, a name that Boatlift uses: rename it")
        return rows.add(BAD_ROW, _parse_datatype_string(_PLACE))

    def needs_tasks(self, path: InputFile) -> bool:
        if self.sorts_in is not None or not self.has_task:  # sorted out, rows are read in tasks anyway
            return False
        return is_compressed(path) or has_long_line(path, self.max_line_bytes)

    def rows_by_task(self, source: str, schema: StructType, frame_of: FrameOfTask) -> DataFrame:
        return self._rows(frame_of(self._reader_of_lines(source), struct_of(LINES)), schema).drop(ORDINAL)

    def rows_of_ranges(self, spark: SparkSession, source: str, ranges: Sequence[Span], schema: StructType) -> DataFrame:
        # Bytes of a compressed file are counted after decompression: it has no range, and its size says no end.
        whole = [self.multi_line or is_compressed(each.input) for each in ranges]
        spans = [each._replace(end=None) if alone else each for each, alone in zip(ranges, whole, strict=True)]
        return self._rows(self.lines_of(spark, source, spans), schema)

    def reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        if (base := self.sorts_in) is None:
            return self.strict_reader(spark, schema)

        def read(files: Sequence[Span], *, ordinals: bool) -> DataFrame:
            rows = self._rows(self.lines_of(spark, f"the files in {base}", files), schema)
            return rows if ordinals else rows.drop(ORDINAL)

        return read

    def explain(self, spark: SparkSession, path: InputFile, columns: Columns, schema: StructType) -> DataError | None:
        # Sorted out, no row stops a step, and tasks say themselves why a file cannot be read.
        if self.sorts_in is not None:
            return None
        if isinstance(path, ObjectPlace) and not self.multi_line:  # which Spark cannot read
            return self._bad_line_in(spark, path, columns, schema)
        return self.bad_row_in(spark, path, columns, schema)

    def _bad_line_in(
        self, spark: SparkSession, path: ObjectPlace, columns: Columns, schema: StructType
    ) -> DataError | None:
        """Return the error of the first bad line, by sorting bad rows out."""
        if (damage := damage_of(path)) is not None:
            return DataError("BAD_ROW", damage)
        sorting = self.sorting_in(path)
        assert sorting is not None
        span = Span(path.url, path.name, 0, None, 0, version=path.version)
        rows = sorting.reader(spark, schema)([span], ordinals=False)
        bad = sorting.dead_letters(rows.where(f"{BAD_ROW} IS NOT NULL"), columns, schema).orderBy("offset").first()
        if bad is None:
            return None
        line = sorting.numbers_of(path, {bad["offset"]})[bad["offset"]]
        return DataError("BAD_ROW", f"{path} line {line}: {bad['reason'].removeprefix('[BAD_ROW] ')}; {CORRECTED}")

    def lines_of(self, spark: SparkSession, source: str, spans: Sequence[Span]) -> DataFrame:
        """Return the lines or elements of spans, with the columns `LINES`."""
        return lines_of(spark, self._reader_of_lines(source), spans, divisible=not self.multi_line)

    def _reader_of_lines(self, source: str) -> ReadLines:
        cuts = self.sorts_in is not None
        return ReadLines(source, self.header, self.encoding, self.texts_in, self.max_line_bytes, cuts)

    def _rows(self, lines: DataFrame, schema: StructType) -> DataFrame:
        """Return the rows of lines, and bad rows if these are sorted out, with their `_ordinal`."""
        from pyspark.sql import functions as F

        if self.sorts_in is None:
            return self.texts(lines, schema).rows([ORDINAL])
        place = F.struct(F.col("value").alias("line"), F.col("file"), F.col("offset"), F.col("size")).alias(_PLACED)
        no_row = F.lit(self.no_row(schema)).cast("binary")
        value = F.when(F.col("size").isNull(), F.col("value")).otherwise(no_row).alias("value")
        return self.texts(lines.select(value, place, ORDINAL), schema).sorted_out([ORDINAL], F.col(_PLACED))

    def texts_in(
        self, path: InputFile, begin: int = 0, end: int | None = None, most: int = LONGEST, *, at_line: bool = False
    ) -> Iterator[tuple[list[int], list[bytes]]]:
        """Yield the lines or elements that begin in a range, with their offsets, as `lines_in` does."""
        return lines_in(path, begin, end, most, at_line=at_line)

    def numbers_of(self, path: InputFile, offsets: AbstractSet[int]) -> dict[int, int]:
        """Return the numbers, from 1, of the lines or elements of a file that begin at the given offsets."""
        batches = self.texts_in(path, 0, None, self.max_line_bytes)
        begins = (begin for batch, _ in batches for begin in batch)
        return {begin: number for number, begin in enumerate(begins, start=1) if begin in offsets}

    def dead_letters(self, rows: DataFrame, columns: Columns, schema: StructType) -> DataFrame:
        """Return the dead letters of bad rows: `file`, `offset`, `text`, `reason`."""
        from pyspark.sql import functions as F

        required = required_of(schema)

        def reason(line: bytes, unread: list[str]) -> str:  # runs in tasks
            return f"[BAD_ROW] {self.fault(bytes(line), unread, columns, required)}"

        bad = F.col(BAD_ROW)
        unread = F.array(*(F.when(F.col(quoted(name)).isNull(), F.lit(name)) for name in schema.fieldNames()))
        found = F.udf(reason, "string", useArrow=False)(bad["line"], F.array_compact(unread))
        long = F.lit(f"[BAD_ROW] it {too_long(_SIZE, self.max_line_bytes)}")
        return rows.select(
            bad["file"].alias("file"),
            bad["offset"].alias("offset"),
            F.make_valid_utf8(bad["line"].cast("string")).alias("text"),
            F.when(bad["size"].isNull(), found)
            .otherwise(F.replace(long, F.lit(_SIZE), bad["size"].cast("string")))
            .alias("reason"),
        )

    @abstractmethod
    def texts(self, lines: DataFrame, schema: StructType) -> Texts:
        """Return the texts of the values of lines in a column `value`; other columns can be kept.

        Laws:
            * The rows of all lines of a file from `rows_begin` on are the rows of `strict_reader`, or both fail.
            * Sorted out, the rows that fit are the rows of `strict_reader`, if no others exist.
        """

    @abstractmethod
    def strict_reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        """Return the reader for which a bad row stops a step."""

    @abstractmethod
    def bad_row_in(
        self, spark: SparkSession, path: InputFile, columns: Columns, schema: StructType
    ) -> DataError | None:
        """Return the reason why `strict_reader` cannot read a file; None if it can."""

    @abstractmethod
    def no_row(self, schema: StructType) -> str:
        """Return a line that is a bad row under any such schema, in place of a line that was cut."""

    @abstractmethod
    def fault(self, line: bytes, unread: Collection[str], columns: Columns, required: Collection[str]) -> str:
        """Return, in words, why a line is a bad row.

        Args:
            line: The line, in UTF-8 if its file has valid text.
            unread: The columns that could not be read, or are NULL.
        """


def difference(found: Sequence[str], declared: Sequence[str]) -> str:
    """Return, in words, how the names of columns differ from the declared names."""
    missing = [name for name in declared if name not in found]
    more = [name for name in found if name not in declared]
    if missing or more:
        parts = [f"lacks {missing}" if missing else "", f"has {more}, which the schema has not" if more else ""]
        return " and ".join(part for part in parts if part)
    return f"has columns {list(found)}, the schema {list(declared)}"


def loaded(reader: DataFrameReader, files: Sequence[str]) -> DataFrame:
    """Load files by one of Spark's readers."""
    paths = [spark_path(path) for path in files]
    return reader.load(paths[0] if len(paths) == 1 else paths)


def with_ordinals(rows: DataFrame, files: Sequence[Span], *, ordinals: bool) -> DataFrame:
    """Add `_ordinal` to rows that Spark has read from files, if `ordinals` is set."""
    if not ordinals:
        return rows
    ordinal_of = by_file(rows.sparkSession, [(each.path, each.ordinal) for each in files])
    return rows.select("*", ordinal_of.cast("int").alias(ORDINAL))


def spark_path(path: str) -> str:
    r"""Escape a path for Spark, which takes every path for a glob: `a[1]` as `a\[1\]`."""
    return _GLOB_CHARACTERS.sub(r"\\\g<0>", path)


def by_file(spark: SparkSession, values: Sequence[tuple[str, int]]) -> Column:
    """Return a column that looks up a number for each row by the row's file.

    The numbers come as data, because Spark compiles a plan that differs from step to step anew.
    """
    from pyspark.sql import functions as F

    jvm: Any = spark._jvm

    def in_uri(path: str) -> str:
        """Return a path as `_metadata` has it: escaped for a URI by Java."""
        return path if _PLAIN_PATH.fullmatch(path) else str(jvm.org.apache.hadoop.fs.Path(path).toUri().toString())

    # A URI has no blank.
    paths = F.split(F.lit(" ".join(in_uri(path) for path, _ in values)), " ")
    numbers = F.split(F.lit(",".join(str(number) for _, number in values)), ",")
    path = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "/")
    return F.element_at(numbers, F.array_position(paths, path).cast("int")).cast("long")
