"""Rows a second without duplicates: half of the rows have the key of a row of the last four minutes."""

from __future__ import annotations

from benchmarks.cases.event_time import compared, steps
from benchmarks.harness.event_data import with_duplicates
from benchmarks.harness.measuring import Effort, Result

__all__ = ["measure"]


def measure(effort: Effort) -> Result:
    """Measure 1M rows a step; keys are remembered for ten minutes."""
    rows = effort.keys(1_000_000)
    return compared(
        "dedup",
        effort,
        with_duplicates(rows, steps(effort)),
        rows,
        lateness="10 minutes",
        target="rows/s: at least 5 times dropDuplicatesWithinWatermark on RocksDB",
    )
