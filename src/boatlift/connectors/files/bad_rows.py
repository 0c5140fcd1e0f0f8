"""Files of lines, or of arrays, of which some elements are no rows: those are sorted out, with places and reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.files.formats import FileFormat, Lines, ReadFiles, lines_by_task, nullable
from boatlift.connectors.files.lines import Span, lines_of, too_long
from boatlift.connectors.kit import Columns, required_of
from boatlift.dataflow.columns import ORDINAL, quoted
from boatlift.dataflow.contracts import BAD_ROW, FrameOfTask, Json
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from boatlift.connectors.files.row_groups import RowGroups

_PLACED, _SIZE = "_boatlift_place", "SIZE"
_PLACE = "struct<line: binary, file: string, offset: bigint, size: bigint>"


@dataclass(frozen=True, slots=True)
class SortedOut:
    """A format with one more column, `_bad_row`, which is NULL in rows that fit; see `SortsOutBadRows`.

    Attributes:
        format: The format, whose rows are lines or elements of an array.
        base: The folder that names of files are relative to: input may be moved, and bad rows stay the same.
    """

    format: FileFormat
    base: Path

    @property
    def positioned(self) -> bool:
        return self.format.positioned

    @property
    def lines(self) -> Lines | None:
        return self.format.lines

    @property
    def sortable(self) -> Lines:
        assert self.format.sortable is not None
        return self.format.sortable

    @property
    def row_groups(self) -> RowGroups | None:
        return None

    def describe(self) -> Json:
        return self.format.describe()

    def rows_schema(self, schema: StructType) -> StructType:
        from pyspark.sql.types import StructType, _parse_datatype_string

        if any(name.lower() == BAD_ROW for name in schema.fieldNames()):
            raise InvalidError("RESERVED_NAME", f"a column is named {BAD_ROW}, a name that Boatlift uses: rename it")
        return StructType(nullable(schema).fields).add(BAD_ROW, _parse_datatype_string(_PLACE))

    def check_columns(self, columns: Columns) -> None:
        self.format.check_columns(columns)

    def check_patterns(self, spark: SparkSession) -> None:
        self.format.check_patterns(spark)

    def check_file(self, path: Path, columns: Columns) -> None:
        self.format.check_file(path, columns)

    def whole_because(self, path: Path) -> str | None:
        return self.format.whole_because(path)

    def rows_begin(self, path: Path) -> int:
        return self.format.rows_begin(path)

    def rows_of_lines(self, lines: DataFrame, schema: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        place = F.struct(F.col("value").alias("line"), F.col("file"), F.col("offset"), F.col("size")).alias(_PLACED)
        no_row = F.lit(self.sortable.no_row(schema)).cast("binary")
        value = F.when(F.col("size").isNull(), F.col("value")).otherwise(no_row).alias("value")
        return self.sortable.sorted_out(lines.select(value, place, ORDINAL), schema, [ORDINAL], F.col(_PLACED))

    @property
    def has_task(self) -> bool:
        return self.format.has_task

    def needs_tasks(self, path: Path) -> bool:  # noqa: ARG002
        return False

    def by_task(self, spans: Sequence[Span], spark: SparkSession) -> bool:
        return self.format.by_task(spans, spark)

    def rows_by_task(self, source: str, schema: StructType, frame_of: FrameOfTask) -> DataFrame:
        return lines_by_task(self, source, schema, frame_of, cuts=True)

    def reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        def read(files: Sequence[tuple[Path, int]], ordinals: Sequence[int] = ()) -> DataFrame:
            numbers = ordinals or [0] * len(files)
            spans = [
                Span(str(path), str(path.relative_to(self.base)), 0, None, number)
                for (path, _), number in zip(files, numbers, strict=True)
            ]
            lines = lines_of(spark, f"the files in {self.base}", self.sortable, spans, cuts=True)
            rows = self.rows_of_lines(lines, schema)
            return rows if ordinals else rows.drop(ORDINAL)

        return read

    def explain(
        self,
        spark: SparkSession,  # noqa: ARG002
        path: Path,  # noqa: ARG002
        columns: Columns,  # noqa: ARG002
        schema: StructType,  # noqa: ARG002
    ) -> DataError | None:
        return None

    def dead_letters(self, rows: DataFrame, columns: Columns, schema: StructType) -> DataFrame:
        """Return the dead letters of bad rows: `file`, `offset`, `text`, `reason`."""
        from pyspark.sql import functions as F

        unread = [F.when(F.col(quoted(name)).isNull(), F.lit(name)) for name in schema.fieldNames()]
        bad = F.col(BAD_ROW)
        long = F.lit(f"[BAD_ROW] it {too_long(_SIZE, self.sortable.most)}")
        reason = F.udf(_reasons(self.sortable, columns, required_of(schema)), "string", useArrow=False)
        return rows.select(
            bad["file"].alias("file"),
            bad["offset"].alias("offset"),
            F.make_valid_utf8(bad["line"].cast("string")).alias("text"),
            F.when(bad["size"].isNull(), reason(bad["line"], F.array_compact(F.array(*unread))))
            .otherwise(F.replace(long, F.lit(_SIZE), bad["size"].cast("string")))
            .alias("reason"),
        )


def numbers_of(lines: Lines, path: Path, offsets: AbstractSet[int]) -> dict[int, int]:
    """Return the number, from 1, of each line or element of a file that begins at one of some offsets."""
    begins = (begin for block, _ in lines.texts_in(path, 0, None, lines.most) for begin in block)
    return {begin: number for number, begin in enumerate(begins, start=1) if begin in offsets}


def _reasons(lines: Lines, columns: Columns, required: Sequence[str]) -> Callable[[bytes, list[str]], str]:
    def reason(line: bytes, unread: list[str]) -> str:
        return f"[BAD_ROW] {lines.fault(bytes(line), unread, columns, required)}"

    return reason
