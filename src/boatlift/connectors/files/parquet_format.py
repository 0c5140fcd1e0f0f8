"""Files of Parquet: the footer has the schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.files import row_groups
from boatlift.connectors.files.formats import (
    Lines,
    ReadFiles,
    by_file,
    difference,
    loaded,
    nullable,
    spark_path,
    with_ordinals,
)
from boatlift.connectors.files.row_groups import RowGroups
from boatlift.connectors.kit import Columns, struct_of
from boatlift.dataflow.columns import POSITION, quoted
from boatlift.dataflow.contracts import FrameOfTask, Json
from boatlift.errors import DataError, InternalError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from boatlift.connectors.files.lines import Span


@dataclass(frozen=True)
class ParquetFormat:
    """Columnar files; the footer's columns must be the declared ones, in any order."""

    positioned: bool

    @property
    def lines(self) -> Lines | None:
        return None

    @property
    def sortable(self) -> None:
        return None

    @property
    def row_groups(self) -> RowGroups:
        return RowGroups(self.positioned)

    def describe(self) -> Json:
        return {}

    def rows_schema(self, schema: StructType) -> StructType:
        return nullable(schema)

    def check_columns(self, columns: Columns) -> None:
        pass

    def check_file(self, path: Path, columns: Columns) -> None:
        import pyarrow as pa

        from boatlift.connectors.files.parquet_rows import unreadable
        from boatlift.connectors.files.parquet_times import refuse_fractions

        found = dict(columns_of_footer(path))
        declared = dict(columns)
        try:
            refuse_fractions(path)
        except pa.ArrowException as error:
            raise unreadable(path, error) from error
        if found == declared:
            return
        if set(found) != set(declared):
            raise DataError(
                "BAD_HEADER", f"{path} {difference(list(found), list(declared))}; correct the file or the schema"
            )
        name = next(name for name in declared if found[name] != declared[name])
        raise DataError(
            "BAD_HEADER", f"{path}: column {name} is {found[name]}, not {declared[name]}; correct file or schema"
        )

    def check_patterns(self, spark: SparkSession) -> None:
        pass

    def whole_because(self, path: Path) -> str | None:
        return row_groups.whole_because(path)

    def rows_begin(self, path: Path) -> int:
        import pyarrow.parquet as pq

        from boatlift.connectors.files.parquet_rows import begins_of

        return begins_of(pq.read_metadata(path))[0]

    def rows_of_lines(self, lines: DataFrame, schema: StructType) -> DataFrame:  # noqa: ARG002
        raise InternalError("INTERNAL", "lines of Parquet are to be rows")

    @property
    def has_task(self) -> bool:
        return True

    def needs_tasks(self, path: Path) -> bool:
        return self.row_groups.are_needed(path)

    def by_task(self, spans: Sequence[Span], spark: SparkSession) -> bool:
        from boatlift.connectors.files.parquet_rows import are_small_and_plain

        return are_small_and_plain(spans, partial(_reads_as_written, spark))

    def rows_by_task(self, source: str, schema: StructType, frame_of: FrameOfTask) -> DataFrame:
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import LongType, StructField, StructType

        from boatlift.connectors.files.parquet_rows import ReadParquet

        position = [StructField(POSITION, LongType(), nullable=False)] if self.positioned else []
        columns = to_arrow_schema(nullable(schema), timezone="UTC")
        read = ReadParquet(source, columns, self.positioned, ordinals=False, tasks=None)
        return frame_of(read, StructType([*nullable(schema).fields, *position]))

    def reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        reader = spark.read.format("parquet").schema(nullable(schema))

        def read(files: Sequence[tuple[Path, int]], ordinals: Sequence[int] = ()) -> DataFrame:
            return with_ordinals(self._with_positions(loaded(reader, files), files), files, ordinals)

        return read

    def _with_positions(self, rows: DataFrame, files: Sequence[tuple[Path, int]]) -> DataFrame:
        """Add `_position`: the file's place in the step, in the upper bits, and the row's index in the file."""
        if not self.positioned:
            return rows
        from boatlift.connectors.files.parquet_rows import PLACE_BITS

        if not any(place for _, place in files):
            return rows.selectExpr("*", "_metadata.row_index AS _position")
        from pyspark.sql import functions as F

        place = by_file(rows.sparkSession, files)
        return rows.select("*", (place * (1 << PLACE_BITS) + F.col("_metadata.row_index")).alias("_position"))

    def explain(
        self,
        spark: SparkSession,  # noqa: ARG002
        path: Path,
        columns: Columns,  # noqa: ARG002
        schema: StructType,  # noqa: ARG002
    ) -> DataError | None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from boatlift.connectors.files.parquet_rows import unreadable

        try:
            for _ in pq.ParquetFile(path).iter_batches():
                pass
        except (pa.ArrowException, OSError) as error:
            return unreadable(path, error)
        return None


def schema_of_file(spark: SparkSession, path: Path) -> StructType:
    """Return the schema of a Parquet file, as Spark infers it.

    Raises:
        DataError: `[BAD_HEADER]` as `columns_of_footer`.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    columns = columns_of_footer(path)
    if RowGroups(positioned=False).are_needed(path):
        return struct_of(", ".join(f"{quoted(name)} {kind}" for name, kind in columns))
    try:
        return spark.read.parquet(spark_path(path)).schema
    except (PySparkException, Py4JJavaError) as error:
        reason = str(error).splitlines()[0]
        raise DataError("BAD_HEADER", f"Spark cannot read {path} ({reason}); correct the file") from error


def columns_of_footer(path: Path) -> Columns:
    """Return the columns of a Parquet file, as Spark would read them.

    Raises:
        DataError: `[BAD_HEADER]` the file is not Parquet, or has a type that Spark does not read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from boatlift.connectors.files.parquet_rows import not_plain, unread_by_spark
    from boatlift.connectors.files.parquet_types import columns_in

    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError("BAD_HEADER", f"{path} is not a whole Parquet file ({error}); correct the file") from error
    try:
        columns = columns_in(footer)
    except TypeError as error:
        message = f"{path}: Spark cannot read column {error}; write it as another type"
        raise DataError("BAD_HEADER", message) from error
    names = [name.lower() for name, _ in columns]
    if not columns or len(set(names)) < len(names):
        what = "two columns of one name, but for the case of letters" if columns else "no columns"
        raise DataError("BAD_HEADER", f"{path} has {what}, which Spark cannot read; correct the file")
    unread = unread_by_spark(footer)
    if unread is not None and (reason := not_plain(footer, as_written=lambda: True)) is not None:
        message = f"{path} has {unread[0]}, and {reason}: both together cannot be read; {unread[1]}"
        raise DataError("BAD_HEADER", message)
    return columns


def _reads_as_written(spark: SparkSession) -> bool:
    """Return whether a session reads dates and times as files have them, also those of unknown writers."""
    modes = (f"spark.sql.parquet.{kind}RebaseModeInRead" for kind in ("datetime", "int96"))
    converts = spark.conf.get("spark.sql.parquet.int96TimestampConversion") == "true"
    return not converts and all(spark.conf.get(mode) == "CORRECTED" for mode in modes)
