"""Rows a second of sessions by timers: keys drawn from 1M, 100,000 rows a step, checkpoints on in both."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, rounds, rows_per_second
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
    fed = dict.fromkeys((*FORMS, ROCKSDB), 0)

    def turn(name: str, side: Side, count: int = TURN) -> float:
        answer = side.run(cycled(files, fed[name], count))
        fed[name] += count
        return rows_per_second(answer, rows)

    with ExitStack() as stack:
        sides = {form: stack.enter_context(Side("benchmarks.sides.processor_side", form=form)) for form in FORMS}
        sides[ROCKSDB] = stack.enter_context(Side("benchmarks.peers.processor_peer", state="rocksdb"))
        for name, side in sides.items():
            turn(name, side, WARM_UP)
        rates = rounds(effort.rounds, sides, turn)
    ratios = {form: median_ratio(rates[form], rates[ROCKSDB]) for form in FORMS}
    return Result(
        name="processor",
        target="rows/s: at least 3 times transformWithStateInPandas on RocksDB, over Arrow 10 times",
        met=ratios["by key"] >= 3 and ratios["arrow"] >= 10,
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )
