"""Row groups of a large Parquet file, taken over several steps.

A range has whole row groups: it begins with one, and ends where the next one begins, or with the file.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from boatlift.connectors.files.lines import Span
from boatlift.connectors.files.ranges import FileRange, digest_between
from boatlift.dataflow.columns import ORDINAL, POSITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TAIL = 8
"""At its end a file has the length of its footer, and `PAR1`."""


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


def whole_because(path: Path) -> str | None:
    """Return the reason why a file is taken whole; None if it can be taken in ranges of row groups."""
    from boatlift.connectors.files.parquet_rows import begins_of, footer_in, not_plain

    footer = footer_in(path)
    # A range has no other reader: so times of files of unknown calendar count as they are.
    if (reason := not_plain(footer, as_written=lambda: True)) is not None:
        return reason
    assert footer is not None, "a whole Parquet file has one"
    begins = begins_of(footer)
    if len(begins) < 2:
        return "it has one row group"
    return None if begins == sorted(set(begins)) else "its row groups are in no order"


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The row groups of files of Parquet.

    Attributes:
        positioned: Whether rows get a `_position`.
    """

    positioned: bool

    def are_needed(self, path: Path) -> bool:
        """Return whether tasks have to read the row groups of a whole file, because Spark's own reader cannot."""
        from boatlift.connectors.files.parquet_rows import footer_in, unread_by_spark

        footer = footer_in(path)
        return footer is not None and unread_by_spark(footer) is not None

    def next_range(self, path: Path, begin: int, most: int) -> dict[str, Any] | None:
        """Return the next range of a file: as many row groups as have so many bytes together, and one at least.

        Returns:
            The bytes with their digest, the size of the file, and the digest of its footer; None if a process wrote to
            the file meanwhile.

        Raises:
            OSError: the file cannot be read.
        """
        import pyarrow.parquet as pq

        from boatlift.connectors.files.parquet_rows import begins_of

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

        from boatlift.connectors.files.parquet_rows import ReadParquet

        made = StructType([*schema.fields])
        if self.positioned:
            made = made.add(POSITION, LongType(), nullable=False)
        made = made.add(ORDINAL, IntegerType())
        tasks = self._divided(ranges, spark.sparkContext.defaultParallelism)
        columns = to_arrow_schema(schema, timezone="UTC")
        read = ReadParquet(source, columns, self.positioned, ordinals=True, tasks=tasks)
        return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, made)

    @staticmethod
    def _divided(ranges: Sequence[PlacedRange], tasks: int) -> tuple[tuple[Span, ...], ...]:
        """Divide row groups among tasks, in order, by their bytes."""
        import pyarrow.parquet as pq

        from boatlift.connectors.files.parquet_rows import begins_of

        parts: list[tuple[Span, int]] = []
        for path, taken, place, ordinal in ranges:
            metadata = pq.read_metadata(path)
            begins = begins_of(metadata)
            if begins != sorted(set(begins)):  # such a file is taken whole
                size = sum(metadata.row_group(number).total_byte_size for number in range(len(begins)))
                parts.append((Span(str(path), taken.path, 0, None, ordinal, place=place), size))
                continue
            for number, begin in enumerate(begins):
                if taken.begin <= begin < taken.end:
                    span = Span(str(path), taken.path, begin, begin + 1, ordinal, place=place)
                    parts.append((span, metadata.row_group(number).total_byte_size))
        total = sum(size for _, size in parts)
        made = [list[Span]() for _ in range(max(1, tasks))]
        before = 0
        for part, size in parts:
            made[min(before * len(made) // max(1, total), len(made) - 1)].append(part)
            before += size
        return tuple(tuple(each) for each in made if each)
