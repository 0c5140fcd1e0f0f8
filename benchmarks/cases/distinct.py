"""Rows a second of DISTINCT: 1M distinct keys are there, 1M rows a step come, half of them with new keys."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, rounds, rows_per_second
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, TURN = 2, 4
SOURCES = ["rows"]


def measure(effort: Effort) -> Result:
    """Measure the throughput of both sides, in turns; every step has keys that are new to its side."""
    rows = effort.keys(1_000_000)
    there = [("rows", str(file)) for file in data.all_keys(rows, rows)]
    steps = [("rows", str(file)) for file in data.half_new(rows, rows, WARM_UP + TURN * effort.rounds)]
    fed = dict.fromkeys(("boatlift", "rocksdb", "memory"), 0)

    def turn(name: str, side: Side, count: int = TURN) -> float:
        answer = side.ask("run", files=steps[fed[name] : fed[name] + count])
        fed[name] += count
        return rows_per_second(answer, rows)

    with ExitStack() as stack:
        sides = {
            "boatlift": stack.enter_context(
                Side("benchmarks.sides.query_side", sources=SOURCES, query="SELECT DISTINCT k FROM rows")
            )
        }
        for state in ("rocksdb", "memory"):
            peer = Side("benchmarks.peers.query_peer", state=state, sources=SOURCES, query="", distinct="k")
            sides[state] = stack.enter_context(peer)
        for name, side in sides.items():
            side.ask("run", files=there)
            turn(name, side, WARM_UP)
        rates = rounds(effort.rounds, sides, turn)
    ratios = {
        "dropDuplicates, RocksDB": median_ratio(rates["boatlift"], rates["rocksdb"]),
        "dropDuplicates, in memory": median_ratio(rates["boatlift"], rates["memory"]),
    }
    return Result(
        name="distinct",
        target="rows/s: at least 5 times dropDuplicates on RocksDB",
        met=ratios["dropDuplicates, RocksDB"] >= 5,
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )
