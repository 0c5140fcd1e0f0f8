"""Rows a second of sessions by timers: keys drawn from 1M, 100,000 rows a step, checkpoints on in both."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, step_rates
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, TURN = 2, 3
FORMS = ("arrow", "by key", "pandas")
ROCKSDB = "transformWithStateInPandas, RocksDB"


def measure(effort: Effort) -> Result:
    """Measure the throughput of each form and of the peer, in turns."""
    keys = effort.keys(1_000_000)
    rows = keys // 10
    files = data.drawn_keys(rows, keys, 12)
    with ExitStack() as stack:
        sides = {form: stack.enter_context(Side("benchmarks.sides.processor_side", form=form)) for form in FORMS}
        sides[ROCKSDB] = stack.enter_context(Side("benchmarks.peers.processor_peer", state="rocksdb"))
        rates = step_rates(effort, sides, files, rows, warm_up=WARM_UP, count=TURN)
    ratios = {form: median_ratio(rates[form], rates[ROCKSDB]) for form in FORMS}
    return Result(
        name="processor",
        target="rows/s: at least 3 times transformWithStateInPandas on RocksDB, over Arrow 10 times",
        met=ratios["by key"] >= 3 and ratios["arrow"] >= 10,
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )
