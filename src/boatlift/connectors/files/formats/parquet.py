"""Parquet on the driver: footers, ranges of row groups, and Spark's reader.

A range has whole row groups: it begins with one, and ends where the next one begins, or with the file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from boatlift.connectors.files.formats.base import (
    FileFormat,
    ReadFiles,
    by_file,
    difference,
    loaded,
    spark_path,
    with_ordinals,
)
from boatlift.connectors.files.formats.parquet_rows import (
    PLACE_BITS,
    ReadParquet,
    are_small_and_plain,
    begins_of,
    columns_in,
    footer_in,
    metadata_of,
    not_plain,
    refuse_fractions,
    unread_by_spark,
    unreadable,
)
from boatlift.connectors.files.lines import Span, shared_out
from boatlift.connectors.files.ranges import digest_between, footer_of
from boatlift.connectors.kit import Columns, nullable, struct_of
from boatlift.connectors.kit.object_place import InputFile, arrow_source
from boatlift.dataflow.columns import ORDINAL, POSITION, quoted
from boatlift.dataflow.contracts import FrameOfTask, Json
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class ParquetFormat(FileFormat):
    """Columnar files; the footer's columns must be the declared ones, in any order."""

    positioned: bool
    has_task = True

    def describe(self) -> Json:
        return {}

    def check_file(self, path: InputFile, columns: Columns) -> None:
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

    def whole_because(self, path: InputFile) -> str | None:
        footer = footer_in(path)
        # Only PyArrow reads ranges, so times of unknown writers count as they are.
        if (reason := not_plain(footer, as_written=lambda: True)) is not None:
            return reason
        assert footer is not None, "a whole Parquet file has one"
        begins = begins_of(footer)
        if len(begins) < 2:
            return "it has one row group"
        return None if begins == sorted(set(begins)) else "its row groups are in no order"

    def rows_begin(self, path: InputFile) -> int:
        return begins_of(metadata_of(path))[0]

    def next_range(self, path: Path, begin: int, most: int) -> dict[str, Any] | None:
        before = path.stat()
        end = self.range_end(path, begin, most)
        found = {"begin": begin, "end": end, "of": before.st_size, "digest": digest_between(path, begin, end)}
        found["footer"] = footer_of(path)
        after = path.stat()
        same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        return found if same else None

    def range_end(self, path: InputFile, begin: int, most: int) -> int:
        begins = begins_of(metadata_of(path))
        ends = [*begins[1:], path.stat().st_size]  # bytes between row groups belong to the first
        at = max(bisect_right(ends, begin + most) - 1, bisect_right(ends, begin))
        return ends[min(at, len(ends) - 1)]

    def refuse_unread_by_tasks(self, path: InputFile) -> None:
        if (reason := not_plain(metadata_of(path), as_written=lambda: True, nested=True)) is not None:
            message = f"{path}: {reason}, and tasks cannot read such a file from a bucket: write it as another type"
            raise InvalidError("TYPE_REFUSED", message)

    def needs_tasks(self, path: InputFile) -> bool:
        footer = footer_in(path)
        return footer is not None and unread_by_spark(footer) is not None

    def by_task(self, spans: Sequence[Span], spark: SparkSession) -> bool:
        return are_small_and_plain(spans, partial(_reads_as_written, spark))

    def rows_by_task(self, source: str, schema: StructType, frame_of: FrameOfTask) -> DataFrame:
        return frame_of(*self._task(source, schema))

    def rows_of_ranges(self, spark: SparkSession, source: str, ranges: Sequence[Span], schema: StructType) -> DataFrame:
        tasks = _divided(ranges, spark.sparkContext.defaultParallelism)
        return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(*self._task(source, schema, tasks))

    def _task(
        self, source: str, schema: StructType, tasks: tuple[tuple[Span, ...], ...] | None = None
    ) -> tuple[ReadParquet, StructType]:
        """Return the function of tasks that read row groups, and the columns of their rows.

        Rows have `_ordinal`, unless the job's parameters name the spans: these are of one step.
        """
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import IntegerType, LongType

        made = nullable(schema)
        columns = to_arrow_schema(made, timezone="UTC")
        if self.positioned:
            made = made.add(POSITION, LongType(), nullable=False)
        if tasks is not None:
            made = made.add(ORDINAL, IntegerType())
        return ReadParquet(source, columns, self.positioned, ordinals=tasks is not None, tasks=tasks), made

    def reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        from pyspark.sql import functions as F

        reader = spark.read.format("parquet").schema(nullable(schema))

        def read(files: Sequence[Span], *, ordinals: bool) -> DataFrame:
            rows = loaded(reader, [each.path for each in files])
            if self.positioned:
                # The file's place in the step, in the upper bits, and the row's index in the file.
                index = F.col("_metadata.row_index")
                if any(each.place for each in files):
                    index = by_file(spark, [(each.path, each.place) for each in files]) * (1 << PLACE_BITS) + index
                rows = rows.select("*", index.alias("_position"))
            return with_ordinals(rows, files, ordinals=ordinals)

        return read

    def explain(self, spark: SparkSession, path: InputFile, columns: Columns, schema: StructType) -> DataError | None:
        del spark, columns, schema
        try:
            for _ in pq.ParquetFile(arrow_source(path)).iter_batches():
                pass
        except (pa.ArrowException, OSError) as error:
            return unreadable(path, error)
        return None


def _divided(ranges: Sequence[Span], tasks: int) -> tuple[tuple[Span, ...], ...]:
    """Divide row groups among tasks, in order, by their bytes."""
    parts: list[tuple[Span, int]] = []
    for each in ranges:
        metadata = metadata_of(each.input)
        begins = begins_of(metadata)
        sizes = [metadata.row_group(number).total_byte_size for number in range(len(begins))]
        if begins != sorted(set(begins)):  # such a file is taken whole
            parts.append((each._replace(begin=0, end=None), sum(sizes)))
            continue
        for begin, size in zip(begins, sizes, strict=True):
            if each.begin <= begin and (each.end is None or begin < each.end):
                parts.append((each._replace(begin=begin, end=begin + 1), size))
    return shared_out(parts, tasks)


def schema_of_file(spark: SparkSession, path: InputFile) -> StructType:
    """Return the schema of a Parquet file, as Spark infers it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    columns = columns_of_footer(path)
    if not isinstance(path, Path) or ParquetFormat(positioned=False).needs_tasks(path):
        return struct_of(", ".join(f"{quoted(name)} {kind}" for name, kind in columns))
    try:
        return spark.read.parquet(spark_path(str(path))).schema
    except (PySparkException, Py4JJavaError) as error:
        reason = str(error).splitlines()[0]
        raise DataError("BAD_HEADER", f"Spark cannot read {path} ({reason}); correct the file") from error


def columns_of_footer(path: InputFile) -> Columns:
    """Return the columns of a Parquet file, as Spark would read them."""
    try:
        footer = metadata_of(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError("BAD_HEADER", f"{path} is not a whole Parquet file ({error}); correct the file") from error
    try:
        columns = columns_in(footer)
    except TypeError as error:
        message = f"{path} has column {error}, which cannot be read; write it as another type"
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
    """Return whether a session reads dates and times unchanged, also from files of unknown writers."""
    modes = (f"spark.sql.parquet.{kind}RebaseModeInRead" for kind in ("datetime", "int96"))
    converts = spark.conf.get("spark.sql.parquet.int96TimestampConversion") == "true"
    return not converts and all(spark.conf.get(mode) == "CORRECTED" for mode in modes)
