"""Times in Parquet that are finer or further away than those of Spark: nanoseconds, and times of 96 bits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from boatlift.connectors.files.parquet_types import leaves_of
from boatlift.errors import DataError

MICROSECONDS = (
    "write its times in microseconds (pandas: coerce_timestamps='us', and allow_truncated_timestamps=True to cut them)"
)
"""What to do about finer times, in words."""

_DAY = 86_400_000
_FAR_MILLIS = (2**31 - 2_440_588) * _DAY
"""The day 0 of a time of 96 bits is 2,440,588 days before 1970."""
_TURN_MICROS = 2**32 * _DAY * 1000
_ROWS_AT_ONCE = 1 << 14
_WRITTEN_BY_SPARK = b"org.apache.spark.version"


def refuse_fractions(path: Path) -> None:
    """Raise if a file has times of 96 bits with a fraction below a microsecond, which Spark would cut.

    Spark itself writes none. Both numbers that are compared here may have run over, and both by the same: so their
    difference is right.

    Raises:
        DataError: `[BAD_ROW]`.
    """
    footer = pq.read_metadata(path)
    paths = [leaf.path for leaf in leaves_of(footer) if leaf.physical_type == "INT96"]
    if not paths or _WRITTEN_BY_SPARK in (footer.metadata or {}):
        return
    files = [pq.ParquetFile(path, coerce_int96_timestamp_unit=unit) for unit in ("us", "ns")]
    row = 0
    for micros, nanos in zip(*(file.iter_batches(_ROWS_AT_ONCE, columns=paths) for file in files), strict=True):
        for name in micros.schema.names:
            nested = types.is_nested(micros.column(name).type)
            for one, other in zip(*(_instants(rows.column(name)) for rows in (micros, nanos)), strict=True):
                if (fractions := _numbers(other) - _numbers(one) * 1000).any():
                    raise too_fine(path, None if nested else row + int(fractions.argmax()), name)
        row += len(micros)


def _instants(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of times of which an array is made."""
    if types.is_timestamp(values.type):
        yield values
    elif types.is_struct(values.type):
        for inner in values.flatten():
            yield from _instants(inner)
    elif types.is_map(values.type):
        yield from _instants(values.keys)
        yield from _instants(values.items)
    else:
        yield from _instants(values.values)


def _numbers(times: pa.Array) -> np.ndarray:
    numbers: np.ndarray = times.view(pa.int64()).fill_null(0).to_numpy()
    return numbers


def first_fraction(times: pa.Array) -> int | None:
    """Return the index of the first time in nanoseconds that is not one in microseconds; None if all are."""
    fractions = _numbers(times) % 1000
    return int((fractions != 0).argmax()) if fractions.any() else None


def too_fine(path: str | Path, row: int | None, name: str) -> DataError:
    """Return the error of a time with a fraction below a microsecond, in a row if it is known."""
    place = "" if row is None else f"row {row + 1}: "
    what = f"column {name} has a time with a fraction below a microsecond, which no TIMESTAMP holds"
    return DataError("BAD_ROW", f"{path}: {place}{what}; {MICROSECONDS}, under a new name")


class Times96:
    """The columns of times of 96 bits of some row groups: a day in 32 bits and nanoseconds in 64, both with a sign.

    Arrow passes over both signs. Spark writes negative ones for days before the year -4712.

    Args:
        path, groups, names: The file, its row groups, and the columns.
        rows: How many rows a batch has.
    """

    def __init__(self, path: str, groups: list[int], names: list[str], rows: int) -> None:
        self._path, self._groups, self._names, self._rows = path, groups, names, rows
        self._millis = self._read("ms") if names else iter(())

    def _read(self, unit: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self._path, coerce_int96_timestamp_unit=unit) as file:
            options = {"row_groups": self._groups, "columns": self._names, "use_threads": False}
            yield from file.iter_batches(self._rows, **options)

    def as_spark_has_them(self, number: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the next batch of rows, that of a number, which Arrow has read in microseconds."""
        millis = next(self._millis)  # these do not run over
        for name in self._names:
            far = _numbers(millis.column(name)) >= _FAR_MILLIS
            if not far.any():
                continue
            nanos = next(islice(self._read("ns"), number, None))
            at = rows.schema.get_field_index(name)
            values = rows.column(at)
            micros = _numbers(values)
            below = (_numbers(nanos.column(name)) - micros * 1000) == 2**64 % 1000  # of a day that goes back
            signs = np.where(far, np.uint64(_TURN_MICROS % 2**64), np.uint64(0))
            signs += np.where(far & below, np.uint64(2**64 // 1000), np.uint64(0))
            moved = (micros.view(np.uint64) - signs).view(np.int64)
            made = pa.array(moved, mask=values.is_null().to_numpy(zero_copy_only=False))
            rows = rows.set_column(at, name, made.cast(values.type))
        return rows
