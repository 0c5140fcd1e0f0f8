"""The time of small steps as state grows: 1,000 rows a step on 10M keys against 100k keys.

One step at a time, from input to output: the next step's file comes once the output of the step before is visible.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, percentile, rounds
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, TURN = 20, 61  # each turn has three checkpoints and many compactions
ROWS = 1000


def measure(effort: Effort) -> Result:
    """Measure steps on a small and on a large state, in turns."""
    sizes = {"100k keys": effort.keys(100_000), "10M keys": effort.keys(10_000_000)}
    small = {name: data.drawn_keys(ROWS, keys, 100) for name, keys in sizes.items()}
    fed = dict.fromkeys(sizes, 0)

    def step(name: str, side: Side) -> float:
        answer = side.run(cycled(small[name], fed[name], 1))
        fed[name] += 1
        return 1000 * float(answer["visible"][0])

    def turn(name: str, side: Side, count: int = TURN) -> list[float]:
        step(name, side)  # a process that was stopped has to wake up
        return [step(name, side) for _ in range(count)]

    with ExitStack() as stack:
        sides = {name: stack.enter_context(Side("benchmarks.sides.boatlift_side", every=20)) for name in sizes}
        for name, side in sides.items():
            side.run(data.all_keys(sizes[name], min(sizes[name], 1_000_000)))
            turn(name, side, WARM_UP)
        steps = rounds(effort.rounds, sides, turn)
    summaries: dict[str, Callable[[list[float]], float]] = {
        "p50": statistics.median,
        "p99": partial(percentile, share=0.99),
        "total": sum,
    }
    values = {
        (name, what): [summary(turn) for turn in turns]
        for name, turns in steps.items()
        for what, summary in summaries.items()
    }
    ratios = {what: median_ratio(values["10M keys", what], values["100k keys", what]) for what in summaries}
    return Result(
        name="state_growth",
        target="10M keys over 100k keys: p50 at most 1.3, p99 at most 3",
        met=ratios["p50"] <= 1.3 and ratios["p99"] <= 3,
        ratios=ratios,
        figures={f"{name} {what}": Figure.of("ms", found) for (name, what), found in values.items()},
    )
