"""Rows of Parquet files, or of some row groups, read by PyArrow in tasks.

Spark's own reader has the names of files in its plan, and accepts no list of row groups. Both readers return the same
rows of *plain* files. In a plain file Arrow and Spark read the same values of each column's type, and no date or time
is of the calendar that Spark before version 3 wrote. `not_plain` decides by the footer of a file.
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

from boatlift.connectors.files.formats.parquet_types import (
    MICROSECONDS,
    Times96,
    fields_of,
    first_fraction,
    has_nanoseconds,
    leaves_of,
    too_fine,
)
from boatlift.connectors.files.lines import Span, rows_of_spans
from boatlift.dataflow.columns import ORDINAL, POSITION
from boatlift.errors import DataError

PLACE_BITS = 40
"""The lower bits of `_position`, with a row's index in its file; the upper bits are the file's place in the step."""

_ROWS_AT_ONCE = 1 << 14

_MOST_ROWS, _MOST_BYTES = 1 << 17, 4 << 20
"""The most rows, and bytes without compression, for which one task replaces Spark's own reader."""

_WRITTEN_BY = b"org.apache.spark.version"
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")

_KNOWN = {"NONE", "STRING", "ENUM", "JSON", "BSON", "INT", "DECIMAL", "DATE", "TIMESTAMP"}
"""The logical types of which Arrow and Spark read the same values, if they do of the physical type."""


def are_small_and_plain(spans: Sequence[Span], as_written: Callable[[], bool]) -> bool:
    """Return whether one task can read files and ranges of row groups quickly, by PyArrow.

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
    """Return the footer of a file; None if the file is no whole Parquet file, or cannot be read."""
    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return None


def not_plain(footer: pq.FileMetaData | None, as_written: Callable[[], bool]) -> str | None:
    """Return the reason why PyArrow may read other rows of a file than Spark does; None if it reads the same.

    Args:
        footer: The footer of the file, whose columns are the declared ones.
        as_written: Returns whether the session reads dates and times unchanged, also from files of unknown writers.
            Called only if the file has such columns.
    """
    if footer is None:
        return "it is not a whole Parquet file"
    of_calendar = of_96_bits = False
    for field, leaves in fields_of(footer):
        if not _is_read_alike(field.type, leaves[0]):
            return f"column {field.name} has the type {field.type}"
        of_calendar |= types.is_timestamp(field.type) or types.is_date(field.type)
        of_96_bits |= leaves[0].physical_type == "INT96"
    about = footer.metadata or {}
    version = about.get(_WRITTEN_BY)
    # Spark 3.0 wrote times of 96 bits by the old calendar, without saying so.
    old = (b"1.", b"2.", b"3.0.") if of_96_bits else (b"1.", b"2.")
    is_old = any(key in about for key in _OLD_CALENDAR) or (version is not None and version.startswith(old))
    if of_calendar and (is_old or not as_written()):
        return "its dates and times may be of an old calendar"
    return None


def _is_read_alike(kind: pa.DataType, leaf: Any) -> bool:
    """Return whether Spark and Arrow read the same values of a column, or Arrow reads its nanoseconds.

    Arrow reads columns of some logical types as plain bytes.
    """
    if leaf.logical_type.type not in _KNOWN:
        return False
    tests = (
        types.is_boolean, types.is_integer, types.is_float32, types.is_float64, types.is_string, types.is_large_string,
        types.is_binary, types.is_large_binary, types.is_date32, types.is_decimal128, types.is_timestamp,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def unread_by_spark(footer: pq.FileMetaData) -> tuple[str, str] | None:
    """Return the property of a file that Arrow supports and Spark does not, and a remedy; None if it has none."""
    for field, leaves in fields_of(footer):
        if any(map(has_nanoseconds, leaves)):
            return f"nanoseconds in column {field.name}", MICROSECONDS
    groups = map(footer.row_group, range(footer.num_row_groups))
    codecs = {group.column(number).compression for group in groups for number in range(group.num_columns)}
    return ("the compression BROTLI", "compress it with ZSTD") if "BROTLI" in codecs else None


def begins_of(metadata: pq.FileMetaData) -> list[int]:
    """Return where the row groups of a file begin."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return [min(map(_begins, map(group.column, range(group.num_columns)))) for group in groups]


def _begins(chunk: Any) -> int:
    return min(int(place) for place in (chunk.dictionary_page_offset, chunk.data_page_offset) if place)


@dataclass(frozen=True, slots=True)
class ReadParquet:
    """Reads the spans of each task whose number it gets: the row groups that begin in them.

    Attributes:
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
                wide = [leaf.path for leaf in leaves_of(file.metadata) if leaf.physical_type == "INT96"]
                of_96_bits = Times96(span.path, groups, wide, _ROWS_AT_ONCE)
                every = file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=names, use_threads=False)
                for number, rows in enumerate(every):
                    whole = of_96_bits.as_spark_has_them(number, rows) if wide else rows
                    yield self._made(whole, span, (span.place << PLACE_BITS) + index)
                    index += rows.num_rows
        except FileNotFoundError as error:
            raise DataError("INPUT_MISSING", f"{span.path} is gone, and a step needs it: put it back") from error
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the file itself cannot be read
                raise
            raise unreadable(Path(span.path), error) from error

    def _made(self, rows: pa.RecordBatch, span: Span, begin: int) -> pa.RecordBatch:
        columns = [_cast(rows.column(field.name), field, span, begin) for field in self.columns]
        made = pa.RecordBatch.from_arrays(columns, schema=self.columns)
        if self.positioned:
            made = made.append_column(POSITION, pa.array(np.arange(begin, begin + len(rows), dtype=np.int64)))
        if self.ordinals:
            made = made.append_column(ORDINAL, pa.repeat(pa.scalar(span.ordinal, pa.int32()), len(rows)))
        return made


def _cast(values: pa.Array, field: pa.Field, span: Span, begin: int) -> pa.Array:
    """Return values in the declared type.

    Raises:
        DataError: `[BAD_ROW]` a time has a fraction below a microsecond.
    """
    in_nanoseconds = types.is_timestamp(values.type) and values.type.unit == "ns"
    if in_nanoseconds and (index := first_fraction(values)) is not None:
        raise too_fine(span.path, (begin & ((1 << PLACE_BITS) - 1)) + index, field.name)
    return values.cast(field.type)


def _groups_of(metadata: pq.FileMetaData, span: Span) -> tuple[list[int], int]:
    """Return the row groups of a span, which are consecutive, and the index of their first row in the file."""
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
