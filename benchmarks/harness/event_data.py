"""Input with event time: files of rows whose times go on from file to file, each a little out of order."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.harness.data import keys, written

__all__ = ["SCHEMA", "SPAN_SECONDS", "drawn", "rows_held", "with_duplicates"]

SCHEMA = "k BIGINT, v DOUBLE, at TIMESTAMP"
SPAN_SECONDS = 60
"""A file has the rows of so much event time; a row comes up to half of that late."""

_BEGIN = 1_772_323_200_000_000  # 2026-03-01, in microseconds
_TYPES = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("at", pa.timestamp("us", "UTC"))])

Numbers = npt.NDArray[np.uint64]


def drawn(rows: int, distinct: int, files: int) -> list[Path]:
    """Return files of rows whose keys are drawn uniformly."""

    def make(index: int) -> pa.Table:
        chance = np.random.default_rng((rows, 21, index))
        return _table(chance.integers(0, distinct, rows, np.uint64), index, chance)

    return [written(f"event-drawn-{rows}-of-{distinct}-{index}", partial(make, index)) for index in range(files)]


def with_duplicates(rows: int, files: int) -> list[Path]:
    """Return files of rows, of which half have new keys, and half each the key of a row of the last four files."""
    half = rows // 2

    def make(index: int) -> pa.Table:
        chance = np.random.default_rng((rows, 22, index))
        new = np.arange(index * half, (index + 1) * half, dtype=np.uint64)
        first, last = max(0, index - 4) * half, max(1, index) * half
        again = chance.integers(first, last, rows - half, np.uint64)
        return _table(chance.permutation(np.concatenate([new, again])), index, chance)

    return [written(f"event-duplicates-{rows}-{index}", partial(make, index)) for index in range(files)]


def rows_held(folder: Path, ended: int) -> dict[str, int]:
    """Return how many rows an output has, and how many rows these count, of windows that ended with a file.

    Args:
        folder: The output's.
        ended: How many files; windows that ended later are left out. Rows without windows all count.
    """
    table = ds.dataset(folder, format="parquet").to_table()
    if "window_end" not in table.column_names:
        return {"rows": table.num_rows, "counted": table.num_rows}
    ends = table.column("window_end")
    micros = ends.cast(pa.timestamp("us", ends.type.tz)).cast(pa.int64())
    table = table.filter(pc.less_equal(micros, _BEGIN + ended * SPAN_SECONDS * 1_000_000))
    return {"rows": table.num_rows, "counted": pc.sum(table.column("n")).as_py()}


def _table(numbers: Numbers, index: int, chance: np.random.Generator) -> pa.Table:
    micros = SPAN_SECONDS * 1_000_000
    late = chance.integers(0, micros // 2, len(numbers))
    at = _BEGIN + index * micros + chance.integers(0, micros, len(numbers)) - late
    return pa.table([keys(numbers), chance.normal(100.0, 15.0, len(numbers)), at], schema=_TYPES)
