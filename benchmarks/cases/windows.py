"""Rows a second of tumbling windows: counts and sums by minute and key, each given once, when its window has ended."""

from __future__ import annotations

from benchmarks.cases.event_time import compared, steps
from benchmarks.harness.event_data import drawn
from benchmarks.harness.measuring import Effort, Result

__all__ = ["measure"]


def measure(effort: Effort) -> Result:
    """Measure 1M rows a step, of 1M keys, in windows of a minute; rows are up to half a minute late."""
    rows = effort.keys(1_000_000)
    return compared(
        "windows",
        effort,
        drawn(rows, rows, steps(effort)),
        rows,
        lateness="1 minute",
        target="rows/s: at least 5 times Structured Streaming on RocksDB",
    )
