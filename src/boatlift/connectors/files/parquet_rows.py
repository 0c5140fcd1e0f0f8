"""Rows of Parquet files, or of some row groups, read by tasks by PyArrow.

Spark's own reader has the names of files in its plan, and takes no list of row groups. Both read the same rows of files
that are *plain*: each column has a type of which Arrow and Spark read the same values, and no date or time is of the
calendar that Spark before version 3 wrote. `not_plain` says so of a file by its footer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from boatlift.connectors.files.lines import Span, rows_of_spans
from boatlift.dataflow.columns import ORDINAL, POSITION
from boatlift.errors import DataError

__all__ = ["PLACE_BITS", "ReadParquet", "are_small_and_plain", "begins_of", "footer_in", "not_plain", "unreadable"]

PLACE_BITS = 40
"""The `_position` of a row is the place of its file in the step, and in so many lower bits its index in the file."""

_ROWS_AT_ONCE = 1 << 14

_MOST_ROWS, _MOST_BYTES = 1 << 17, 4 << 20
"""A task that stands beside Spark's own reader reads so many rows and bytes, as they are without compression."""

_WRITTEN_BY = b"org.apache.spark.version"
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def are_small_and_plain(spans: Sequence[Span], as_written: Callable[[], bool]) -> bool:
    """Return whether one task can read files and ranges of row groups by PyArrow, and is done with them soon.

    Args:
        spans: The files, and ranges of files that are plain.
        as_written: See `not_plain`.
    """
    rows = size = 0
    for span in spans:
        footer = footer_in(Path(span.path))
        if footer is None or (span.end is None and not_plain(footer, as_written) is not None):
            return False
        groups = [footer.row_group(number) for number in _groups_of(footer, span)[0]]
        rows += sum(group.num_rows for group in groups)
        size += sum(group.total_byte_size for group in groups)
    return rows <= _MOST_ROWS and size <= _MOST_BYTES


def footer_in(path: Path) -> pq.FileMetaData | None:
    """Return the footer of a file; None if it is no whole Parquet file, or cannot be read."""
    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return None


def not_plain(footer: pq.FileMetaData | None, as_written: Callable[[], bool]) -> str | None:
    """Return the reason why PyArrow may read other rows of a file than Spark does; None if it reads the same.

    Args:
        footer: That of the file, whose columns are the declared ones; see `footer_in`.
        as_written: Tells whether the session reads dates and times as files have them, also those of unknown writers.
            It is asked only if the file has such columns.
    """
    if footer is None:
        return "it is not a whole Parquet file"
    leaves = map(footer.schema.column, range(len(footer.schema)))
    instants = {column.path for column in leaves if column.physical_type == "INT96"}
    of_calendar = bool(instants)
    for field in footer.schema.to_arrow_schema():
        if field.name not in instants and not _is_read_alike(field.type):
            return f"column {field.name} has the type {field.type}"
        of_calendar |= types.is_timestamp(field.type) or types.is_date(field.type)
    about = footer.metadata or {}
    version = about.get(_WRITTEN_BY)
    # Spark 3.0 wrote times of 96 bits by the old calendar, without saying so.
    old = (b"1.", b"2.", b"3.0.") if instants else (b"1.", b"2.")
    is_old = any(key in about for key in _OLD_CALENDAR) or (version is not None and version.startswith(old))
    if of_calendar and (is_old or not as_written()):
        return "its dates and times may be of an old calendar"
    return None


def _is_read_alike(kind: pa.DataType) -> bool:
    """Return whether Spark and Arrow read the same values of a type."""
    if types.is_timestamp(kind):
        return kind.unit in ("ms", "us")
    tests = (
        types.is_boolean, types.is_integer, types.is_float32, types.is_float64, types.is_string, types.is_large_string,
        types.is_binary, types.is_large_binary, types.is_date32, types.is_decimal128,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def begins_of(metadata: pq.FileMetaData) -> list[int]:
    """Return where the row groups of a file begin."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return [min(map(_begins, map(group.column, range(group.num_columns)))) for group in groups]


def _begins(chunk: Any) -> int:
    return min(int(place) for place in (chunk.dictionary_page_offset, chunk.data_page_offset) if place)


@dataclass(frozen=True, slots=True)
class ReadParquet:
    """Reads the spans of each task whose number it gets: of each file the row groups that begin in the span.

    Attributes:
        source: The source's name, for errors.
        columns: The declared columns, as Spark has them in Arrow.
        positioned: Whether rows get a `_position`.
        ordinals: Whether rows get the `_ordinal` of their span.
        tasks: The spans of each task; None: the job's parameters name them.
    """

    source: str
    columns: pa.Schema
    positioned: bool
    ordinals: bool
    tasks: tuple[tuple[Span, ...], ...] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the spans."""
        return rows_of_spans(batches, self.source, self.tasks, self.read)

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Read the row groups of a span.

        Raises:
            DataError: `[INPUT_MISSING]` the file is gone, `[INPUT_CHANGED]` it has other columns, `[BAD_ROW]` it cannot
                be read.
        """
        try:
            with pq.ParquetFile(span.path, coerce_int96_timestamp_unit="us") as file:
                groups, index = _groups_of(file.metadata, span)
                names = self.columns.names
                if missing := sorted(set(names) - set(file.schema_arrow.names)):
                    message = f"{span.path} lacks {missing}, which it had when it was taken: put the original back"
                    raise DataError("INPUT_CHANGED", message)
                for rows in file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=names, use_threads=False):
                    yield self._made(rows, span, (span.place << PLACE_BITS) + index)
                    index += rows.num_rows
        except FileNotFoundError as error:
            raise DataError("INPUT_MISSING", f"{span.path} is gone, and a step needs it: put it back") from error
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the file itself cannot be read
                raise
            raise unreadable(Path(span.path), error) from error

    def _made(self, rows: pa.RecordBatch, span: Span, begin: int) -> pa.RecordBatch:
        columns = [rows.column(field.name).cast(field.type) for field in self.columns]
        made = pa.RecordBatch.from_arrays(columns, schema=self.columns)
        if self.positioned:
            made = made.append_column(POSITION, pa.array(np.arange(begin, begin + len(rows), dtype=np.int64)))
        if self.ordinals:
            made = made.append_column(ORDINAL, pa.repeat(pa.scalar(span.ordinal, pa.int32()), len(rows)))
        return made


def _groups_of(metadata: pq.FileMetaData, span: Span) -> tuple[list[int], int]:
    """Return the row groups of a span, which follow one another, and the index of the first row in its file."""
    every = list(range(metadata.num_row_groups))
    if span.end is None and not span.begin:
        return every, 0
    begins = begins_of(metadata)
    last = begins[-1] + 1 if span.end is None else span.end
    groups = [number for number in every if span.begin <= begins[number] < last]
    return groups, sum(metadata.row_group(number).num_rows for number in every if begins[number] < span.begin)


def unreadable(path: Path, error: Exception) -> DataError:
    """Return the error of a file that is damaged inside."""
    reason = str(error).splitlines()[0]
    return DataError("BAD_ROW", f"{path} cannot be read as Parquet ({reason}); put a whole file in its place")
