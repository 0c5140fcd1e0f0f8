"""Row groups of a large Parquet file, taken over several steps.

A range has whole row groups: it begins with one, and ends where the next one begins, or with the file. Spark's own
reader takes no list of row groups, so tasks read them by Arrow. Only columns of types that both read alike are read so.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from boatlift.connectors.files.ranges import FileRange, digest_between
from boatlift.dataflow.columns import ORDINAL
from boatlift.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["PlacedRange", "RowGroups", "begins_of", "footer_of", "unreadable", "whole_because"]

_TAIL = 8
"""At its end a file has the length of its footer, and `PAR1`."""

_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys of files whose dates Spark reads by another calendar."""


class PlacedRange(NamedTuple):
    """A range of a file that steps take.

    Attributes:
        path: The file.
        range: Its name within the source, and the bytes.
        place: The file's place in its step.
        ordinal: The index of the step.
    """

    path: Path
    range: FileRange
    place: int
    ordinal: int


def footer_of(path: Path) -> str:
    """Return the digest of a file's footer, which says where all rows are.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _TAIL))
        length = int.from_bytes(file.read(4), "little")
    return digest_between(path, max(0, size - _TAIL - length), size)


def begins_of(metadata: pq.FileMetaData) -> list[int]:
    """Return where the row groups of a file begin."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return [min(map(_begins, map(group.column, range(group.num_columns)))) for group in groups]


def _begins(chunk: Any) -> int:
    return min(int(place) for place in (chunk.dictionary_page_offset, chunk.data_page_offset) if place)


def whole_because(path: Path) -> str | None:
    """Return the reason why a file is taken whole; None if it can be taken in ranges of row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
            columns = [file.schema.column(number) for number in range(len(file.schema))]
    except pa.ArrowException:
        return "it is not a whole Parquet file"
    begins = begins_of(metadata)
    if len(begins) < 2:
        return "it has one row group"
    if begins != sorted(set(begins)):
        return "its row groups are in no order"
    if any(key in (metadata.metadata or {}) for key in _LEGACY):
        return "its dates and times are of an old calendar"
    instants = {column.path for column in columns if column.physical_type == "INT96"}
    strange = next((field for field in schema if field.name not in instants and not _is_read_alike(field.type)), None)
    return None if strange is None else f"column {strange.name} has the type {strange.type}"


def _is_read_alike(kind: pa.DataType) -> bool:
    """Return whether Spark and Arrow read the same values of a type."""
    import pyarrow.types as types

    if types.is_timestamp(kind):
        return kind.unit in ("ms", "us")
    tests = (
        types.is_boolean, types.is_integer, types.is_float32, types.is_float64, types.is_string, types.is_large_string,
        types.is_binary, types.is_large_binary, types.is_date32, types.is_decimal128,
    )  # fmt: skip
    return any(test(kind) for test in tests)


class _Part(NamedTuple):
    """Some row groups of a file, for a task.

    Attributes:
        path: The file.
        groups: The first row group, and the one after the last.
        position: The position of the first row.
        ordinal: The index of the step.
    """

    path: str
    groups: tuple[int, int]
    position: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The row groups of files of Parquet.

    Attributes:
        positioned: Whether rows get a `_position`.
    """

    positioned: bool

    def next_range(self, path: Path, begin: int, most: int) -> dict[str, Any] | None:
        """Return the next range of a file: as many row groups as have so many bytes together, and one at least.

        Returns:
            The bytes with their digest, the size of the file, and the digest of its footer; None if a process wrote to
            the file meanwhile.

        Raises:
            OSError: the file cannot be read.
        """
        import pyarrow.parquet as pq

        before = path.stat()
        size = before.st_size
        ends = [*begins_of(pq.read_metadata(path))[1:], size]  # bytes behind a row group are the one's before
        at = max(bisect_right(ends, begin + most) - 1, bisect_right(ends, begin))
        end = ends[min(at, len(ends) - 1)]
        found = {"begin": begin, "end": end, "of": size, "digest": digest_between(path, begin, end)}
        found["footer"] = footer_of(path)
        after = path.stat()
        same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        return found if same else None

    def rows(self, spark: SparkSession, source: str, ranges: Sequence[PlacedRange], schema: StructType) -> DataFrame:
        """Return the rows of ranges, each beside its `_ordinal`: as Spark's reader gives them.

        Args:
            spark: The session.
            source: The source's name, for errors.
            ranges: The ranges.
            schema: The columns, all of which may be NULL.
        """
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import IntegerType, LongType, StructType

        made = StructType([*schema.fields])
        if self.positioned:
            made = made.add("_position", LongType(), nullable=False)
        made = made.add(ORDINAL, IntegerType())
        tasks = self._divided(ranges, spark.sparkContext.defaultParallelism)
        read = ReadRowGroups(source, to_arrow_schema(made, timezone="UTC"), len(schema.fields), tasks)
        return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, made)

    @staticmethod
    def _divided(ranges: Sequence[PlacedRange], tasks: int) -> list[list[_Part]]:
        """Divide row groups among tasks, in order, by their bytes."""
        import pyarrow.parquet as pq

        parts: list[tuple[_Part, int]] = []
        for path, taken, place, ordinal in ranges:
            metadata = pq.read_metadata(path)
            row = place << 40
            for number, begin in enumerate(begins_of(metadata)):
                group = metadata.row_group(number)
                if taken.begin <= begin < taken.end:
                    part = _Part(str(path), (number, number + 1), row, ordinal)
                    parts.append((part, group.total_byte_size))
                row += group.num_rows
        total = sum(size for _, size in parts)
        made = [list[_Part]() for _ in range(max(1, tasks))]
        before = 0
        for part, size in parts:
            made[min(before * len(made) // max(1, total), len(made) - 1)].append(part)
            before += size
        return [each for each in made if each]


@dataclass(frozen=True, slots=True)
class ReadRowGroups:
    """Reads the row groups of each task whose number it gets.

    Attributes:
        source: The source's name, for errors.
        schema: The schema of the rows.
        columns: How many of its fields are columns of files.
        tasks: The row groups of each task.
    """

    source: str
    schema: pa.Schema
    columns: int
    tasks: list[list[_Part]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the row groups."""
        from boatlift.connectors.kit.tasks import guarded

        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in self.tasks[number]:
                    rows = self.read(part)
                    while (made := guarded(self.source, lambda: next(rows, None))) is not None:  # noqa: B023
                        yield made

    def read(self, part: _Part) -> Iterator[pa.RecordBatch]:
        """Read some row groups.

        Raises:
            DataError: `[BAD_ROW]` the file cannot be read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        position = part.position
        try:
            with pq.ParquetFile(part.path, coerce_int96_timestamp_unit="us") as file:
                for rows in file.iter_batches(row_groups=range(*part.groups)):
                    made = [self._cast(rows.column(field.name), field.type) for field in self._read_fields]
                    for field in list(self.schema)[self.columns :]:
                        if field.name == ORDINAL:
                            made.append(pa.repeat(pa.scalar(part.ordinal, field.type), len(rows)))
                        else:
                            made.append(pa.array(range(position, position + len(rows)), field.type))
                    position += len(rows)
                    yield pa.record_batch(made, schema=self.schema)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the file itself cannot be read
                raise
            raise unreadable(Path(part.path), error) from error

    @property
    def _read_fields(self) -> list[pa.Field]:
        return list(self.schema)[: self.columns]

    @staticmethod
    def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
        return column if column.type == kind else column.cast(kind)


def unreadable(path: Path, error: Exception) -> DataError:
    """Return the error of a file of Parquet that is damaged inside."""
    reason = str(error).splitlines()[0]
    return DataError("BAD_ROW", f"{path} cannot be read as Parquet ({reason}); put a whole file in its place")
