"""The cost of durability: throughput with log and checkpoints over that with log, manifests and fsync off."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, rounds, rows_per_second
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, TURN = 4, 11
EVERY = 5  # two checkpoints a turn


def measure(effort: Effort) -> Result:
    """Measure both, in turns."""
    rows = effort.keys(1_000_000)
    files = data.all_keys(rows, rows) + data.drawn_keys(rows, rows, 12)
    fed = dict.fromkeys(("durable", "volatile"), 0)

    def turn(name: str, side: Side, count: int = TURN) -> float:
        answer = side.run(cycled(files, fed[name], count))
        fed[name] += count
        return rows_per_second(answer, rows)

    with ExitStack() as stack:
        sides = {
            "durable": stack.enter_context(Side("benchmarks.sides.boatlift_side", every=EVERY)),
            "volatile": stack.enter_context(Side("benchmarks.sides.boatlift_side", durable=False)),
        }
        for name, side in sides.items():
            turn(name, side, WARM_UP)
        rates = rounds(effort.rounds, sides, turn)
    ratio = median_ratio(rates["durable"], rates["volatile"])
    return Result(
        name="overhead",
        target="throughput with durability over without: at least 0.95",
        met=ratio >= 0.95,
        ratios={"log, manifests and fsync off": ratio},
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )
