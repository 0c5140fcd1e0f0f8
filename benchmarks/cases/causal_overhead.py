"""Throughput with standbys that hold what the log lacks, over that without: each holds the entries of each step."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, step_rates
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
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(Side("benchmarks.sides.boatlift_side", delivers=True, peers=peers))
            for name, peers in {ALONE: 0, **HELD}.items()
        }
        rates = step_rates(effort, sides, files, rows, warm_up=WARM_UP, count=TURN)
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
