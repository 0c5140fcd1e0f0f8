"""The time of a small step with a log whose objects take 50 ms, over that with a log on the local disk.

Once with sinks that wait for the log, once with sinks that carry what it lacks, once with other processes that hold it.
The sink is a folder of Parquet, then a function, which can carry nothing, then a function of rows without an aggregate,
once with a key, by which it recognises them. One step at a time, from input to output.
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
BY_ROW = "50 ms, by row"

SINKS: dict[str, dict[str, Any]] = {
    "folder": {},
    "function": {"delivers": True},
    "rows": {"delivers": True, "row_wise": True},
}
"""The sinks, each with the options of the side."""


def measure(effort: Effort) -> Result:
    """Measure steps one at a time, in turns, for each sink."""
    ratios, figures = dict[str, float](), dict[str, Figure]()
    for sink in SINKS:
        made, found = _measured(effort, sink)
        ratios |= {f"{sink}: {name}": ratio for name, ratio in made.items()}
        figures |= {f"{sink}: {name}": figure for name, figure in found.items()}
    meant = [f"folder: {RIDES}", f"folder: {HELD}", f"function: {HELD}", f"rows: {BY_ROW}"]
    return Result(
        name="causal",
        target=f"p50 of a step with a log of {DELAY * 1000:.0f} ms over the local disk's: at most {MOST:g} where the "
        "sink carries, another process holds, or the sink recognises rows",
        met=all(ratios[name] <= MOST for name in meant),
        ratios=ratios,
        figures=figures,
    )


def _measured(effort: Effort, sink: str) -> tuple[dict[str, float], dict[str, Figure]]:
    keys = effort.keys(100_000)
    state, small = data.all_keys(keys, keys), data.drawn_keys(ROWS, keys, 100)
    options: dict[str, dict[str, Any]] = {
        DISK: {"rides": False},
        WAITS: {"delay": DELAY, "rides": False},
        HELD: {"delay": DELAY, "rides": False, "peers": 1},
    }
    if sink == "folder":
        options[RIDES] = {"delay": DELAY, "rides": True}
    if sink == "rows":
        options[BY_ROW] = {"delay": DELAY, "rides": False, "identified": True}
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
            name: stack.enter_context(Side("benchmarks.sides.boatlift_side", **SINKS[sink], **given))
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
