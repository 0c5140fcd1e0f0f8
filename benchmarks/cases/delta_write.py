"""Rows a second appended to a Delta table, exactly once, the whole dataflow with it.

Beside it Structured Streaming's own Delta sink, exactly once, on the newest Spark that its jar is for. Reported too:
`write_deltalake` alone, which appends rows that are in memory, a step each, and records nothing. All write to the local
disk with the same compression; the first two make their rows in tasks.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from benchmarks.harness.side import Side
from benchmarks.peers.delta_peer import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure"]

STEPS, WARM_UPS = 4, 2
PRIME = 7_368_787  # so that keys are scattered
OURS, PEER, CLIENT = "boatlift", "Structured Streaming's Delta sink (Spark 4.1)", "write_deltalake alone"
LEAST = 1.0


def measure(effort: Effort) -> Result:
    """Append four million rows in four steps, in turns."""
    import boatlift as bl

    rows = effort.keys(4_000_000) // STEPS * STEPS
    with Side("benchmarks.peers.delta_peer", python=environment()) as peer:
        spark = bl.session(**{"spark.driver.memory": "4g"})
        sides: dict[str, Callable[[], float]] = {
            OURS: lambda: _ours(spark, rows),
            PEER: lambda: _peer(peer, rows),
            CLIENT: lambda: _client(rows),
        }
        try:
            turns = [{name: side() for name, side in sides.items()} for _ in range(WARM_UPS + effort.rounds)]
        finally:
            spark.stop()
    rates = {name: [turn[name] for turn in turns[WARM_UPS:]] for name in sides}
    ratios = {name: median_ratio(rates[OURS], rates[name]) for name in (PEER, CLIENT)}
    return Result(
        name="delta_write",
        target=f"rows/s: at least {LEAST:g} of {PEER}",
        met=ratios[PEER] >= LEAST,
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )


def _columns(rows: int) -> dict[str, str]:
    return {"k": f"id * {PRIME} % {rows}", "n": "id", "v": "id * 0.25D"}


def _ours(spark: SparkSession, rows: int) -> float:
    import boatlift as bl

    flow = bl.Dataflow(f"written_{uuid.uuid4().hex[:8]}")
    source = bl.generator(_columns(rows), rows_per_step=rows // STEPS, steps=STEPS)
    with tempfile.TemporaryDirectory() as folder:
        flow.source("rows", source).sink("out", bl.delta(f"{folder}/table"))
        began = time.perf_counter()
        bl.run(flow, f"{folder}/store", available_now=True, spark=spark)
        return rows / (time.perf_counter() - began)


def _peer(peer: Side, rows: int) -> float:
    answer = peer.ask("write", columns=_columns(rows), rows=rows // STEPS, steps=STEPS, folder=str(peer.folder))
    if answer["rows"] != rows:
        raise RuntimeError(f"the peer wrote {answer['rows']} of {rows} rows")
    return rows / float(answer["seconds"])


def _client(rows: int) -> float:
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
