"""Rows of whole Parquet files, read by a task by PyArrow: Spark's own reader has the names of files in its plan.

Both read the same rows of files that are *plain*: each column has exactly the declared type, which is no nested one,
and no date or time is of the calendar that Spark before version 3 wrote. `plain_file` says so of a file by its footer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from boatlift.connectors.files.formats import nullable
from boatlift.connectors.files.lines import Span, spans_of_job
from boatlift.connectors.kit import columns_of
from boatlift.dataflow.columns import POSITION
from boatlift.errors import DataError

__all__ = ["PLACE_BITS", "ReadParquet", "arrow_schema", "plain_file", "unreadable"]

PLACE_BITS = 40
"""The `_position` of a row is the place of its file in the step, and in so many lower bits its index in the file."""

_ROWS_AT_ONCE = 1 << 14

_PLAIN = "boolean tinyint smallint int bigint float double string binary decimal date timestamp timestamp_ntz".split()  # noqa: SIM905
_OF_CALENDAR = ("date", "timestamp", "timestamp_ntz")

_WRITTEN_BY = b"org.apache.spark.version"
_OF_INT96 = pa.timestamp("us", "UTC")
"""What 96 bits of a time are to Spark, which writes times so by default."""

_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return declared columns as Spark has them in Arrow."""
    return to_arrow_schema(nullable(schema), timezone="UTC")


def plain_file(path: Path, declared: StructType, *, corrected: bool) -> bool:
    """Return whether PyArrow reads the rows of a file as Spark does.

    Args:
        path: The file.
        declared: The declared columns.
        corrected: Whether the session reads files of unknown calendar as they are.
    """
    columns = columns_of(declared)
    if not all(kind.split("(")[0] in _PLAIN for _, kind in columns):
        return False
    schema = arrow_schema(declared)
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False  # Spark's reader tells what is wrong
    found = footer.schema.to_arrow_schema()
    if sorted(found.names) != sorted(schema.names):
        return False
    old_timestamps = {
        column.path
        for column in map(footer.schema.column, range(len(footer.schema)))
        if column.physical_type == "INT96"
    }
    for field in schema:
        kind = _OF_INT96 if field.name in old_timestamps else found.field(field.name).type
        if not _same(kind, field.type):
            return False
    about = footer.metadata or {}
    if any(kind in _OF_CALENDAR for _, kind in columns):
        version = about.get(_WRITTEN_BY)
        known = corrected if version is None else not version.startswith((b"1.", b"2."))
        return known and not any(key in about for key in _OLD_CALENDAR)
    return True


def _same(found: pa.DataType, declared: pa.DataType) -> bool:
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(declared):
        return found.unit == declared.unit and (found.tz is None) == (declared.tz is None)
    return bool(found == declared)


@dataclass(frozen=True, slots=True)
class ReadParquet:
    """Reads the files that the parameters of its job name.

    Attributes:
        source: The source's name, for errors.
        schema: The declared columns, as an Arrow schema.
        positioned: Whether rows get a `_position`.
    """

    source: str
    schema: pa.Schema
    positioned: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files, for the one row that the job's one partition has."""
        from boatlift.connectors.kit.tasks import guarded

        for batch in batches:
            for _ in range(batch.num_rows):
                rows = self.read(guarded(self.source, spans_of_job))
                while (made := guarded(self.source, lambda: next(rows, None))) is not None:  # noqa: B023
                    yield made

    def read(self, files: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        """Read files, one after the other.

        Raises:
            DataError: `[INPUT_MISSING]` a file is gone; `[BAD_ROW]` it cannot be read.
        """
        for file in files:
            path, index = Path(file.path), 0
            try:
                content = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
                for rows in content.iter_batches(_ROWS_AT_ONCE, columns=self.schema.names, use_threads=False):
                    yield self._declared(rows, (file.ordinal << PLACE_BITS) + index)
                    index += rows.num_rows
            except FileNotFoundError as error:
                raise DataError("INPUT_MISSING", f"{path} is gone, and a step needs it: put it back") from error
            except (pa.ArrowException, OSError) as error:
                raise unreadable(path, error) from error

    def _declared(self, rows: pa.RecordBatch, begin: int) -> pa.RecordBatch:
        columns = [rows.column(field.name).cast(field.type) for field in self.schema]
        made = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if not self.positioned:
            return made
        return made.append_column(POSITION, pa.array(np.arange(begin, begin + len(rows), dtype=np.int64)))


def unreadable(path: Path, error: Exception) -> DataError:
    """Return the error of a file that cannot be read whole."""
    reason = str(error).splitlines()[0]
    return DataError("BAD_ROW", f"{path} cannot be read as Parquet ({reason}); put a whole file in its place")
