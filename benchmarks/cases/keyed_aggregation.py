"""Rows a second: 1M distinct uniform keys, count and sum of a double, 1M rows a step, checkpoints on in both."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, step_rates
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, TURN = 4, 6
EVERY = 5  # so that each turn has a checkpoint; the peer has one every batch


def measure(effort: Effort) -> Result:
    """Measure the throughput of both sides, in turns."""
    rows = effort.keys(1_000_000)
    files = data.all_keys(rows, rows) + data.drawn_keys(rows, rows, 12)
    with ExitStack() as stack:
        sides = {
            "boatlift": stack.enter_context(Side("benchmarks.sides.boatlift_side", every=EVERY)),
            "rocksdb": stack.enter_context(Side("benchmarks.peers.streaming_peer", state="rocksdb")),
            "memory": stack.enter_context(Side("benchmarks.peers.streaming_peer", state="memory")),
        }
        rates = step_rates(effort, sides, files, rows, warm_up=WARM_UP, count=TURN)
    ratios = {
        "Structured Streaming, RocksDB": median_ratio(rates["boatlift"], rates["rocksdb"]),
        "Structured Streaming, in memory": median_ratio(rates["boatlift"], rates["memory"]),
    }
    by_disk, by_memory = ratios.values()
    return Result(
        name="keyed_aggregation",
        target="rows/s: at least 5 times Structured Streaming on RocksDB, 2.5 times in memory",
        met=by_disk >= 5 and by_memory >= 2.5,
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )
