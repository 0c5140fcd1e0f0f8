"""Rows a second into two tables of one database whose steps are shown together, over those that are shown apart.

Into one SQLite file, and into one database of PostgreSQL; small steps too, where a sync is most of a step.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cases.postgres_write import PRIME
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from boatlift.testing.postgres_server import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.dataflow.contracts import Sink

__all__ = ["measure"]

STEPS, WARM_UPS = 10, 1
LEAST = 0.8
TOGETHER, APART = "together", "apart"
SIZES = {"large steps": 500_000, "small steps": 10_000}


def measure(effort: Effort) -> Result:
    """Write the same rows into both tables, in turns."""
    import boatlift as bl

    rates: dict[str, list[float]] = {}
    with PostgresServer() as server, bl.session(master="local[2]") as spark, tempfile.TemporaryDirectory() as folder:
        reached = " ".join(f"{name[2:].lower()}={value}" for name, value in server.environment.items())
        places: dict[str, Callable[[str], Sink]] = {
            "SQLite": lambda table: bl.sqlite(f"{folder}/out.db", table=table, key=["k"]),
            "PostgreSQL": lambda table: bl.postgres(
                reached.replace("database=", "dbname=") + " dbname=postgres", table=table, key=["k"]
            ),
        }
        for turn in range(WARM_UPS + effort.rounds):
            for place, sink in places.items():
                for size, most in SIZES.items():
                    for how in (TOGETHER, APART):
                        rate = _rows_a_second(spark, effort.keys(most) // STEPS, sink, together=how == TOGETHER)
                        if turn >= WARM_UPS:
                            rates.setdefault(f"{place}, {size}, {how}", []).append(rate)
    pairs = [f"{place}, {size}" for place in ("SQLite", "PostgreSQL") for size in SIZES]
    ratios = {pair: median_ratio(rates[f"{pair}, {TOGETHER}"], rates[f"{pair}, {APART}"]) for pair in pairs}
    return Result(
        name="joint",
        target=f"rows/s into two tables of one database, shown together over shown apart: each at least {LEAST:g}",
        met=min(ratios.values()) >= LEAST,
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )


def _rows_a_second(spark: SparkSession, rows: int, sink: Callable[[str], Sink], *, together: bool) -> float:
    import boatlift as bl

    name = f"joint_{uuid.uuid4().hex[:8]}"
    columns = {"k": f"id * {PRIME} % {rows * STEPS}", "v": "id * 0.25D"}
    flow = bl.Dataflow(name)
    source = flow.source("rows", bl.generator(columns, rows_per_step=rows, steps=STEPS))
    for table in ("one", "other"):
        source.sink(table, sink(f"{name}_{table}"))
    if together:
        flow.together("one", "other")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        bl.run(flow, Path(folder) / "store", available_now=True, spark=spark)
        return 2 * rows * STEPS / (time.perf_counter() - began)
