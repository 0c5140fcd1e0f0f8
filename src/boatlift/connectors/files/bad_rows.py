"""Files of lines of which some are no rows: those are sorted out, with their places and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.files.formats import FileFormat, Lines, ReadFiles, nullable
from boatlift.connectors.files.lines import LINES, ReadLines, divided
from boatlift.connectors.kit import Columns, required_of
from boatlift.dataflow.columns import ORDINAL, quoted
from boatlift.dataflow.contracts import BAD_ROW, Json
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["SortedOut"]

_PLACE = "struct<line: binary, file: string, offset: bigint>"

TASK_BYTES = 4 << 20
"""A task reads at least so many bytes, if there are: starting a task takes longer than reading fewer."""


@dataclass(frozen=True, slots=True)
class SortedOut:
    """A format with one more column, `_bad_row`, which is NULL in rows that fit; see `SortsOutBadRows`.

    Attributes:
        format: The format, whose rows are lines.
        base: The folder that names of files are relative to: input may be moved, and bad rows stay the same.
    """

    format: FileFormat
    base: Path

    @property
    def positioned(self) -> bool:
        """Return whether rows get a `_position`."""
        return self.format.positioned

    @property
    def lines(self) -> Lines:
        """Return how a line is a row."""
        assert self.format.lines is not None
        return self.format.lines

    def describe(self) -> Json:
        """Return the options."""
        return self.format.describe()

    def rows_schema(self, schema: StructType) -> StructType:
        """Return the declared columns and `_bad_row`.

        Raises:
            InvalidError: `[RESERVED_NAME]` a declared column has that name.
        """
        from pyspark.sql.types import StructType, _parse_datatype_string

        if any(name.lower() == BAD_ROW for name in schema.fieldNames()):
            raise InvalidError("RESERVED_NAME", f"a column is named {BAD_ROW}, a name that Boatlift uses: rename it")
        return StructType(nullable(schema).fields).add(BAD_ROW, _parse_datatype_string(_PLACE))

    def check_columns(self, columns: Columns) -> None:
        """Raise if a line cannot hold a type."""
        self.format.check_columns(columns)

    def check_patterns(self, spark: SparkSession) -> None:
        """Raise if Spark does not know a pattern of dates and times."""
        self.format.check_patterns(spark)

    def check_file(self, path: Path, columns: Columns) -> None:
        """Look at a file's name and header."""
        self.format.check_file(path, columns)

    def reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        """Return a reader of rows and bad rows; its tasks read the lines."""
        from pyspark.sql import functions as F

        lines = self.lines
        bad_row = F.struct(F.col("value").alias("line"), F.col("file"), F.col("offset"))
        rows = lines.sorted_out(schema, bad_row)
        source, most = f"the files in {self.base}", spark.sparkContext.defaultParallelism

        def read(files: Sequence[tuple[Path, int]], ordinals: Sequence[int] = ()) -> DataFrame:
            named = [(path, str(path.relative_to(self.base))) for path, _ in files]
            given = [(path, name, ordinals[n] if ordinals else None) for n, (path, name) in enumerate(named)]
            size = sum(path.stat().st_size for path, _ in named)
            tasks = divided(given, max(1, min(most, size // TASK_BYTES)))
            task = ReadLines(source, lines.header, lines.encoding, tasks)
            columns = f"{LINES}, {ORDINAL} INT" if ordinals else LINES
            found = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(task, columns)
            return found.select(rows, *([ORDINAL] if ordinals else []))

        return read

    def explain(
        self,
        spark: SparkSession,  # noqa: ARG002
        path: Path,  # noqa: ARG002
        columns: Columns,  # noqa: ARG002
        schema: StructType,  # noqa: ARG002
    ) -> DataError | None:
        """Return None: no row stops a step, and the tasks say why a file cannot be read."""
        return None

    def letters(self, rows: DataFrame, columns: Columns, schema: StructType) -> DataFrame:
        """Return the dead letters of bad rows: `file`, `offset`, `text`, `reason`."""
        from pyspark.sql import functions as F

        unread = [F.when(F.col(quoted(name)).isNull(), F.lit(name)) for name in schema.fieldNames()]
        bad = F.col(BAD_ROW)
        reason = F.udf(_reasons(self.lines, columns, required_of(schema)), "string", useArrow=False)
        return rows.select(
            bad["file"].alias("file"),
            bad["offset"].alias("offset"),
            F.make_valid_utf8(bad["line"].cast("string")).alias("text"),
            reason(bad["line"], F.array_compact(F.array(*unread))).alias("reason"),
        )


def _reasons(lines: Lines, columns: Columns, required: Sequence[str]) -> Callable[[bytes, list[str]], str]:
    """Return the function that says why a line is a bad row; it runs in tasks."""

    def reason(line: bytes, unread: list[str]) -> str:
        return f"[BAD_ROW] {lines.fault(bytes(line), unread, columns, required)}"

    return reason
