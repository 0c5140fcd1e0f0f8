"""A merge that gathers over one that takes its inputs in order: rows a second, and determinants a message.

Two sources of small steps, merged, summed by key, into a table by key: what the merge decides is one end of each input
an epoch, in place of one record a message.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure"]

STEPS, ROWS, KEYS, WARM_UPS = 300, 500, 10_000, 1
MOST_DETERMINANTS, LEAST_RATE = 1 / 8, 1.0
GATHERED, IN_ORDER = "gathered", "in order"


def measure(effort: Effort) -> Result:
    """Run the same dataflow both ways, in turns."""
    import boatlift as bl

    rates: dict[str, list[float]] = {GATHERED: [], IN_ORDER: []}
    chosen: dict[str, list[float]] = {GATHERED: [], IN_ORDER: []}
    with bl.session(master="local[2]") as spark:
        for turn in range(WARM_UPS + effort.rounds):
            for how in (GATHERED, IN_ORDER):
                rate, determinants = _run(spark, gathers=how == GATHERED)
                if turn >= WARM_UPS:
                    rates[how].append(rate)
                    chosen[how].append(determinants)
    ratios = {
        "rows/s, gathered over in order": median_ratio(rates[GATHERED], rates[IN_ORDER]),
        "determinants, gathered over in order": median_ratio(chosen[GATHERED], chosen[IN_ORDER]),
    }
    rate, determinants = ratios.values()
    return Result(
        name="gathered",
        target=f"determinants a message at a merge under load ≤ {MOST_DETERMINANTS:g}, rows/s ≥ {LEAST_RATE:g} of a "
        "merge that takes them in order",
        met=determinants <= MOST_DETERMINANTS and rate >= LEAST_RATE,
        ratios=ratios,
        figures={
            **{f"rows/s, {how}": Figure.of("rows/s", values) for how, values in rates.items()},
            **{f"determinants a message, {how}": Figure.of("", values) for how, values in chosen.items()},
        },
    )


def _run(spark: SparkSession, *, gathers: bool) -> tuple[float, float]:
    """Return the rows a second, and the determinants of the merge for each message that it took."""
    from pyspark.sql import functions as F

    import boatlift as bl
    from boatlift.operators.union import Merge

    executed: Counter[str] = Counter()

    def note(progress: bl.Progress) -> None:
        executed[progress.processor] += progress.what == "step"

    flow = bl.Dataflow("gathered")
    columns = {"k": f"id * 7919 % {KEYS}", "v": "id"}
    one, other = (flow.source(name, bl.generator(columns, rows_per_step=ROWS, steps=STEPS)) for name in ("one", "two"))
    sums = one.merge("both", other).group_by("k").agg("sums", F.sum("v").alias("total"))
    with tempfile.TemporaryDirectory() as folder:
        sums.sink("out", bl.sqlite(f"{folder}/out.db", table="sums", key=["k"]))
        in_order = mock.patch.object(Merge, "gathered", lambda merge: merge)
        began = time.perf_counter()
        if gathers:
            bl.run(flow, Path(folder) / "store", available_now=True, spark=spark, on_progress=note)
        else:
            with in_order:
                bl.run(flow, Path(folder) / "store", available_now=True, spark=spark, on_progress=note)
        return 2 * STEPS * ROWS / (time.perf_counter() - began), executed["both"] / (2 * STEPS)
