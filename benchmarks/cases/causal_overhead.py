"""Throughput with standbys that hold what the log lacks, over that without: each holds the entries of each step."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, rounds, rows_per_second
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, TURN = 4, 30
LEAST = 0.97
CLONOS = {"depth 1": 0.952, "full depth": 0.937}
"""Clonos' own ratios over Flink, mean of 13 queries: data of github.com/PSilvestre/ClonosReproducibility."""

ALONE, HELD = "no standby", {"peers:1": 1, "peers:2": 2}


def measure(effort: Effort) -> Result:
    """Measure all in turns, with a sink that can carry nothing."""
    rows = effort.keys(100_000)
    files = data.all_keys(rows, rows) + data.drawn_keys(rows, rows, 12)
    fed = dict.fromkeys((ALONE, *HELD), 0)

    def turn(name: str, side: Side, count: int = TURN) -> float:
        answer = side.run(cycled(files, fed[name], count))
        fed[name] += count
        return rows_per_second(answer, rows)

    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(Side("benchmarks.sides.boatlift_side", delivers=True, peers=peers))
            for name, peers in {ALONE: 0, **HELD}.items()
        }
        for name, side in sides.items():
            turn(name, side, WARM_UP)
        rates = rounds(effort.rounds, sides, turn)
    ratios = {name: median_ratio(rates[name], rates[ALONE]) for name in HELD}
    return Result(
        name="causal_overhead",
        target=f"throughput with standbys that hold over that without: at least {LEAST:g}",
        met=min(ratios.values()) >= LEAST,
        ratios=ratios,
        figures={
            **{name: Figure.of("rows/s", values) for name, values in rates.items()},
            **{f"Clonos over Flink, {name}": Figure.of("", [ratio]) for name, ratio in CLONOS.items()},
        },
    )
