"""The time of a small step with a log whose objects take 50 ms, over that with a log on the local disk.

Once with sinks that wait for the log, once with sinks that carry what it lacks, once with other processes that hold it.
The sink is a folder of Parquet, then a function, which can carry nothing. One step at a time, from input to output.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Any

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, percentile, rounds
from benchmarks.harness.side import Side

__all__ = ["measure"]

DELAY = 0.05
"""Seconds for each object of the log."""

WARM_UP, SINGLE, ROWS = 20, 40, 1000
MOST = 1.15
DISK, WAITS, RIDES, HELD = "local disk", "50 ms, waits", "50 ms, carries", "50 ms, held by one"


def measure(effort: Effort) -> Result:
    """Measure steps one at a time, in turns, for each sink."""
    ratios, figures = dict[str, float](), dict[str, Figure]()
    for sink, delivers in (("folder", False), ("function", True)):
        made, found = _measured(effort, delivers=delivers)
        ratios |= {f"{sink}: {name}": ratio for name, ratio in made.items()}
        figures |= {f"{sink}: {name}": figure for name, figure in found.items()}
    meant = [f"folder: {RIDES}", f"folder: {HELD}", f"function: {HELD}"]
    return Result(
        name="causal",
        target=f"p50 of a step with a log of {DELAY * 1000:.0f} ms over the local disk's: at most {MOST:g} where the "
        "sink carries, or another process holds",
        met=all(ratios[name] <= MOST for name in meant),
        ratios=ratios,
        figures=figures,
    )


def _measured(effort: Effort, *, delivers: bool) -> tuple[dict[str, float], dict[str, Figure]]:
    keys = effort.keys(100_000)
    state, small = data.all_keys(keys, keys), data.drawn_keys(ROWS, keys, 100)
    options: dict[str, dict[str, Any]] = {
        DISK: {"rides": False},
        WAITS: {"delay": DELAY, "rides": False},
        HELD: {"delay": DELAY, "rides": False, "peers": 1},
    }
    if not delivers:
        options[RIDES] = {"delay": DELAY, "rides": True}
    fed = dict.fromkeys(options, 0)

    def take(name: str, side: Side) -> float:
        visible = side.run(cycled(small, fed[name], 1))["visible"]
        fed[name] += 1
        return 1000 * float(visible[-1])

    def turn(name: str, side: Side) -> list[float]:
        take(name, side)  # a process that was stopped has to wake up
        return [take(name, side) for _ in range(SINGLE)]

    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(Side("benchmarks.sides.boatlift_side", delivers=delivers, **given))
            for name, given in options.items()
        }
        for name, side in sides.items():
            side.run(state)
            for _ in range(WARM_UP):
                take(name, side)
        turns = rounds(effort.rounds, sides, turn)
    middle = {name: [statistics.median(each) for each in made] for name, made in turns.items()}
    late = {name: [percentile(each, 0.99) for each in made] for name, made in turns.items()}
    figures = {f"{name}, p50": Figure.of("ms", values) for name, values in middle.items()}
    figures |= {f"{name}, p99": Figure.of("ms", values) for name, values in late.items()}
    return {name: median_ratio(middle[name], middle[DISK]) for name in options if name != DISK}, figures
