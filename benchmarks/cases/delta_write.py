"""Rows a second appended to a Delta table, exactly once, the whole dataflow with it, beside `write_deltalake` alone.

The client alone appends rows that are in memory, a step each, and records nothing. Both sides write to the local disk,
with the same compression.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure"]

STEPS, WARM_UPS = 4, 1
PRIME = 7_368_787  # so that keys are scattered
OURS, CLIENT = "boatlift", "write_deltalake alone"
LEAST = 0.5


def measure(effort: Effort) -> Result:
    """Append four million rows in four steps, in turns."""
    import boatlift as bl

    rows = effort.keys(4_000_000) // STEPS * STEPS
    sides: dict[str, Callable[[SparkSession, int], float]] = {OURS: _ours, CLIENT: _client}
    spark = bl.session(**{"spark.driver.memory": "4g"})
    try:
        turns = [{name: side(spark, rows) for name, side in sides.items()} for _ in range(WARM_UPS + effort.rounds)]
    finally:
        spark.stop()
    rates = {name: [turn[name] for turn in turns[WARM_UPS:]] for name in sides}
    ratio = median_ratio(rates[OURS], rates[CLIENT])
    return Result(
        name="delta_write",
        target=f"rows/s: at least {LEAST:g} of {CLIENT}",
        met=ratio >= LEAST,
        ratios={CLIENT: ratio},
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )


def _ours(spark: SparkSession, rows: int) -> float:
    import boatlift as bl

    columns = {"k": f"id * {PRIME} % {rows}", "n": "id", "v": "id * 0.25D"}
    flow = bl.Dataflow(f"written_{uuid.uuid4().hex[:8]}")
    source = bl.generator(columns, rows_per_step=rows // STEPS, steps=STEPS)
    with tempfile.TemporaryDirectory() as folder:
        flow.source("rows", source).sink("out", bl.delta(f"{folder}/table"))
        began = time.perf_counter()
        bl.run(flow, f"{folder}/store", available_now=True, spark=spark)
        return rows / (time.perf_counter() - began)


def _client(_spark: SparkSession, rows: int) -> float:
    import numpy as np
    import pyarrow as pa
    from deltalake import WriterProperties, write_deltalake

    step, steps = rows // STEPS, []
    for begin in range(0, rows, step):
        number = np.arange(begin, begin + step)
        steps.append(pa.table({"k": number * PRIME % rows, "n": number, "v": number * 0.25}))
    properties = WriterProperties(compression="ZSTD", compression_level=1)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        for table in steps:
            write_deltalake(folder, table, mode="append", writer_properties=properties)
        return rows / (time.perf_counter() - began)
