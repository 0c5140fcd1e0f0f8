"""Ranges of files as lines in Spark's tasks. Importing it imports PyArrow.

Spark's own readers take whole files. Here a task reads bytes, and Spark's functions make rows of the lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from boatlift.connectors.files.ranges import FileRange
from boatlift.connectors.kit.tasks import guarded
from boatlift.dataflow.columns import ORDINAL
from boatlift.errors import DataError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ReadLines", "lines_of"]

_LEAST_PART = 4 << 20
"""The bytes below which a range is not divided among tasks, as Spark counts them for opening a file."""
_CHUNK = 1 << 20


def lines_of(spark: SparkSession, ranges: Sequence[tuple[Path, FileRange, int]]) -> DataFrame:
    """Return the lines of ranges: `value` (binary, without the line's end) and `_ordinal` (int).

    Args:
        spark: The session.
        ranges: Each with the file's path, and the number that is its lines' ordinal.
    """
    whole = sum(each.end - each.begin for _, each, _ in ranges)
    part = max(_LEAST_PART, -(-whole // spark.sparkContext.defaultParallelism))
    parts = [
        (str(path), begin, min(begin + part, each.end), begin == each.begin, ordinal)
        for path, each, ordinal in ranges
        for begin in range(each.begin, each.end, part)
    ]
    frame = spark.createDataFrame(parts, "path STRING, begin LONG, end LONG, first BOOLEAN, ordinal INT")
    return frame.mapInArrow(ReadLines(), f"value BINARY, {ORDINAL} INT")


class ReadLines:
    """Reads the lines that begin in each part of a range."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the parts."""
        for batch in batches:
            for path, begin, end, first, ordinal in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                chunks = _chunks(path, begin, end, first=first)
                while (chunk := guarded(path, partial(next, chunks, None))) is not None:
                    lines = pa.array(_lines(chunk), pa.binary())
                    ordinals = pa.array([ordinal] * len(lines), pa.int32())
                    yield pa.RecordBatch.from_arrays([lines, ordinals], ["value", ORDINAL])


def _chunks(path: str, begin: int, end: int, *, first: bool) -> Iterator[bytes]:
    """Yield the bytes of the lines that begin in a part, some whole lines at a time.

    Raises:
        DataError: `[INPUT_MISSING]` the file is gone.
        UnavailableError: `[INPUT_UNAVAILABLE]` it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            file.seek(begin if first else begin - 1)
            if not first:
                file.readline()  # the rest of a line that begins before
            while (place := file.tell()) < end and (chunk := file.read(min(_CHUNK, end - place))):
                yield chunk if chunk.endswith(b"\n") else chunk + file.readline()
    except FileNotFoundError as error:
        raise DataError("INPUT_MISSING", f"{path} is gone, and a recorded step needs it again: put it back") from error
    except OSError as error:
        raise UnavailableError(
            "INPUT_UNAVAILABLE", f"{path} cannot be read ({error}): run again when it can"
        ) from error


def _lines(chunk: bytes) -> list[bytes]:
    """Split lines as Spark does: at a line feed, a carriage return, or both."""
    if b"\r" in chunk:
        chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = chunk.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines
