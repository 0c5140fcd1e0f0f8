"""Queries over 1M rows that a running dataflow keeps: a lookup by key, an aggregate, and what they cost its owner."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio

if TYPE_CHECKING:
    from boatlift import Running

__all__ = ["measure"]

STEP_ROWS, SECONDS, PAUSE = 20_000, 20, 1.0
"""The rows of a step; the seconds of a rate; the pause between two queries."""

LOOKUP_MS, AGGREGATE_MS, MOST_COST = 100, 2000, 0.02


def measure(effort: Effort) -> Result:
    """Let the owner run alone, beside lookups, and beside lookups and aggregates, in turns."""
    rows = effort.keys(1_000_000)
    ways: dict[str, tuple[str, ...]] = {
        "alone": (),
        "beside lookups": ("lookup",),
        "beside queries": ("lookup", "aggregate"),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    took: dict[str, list[float]] = {"lookup": [], "aggregate": []}
    with _dataflow(rows) as (running, steps):
        while len(steps) * STEP_ROWS < 2 * rows:
            time.sleep(PAUSE)
        for name in took:
            _asked(running, name, rows)
        for _ in range(effort.rounds):
            for way, asked in ways.items():
                began, done = time.monotonic(), len(steps)
                while time.monotonic() < began + SECONDS:
                    for name in asked:
                        took[name].append(_asked(running, name, rows))
                    time.sleep(PAUSE)
                rates[way].append((len(steps) - done) * STEP_ROWS / (time.monotonic() - began))
    middle = {name: statistics.median(each) for name, each in took.items()}
    kept = {f"{way} over alone": median_ratio(rates[way], rates["alone"]) for way in ways if ways[way]}
    cost = 1 - min(kept.values())
    return Result(
        name="adhoc",
        target=f"a lookup at most {LOOKUP_MS} ms, an aggregate at most {AGGREGATE_MS} ms, and a query a second at most "
        f"{MOST_COST:.0%} of the throughput",
        met=middle["lookup"] <= LOOKUP_MS and middle["aggregate"] <= AGGREGATE_MS and cost <= MOST_COST,
        ratios=kept,
        figures={
            **{name: Figure.of("ms", each) for name, each in took.items()},
            **{way: Figure.of("rows/s", each) for way, each in rates.items()},
        },
    )


def _asked(running: Running, name: str, rows: int) -> float:
    """Return the milliseconds of a query."""
    queries = {
        "lookup": f"SELECT total FROM kept WHERE k = {rows // 3}",
        "aggregate": "SELECT k % 100 AS part, sum(total) AS total FROM kept GROUP BY part",
    }
    began = time.perf_counter()
    running.sql(queries[name])
    return 1000 * (time.perf_counter() - began)


@contextmanager
def _dataflow(rows: int) -> Iterator[tuple[Running, list[int]]]:
    """Run a dataflow that keeps some rows; yield the run, and the steps that it has executed."""
    from pyspark.sql import functions as F

    import boatlift as bl

    spark = bl.session(app_name="adhoc")
    steps: list[int] = []

    def watch(progress: bl.Progress) -> None:
        if progress.what == "step" and progress.processor == "kept":
            steps.append(progress.time)

    flow = bl.Dataflow("adhoc")
    numbers = flow.source("numbers", bl.generator({"k": f"id % {rows}", "v": "id"}, rows_per_step=STEP_ROWS))
    numbers.group_by("k").agg("kept", F.sum("v").alias("total"), policy=bl.Lazy(every=20))
    with tempfile.TemporaryDirectory() as folder:
        running = bl.start(flow, Path(folder) / "store", spark=spark, on_progress=watch)
        yield running, steps
        running.stop()
