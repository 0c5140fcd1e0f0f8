"""Text with bad rows sorted out: dead letters with the text, its place and the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.files.formats.base import FileFormat, ReadFiles, TextFormat
from boatlift.connectors.files.lines import LINES, Span, too_long
from boatlift.connectors.files.ranges import PlacedRange
from boatlift.connectors.kit import Columns, required_of, struct_of
from boatlift.dataflow.columns import ORDINAL, quoted
from boatlift.dataflow.contracts import BAD_ROW, FrameOfTask, Json
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PLACED, _SIZE = "_boatlift_place", "SIZE"
_PLACE = "struct<line: binary, file: string, offset: bigint, size: bigint>"


class SortedOut(FileFormat):
    """A text format with one more column, `_bad_row`, which is NULL in rows that fit; see `SortsOutBadRows`.

    Args:
        base: The folder that names of files are relative to: bad rows stay the same if the input is moved.
    """

    def __init__(self, text: TextFormat, base: Path) -> None:
        self._text, self._base = text, base

    @property
    def sortable(self) -> TextFormat:
        return self._text

    @property
    def has_task(self) -> bool:
        return self._text.has_task

    def describe(self) -> Json:
        return self._text.describe()

    def rows_schema(self, schema: StructType) -> StructType:
        """Return the declared columns and `_bad_row`.

        Raises:
            InvalidError: `[RESERVED_NAME]` a declared column has that name.
        """
        from pyspark.sql.types import _parse_datatype_string

        if any(name.lower() == BAD_ROW for name in schema.fieldNames()):
            raise InvalidError("RESERVED_NAME", f"a column is named {BAD_ROW}, a name that Boatlift uses: rename it")
        return super().rows_schema(schema).add(BAD_ROW, _parse_datatype_string(_PLACE))

    def check_columns(self, columns: Columns) -> None:
        self._text.check_columns(columns)

    def check_patterns(self, spark: SparkSession) -> None:
        self._text.check_patterns(spark)

    def check_file(self, path: Path, columns: Columns) -> None:
        self._text.check_file(path, columns)

    def whole_because(self, path: Path) -> str | None:
        return self._text.whole_because(path)

    def rows_begin(self, path: Path) -> int:
        return self._text.rows_begin(path)

    def rows_by_task(self, source: str, schema: StructType, frame_of: FrameOfTask) -> DataFrame:
        return self._rows(frame_of(self._text.lines_reader(source, cuts=True), struct_of(LINES)), schema).drop(ORDINAL)

    def rows_of_ranges(
        self, spark: SparkSession, source: str, ranges: Sequence[PlacedRange], schema: StructType
    ) -> DataFrame:
        return self._rows(self._text.lines_of_ranges(spark, source, ranges, cuts=True), schema)

    def reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        def read(files: Sequence[tuple[Path, int]], ordinals: Sequence[int] = ()) -> DataFrame:
            numbers = ordinals or [0] * len(files)
            spans = [
                Span(str(path), str(path.relative_to(self._base)), 0, None, number)
                for (path, _), number in zip(files, numbers, strict=True)
            ]
            rows = self._rows(self._text.lines_of(spark, f"the files in {self._base}", spans, cuts=True), schema)
            return rows if ordinals else rows.drop(ORDINAL)

        return read

    def _rows(self, lines: DataFrame, schema: StructType) -> DataFrame:
        """Return the rows of lines and the bad rows, with their `_ordinal`."""
        from pyspark.sql import functions as F

        place = F.struct(F.col("value").alias("line"), F.col("file"), F.col("offset"), F.col("size")).alias(_PLACED)
        no_row = F.lit(self._text.no_row(schema)).cast("binary")
        value = F.when(F.col("size").isNull(), F.col("value")).otherwise(no_row).alias("value")
        return self._text.sorted_out(lines.select(value, place, ORDINAL), schema, [ORDINAL], F.col(_PLACED))

    def explain(self, spark: SparkSession, path: Path, columns: Columns, schema: StructType) -> DataError | None:
        """Return None: no row stops a step, and tasks say themselves why a file cannot be read."""

    def dead_letters(self, rows: DataFrame, columns: Columns, schema: StructType) -> DataFrame:
        """Return the dead letters of bad rows: `file`, `offset`, `text`, `reason`."""
        from pyspark.sql import functions as F

        unread = [F.when(F.col(quoted(name)).isNull(), F.lit(name)) for name in schema.fieldNames()]
        bad = F.col(BAD_ROW)
        long = F.lit(f"[BAD_ROW] it {too_long(_SIZE, self._text.max_line_bytes)}")
        reason = F.udf(_reasons(self._text, columns, required_of(schema)), "string", useArrow=False)
        return rows.select(
            bad["file"].alias("file"),
            bad["offset"].alias("offset"),
            F.make_valid_utf8(bad["line"].cast("string")).alias("text"),
            F.when(bad["size"].isNull(), reason(bad["line"], F.array_compact(F.array(*unread))))
            .otherwise(F.replace(long, F.lit(_SIZE), bad["size"].cast("string")))
            .alias("reason"),
        )


def numbers_of(text: TextFormat, path: Path, offsets: AbstractSet[int]) -> dict[int, int]:
    """Return the numbers, from 1, of the lines or elements of a file that begin at the given offsets."""
    batches = text.texts_in(path, 0, None, text.max_line_bytes)
    begins = (begin for batch, _ in batches for begin in batch)
    return {begin: number for number, begin in enumerate(begins, start=1) if begin in offsets}


def _reasons(text: TextFormat, columns: Columns, required: Sequence[str]) -> Callable[[bytes, list[str]], str]:
    def reason(line: bytes, unread: list[str]) -> str:  # runs in tasks
        return f"[BAD_ROW] {text.fault(bytes(line), unread, columns, required)}"

    return reason
