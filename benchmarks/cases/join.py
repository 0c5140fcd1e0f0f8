"""Rows a second of a join: 1M orders, then 1M items a step, each of a drawn order; both sides exactly once."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, rounds, rows_per_second
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, TURN = 2, 2
QUERY = "SELECT o.k, o.v AS o, i.v AS i FROM orders o JOIN items i ON o.k = i.k"
SOURCES = ["orders", "items"]


def measure(effort: Effort) -> Result:
    """Measure the throughput of both sides, in turns."""
    rows = effort.keys(1_000_000)
    orders = [("orders", str(file)) for file in data.all_keys(rows, rows)]
    items = [("items", str(file)) for file in data.drawn_keys(rows, rows, 12)]
    fed = dict.fromkeys(("boatlift", "rocksdb", "memory"), 0)

    def turn(name: str, side: Side, count: int = TURN) -> float:
        answer = side.ask("run", files=[items[(fed[name] + n) % len(items)] for n in range(count)])
        fed[name] += count
        return rows_per_second(answer, rows)

    with ExitStack() as stack:
        sides = {
            "boatlift": stack.enter_context(Side("benchmarks.sides.query_side", sources=SOURCES, query=QUERY)),
            "rocksdb": stack.enter_context(
                Side("benchmarks.peers.query_peer", state="rocksdb", sources=SOURCES, query=QUERY)
            ),
            "memory": stack.enter_context(
                Side("benchmarks.peers.query_peer", state="memory", sources=SOURCES, query=QUERY)
            ),
        }
        for name, side in sides.items():
            side.ask("run", files=orders)
            turn(name, side, WARM_UP)
        rates = rounds(effort.rounds, sides, turn)
    ratios = {
        "Structured Streaming, RocksDB": median_ratio(rates["boatlift"], rates["rocksdb"]),
        "Structured Streaming, in memory": median_ratio(rates["boatlift"], rates["memory"]),
    }
    by_disk, by_memory = ratios.values()
    return Result(
        name="join",
        target="rows/s: at least 5 times Structured Streaming's stream-stream join on RocksDB, 3 times in memory",
        met=by_disk >= 5 and by_memory >= 3,
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )
