"""The time of a small step with a log whose objects take 50 ms, over that with a log on the local disk.

Once with sinks that wait for the log, and once with sinks whose files carry what it lacks. The sink is a folder of
Parquet. One step at a time, from input to output.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, percentile, rounds
from benchmarks.harness.side import Side

__all__ = ["measure"]

DELAY = 0.05
"""Seconds for each object of the log."""

WARM_UP, SINGLE, ROWS = 20, 40, 1000
MOST = 1.15
DISK, WAITS, RIDES = "local disk", "50 ms, the sink waits", "50 ms, the sink carries"


def measure(effort: Effort) -> Result:
    """Measure steps one at a time, in turns."""
    keys = effort.keys(100_000)
    state, small = data.all_keys(keys, keys), data.drawn_keys(ROWS, keys, 100)
    fed = dict.fromkeys((DISK, WAITS, RIDES), 0)

    def take(name: str, side: Side) -> float:
        visible = side.run(cycled(small, fed[name], 1))["visible"]
        fed[name] += 1
        return 1000 * float(visible[-1])

    def turn(name: str, side: Side) -> list[float]:
        take(name, side)  # a process that was stopped has to wake up
        return [take(name, side) for _ in range(SINGLE)]

    with ExitStack() as stack:
        sides = {
            DISK: stack.enter_context(Side("benchmarks.sides.boatlift_side", rides=False)),
            WAITS: stack.enter_context(Side("benchmarks.sides.boatlift_side", delay=DELAY, rides=False)),
            RIDES: stack.enter_context(Side("benchmarks.sides.boatlift_side", delay=DELAY, rides=True)),
        }
        for name, side in sides.items():
            side.run(state)
            for _ in range(WARM_UP):
                take(name, side)
        turns = rounds(effort.rounds, sides, turn)
    middle = {name: [statistics.median(each) for each in made] for name, made in turns.items()}
    late = {name: [percentile(each, 0.99) for each in made] for name, made in turns.items()}
    ratios = {name: median_ratio(middle[name], middle[DISK]) for name in (WAITS, RIDES)}
    figures = {f"{name}, p50": Figure.of("ms", values) for name, values in middle.items()}
    figures |= {f"{name}, p99": Figure.of("ms", values) for name, values in late.items()}
    return Result(
        name="causal",
        target=f"p50 of a step with a log of {DELAY * 1000:.0f} ms over the local disk's: at most {MOST:g} ({RIDES})",
        met=ratios[RIDES] <= MOST,
        ratios=ratios,
        figures=figures,
    )
