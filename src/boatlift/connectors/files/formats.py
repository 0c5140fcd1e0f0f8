"""What differs between kinds of files, and what their readers share."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from boatlift.connectors.files.line_ends import LONGEST
from boatlift.connectors.kit import Columns, struct_of
from boatlift.dataflow.columns import ORDINAL
from boatlift.dataflow.contracts import FrameOfTask, Json
from boatlift.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

    from boatlift.connectors.files.lines import Span
    from boatlift.connectors.files.row_groups import RowGroups


class ReadFiles(Protocol):
    """Reads files lazily."""

    def __call__(self, files: Sequence[tuple[Path, int]], ordinals: Sequence[int] = ()) -> DataFrame:
        """Return the rows of files.

        Args:
            files: Each file with its place in the step that takes it.
            ordinals: If several steps are read together: for each file the index of its step, for `_ordinal`.
        """


class Lines(Protocol):
    """How the lines of files become rows, and which of them do not; or the elements of a file that is one array.

    Law: the rows that fit are those of `FileFormat.reader`, if there are no others.

    Attributes:
        header: Whether the first line of a file that is not blank is no row.
        encoding: The encoding of files, as Python calls it.
        most: How many bytes a line or an element may have.
        divisible: Whether a range of a file can be read by itself.
    """

    @property
    def header(self) -> bool:
        """See above."""

    @property
    def encoding(self) -> str:
        """See above."""

    @property
    def most(self) -> int:
        """See above."""

    @property
    def divisible(self) -> bool:
        """See above."""

    def texts_in(
        self, path: Path, begin: int = 0, end: int | None = None, most: int = LONGEST, *, at_line: bool = False
    ) -> Iterator[tuple[list[int], list[bytes]]]:
        """Yield the lines or elements that begin in a range, with their offsets, some at a time; see `lines_in`."""

    def no_row(self, schema: StructType) -> str:
        """Return a line that is a bad row by any such schema: it stands for one of which not all is read."""

    def sorted_out(self, lines: DataFrame, schema: StructType, kept: Sequence[str], bad_row: Column) -> DataFrame:
        """Return the rows of lines, which are in the column `value`; see `Texts.sorted_out`."""

    def fault(self, line: bytes, unread: Collection[str], columns: Columns, required: Collection[str]) -> str:
        """Return, in words, why a line is a bad row.

        Args:
            line: The line, in UTF-8 if its file is text of the encoding.
            unread: The columns that could not be read of it, or are NULL.
            columns: The declared columns.
            required: Those that are NOT NULL.
        """


TEXT_TYPES = (
    "string int bigint smallint tinyint float double boolean decimal date timestamp timestamp_ntz".split()  # noqa: SIM905
)
"""The types of which a value can be a piece of text."""

_GLOB_CHARACTERS = re.compile(r"[\\\[\]{}*?^,]")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._=/-]+")


class FileFormat(Protocol):
    """The differences between kinds of files.

    Law: every row of a file is a row of the reader, with all its fields, or the read fails; also where a field is not
    used, or a filter drops the row.
    """

    @property
    def positioned(self) -> bool:
        """Return whether rows get a `_position`."""

    @property
    def lines(self) -> Lines | None:
        """Return how lines become rows; None if a row is no line of text."""

    @property
    def sortable(self) -> Lines | None:
        """Return how lines or elements become rows one by one; None if nothing says where the next row begins."""

    @property
    def row_groups(self) -> RowGroups | None:
        """Return how row groups become rows; None if files have none."""

    def describe(self) -> Json:
        """Return the options that results depend on."""

    def rows_schema(self, schema: StructType) -> StructType:
        """Return the schema of the rows that are read, without `_position`, from the declared one."""

    def check_columns(self, columns: Columns) -> None:
        """Raise if such files cannot hold a declared type.

        Raises:
            InvalidError: `[BAD_OPTION]`.
        """

    def check_patterns(self, spark: SparkSession) -> None:
        """Raise if Spark does not know a pattern of dates and times.

        Raises:
            InvalidError: `[BAD_OPTION]`.
        """

    def check_file(self, path: Path, columns: Columns) -> None:
        """Compare a file's name and its own columns with the declared ones.

        Raises:
            InvalidError: `[BAD_NAME]`.
            DataError: `[BAD_HEADER]`, naming file and difference.
        """

    def whole_because(self, path: Path) -> str | None:
        """Return the reason why a file is taken whole, whatever its size; None if it can be taken in ranges.

        Ranges are of row groups, if the format has such, else of lines.
        """

    def rows_begin(self, path: Path) -> int:
        """Return the offset of a file's first line of rows, or row group, of a file that can be taken in ranges."""

    def rows_of_lines(self, lines: DataFrame, schema: StructType) -> DataFrame:
        """Return the rows of lines in a column `value` (binary), each beside its `_ordinal`.

        Law: the rows of all lines of a file from `rows_begin` on are those of `reader`, or both fail.
        """

    @property
    def has_task(self) -> bool:
        """Return whether one task can read such files, of most kinds at least: see `by_task`."""

    def needs_tasks(self, path: Path) -> bool:
        """Return whether tasks have to read a whole file: Spark's own reader cannot, or has no bounds for it."""

    def by_task(self, spans: Sequence[Span], spark: SparkSession) -> bool:
        """Return whether `rows_by_task` may read the files and ranges of a step, in one task."""

    def rows_by_task(self, source: str, schema: StructType, frame_of: FrameOfTask) -> DataFrame:
        """Return the rows of the files that the parameters of a job name, read by the job's one task.

        Law: they are those of `reader`, those of a file in the same order, or both fail.

        Args:
            source: The source's name, for errors.
            schema: The declared columns.
            frame_of: Makes the frame of the rows of the task.
        """

    def reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        """Return the reader of all steps: making one takes many calls into the JVM, using it few.

        A column that the schema has as NOT NULL is read strictly, too; in the schema of the rows it may be NULL.
        """

    def explain(self, spark: SparkSession, path: Path, columns: Columns, schema: StructType) -> DataError | None:
        """Return the reason why a file cannot be read; None if it can."""


def lines_by_task(
    lines_format: FileFormat, source: str, schema: StructType, frame_of: FrameOfTask, *, cuts: bool = False
) -> DataFrame:
    """Return the rows of files of lines; see `FileFormat.rows_by_task` and `ReadLines.cuts`."""
    from boatlift.connectors.files.lines import LINES, ReadLines

    lines = lines_format.lines
    assert lines is not None, "a format without lines"
    read = ReadLines(source, lines.header, lines.encoding, lines.texts_in, lines.most, cuts, None)
    return lines_format.rows_of_lines(frame_of(read, struct_of(LINES)), schema).drop(ORDINAL)


def difference(found: Sequence[str], declared: Sequence[str]) -> str:
    """Return, in words, how the names of columns differ from the declared ones."""
    missing = [name for name in declared if name not in found]
    more = [name for name in found if name not in declared]
    if missing or more:
        parts = [f"lacks {missing}" if missing else "", f"has {more}, which the schema has not" if more else ""]
        return " and ".join(part for part in parts if part)
    return f"has columns {list(found)}, the schema {list(declared)}"


def loaded(reader: DataFrameReader, files: Sequence[tuple[Path, int]]) -> DataFrame:
    """Load files by a reader of Spark's."""
    paths = [spark_path(path) for path, _ in files]
    return reader.load(paths[0] if len(paths) == 1 else paths)


def nullable(schema: StructType) -> StructType:
    """Return a schema with columns that may be NULL: which they are not, the reader sees to."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, field.dataType) for field in schema.fields])


def with_ordinals(rows: DataFrame, files: Sequence[tuple[Path, int]], ordinals: Sequence[int]) -> DataFrame:
    """Return rows that Spark has read from files with `_ordinal`, if ordinals are given for the files."""
    if not ordinals:
        return rows
    ordinal_of = [(path, ordinal) for (path, _), ordinal in zip(files, ordinals, strict=True)]
    return rows.select("*", by_file(rows.sparkSession, ordinal_of).cast("int").alias(ORDINAL))


def spark_path(path: Path) -> str:
    r"""Escape a path for Spark, which takes every path for a glob: `a[1]` as `a\[1\]`."""
    return _GLOB_CHARACTERS.sub(r"\\\g<0>", str(path))


def by_file(spark: SparkSession, values: Sequence[tuple[Path, int]]) -> Column:
    """Return a column that looks up a number for each row by the row's file.

    The numbers come as data, because a plan that differs from step to step would be compiled anew. Each path is given
    once.
    """
    from pyspark.sql import functions as F

    # A URI has no blank.
    paths = F.split(F.lit(" ".join(_as_in_uri(spark, path) for path, _ in values)), " ")
    numbers = F.split(F.lit(",".join(str(number) for _, number in values)), ",")
    path = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "/")
    return F.element_at(numbers, F.array_position(paths, path).cast("int")).cast("long")


def _as_in_uri(spark: SparkSession, path: Path) -> str:
    """Return a path as `_metadata` has it: escaped for a URI as Java does it."""
    if _PLAIN_PATH.fullmatch(str(path)):
        return str(path)
    jvm: Any = spark._jvm
    return str(jvm.org.apache.hadoop.fs.Path(str(path)).toUri().toString())
