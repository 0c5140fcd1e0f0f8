"""The cost of each policy: throughput of one stateful pipeline under it, over no fault tolerance at all.

Each as it is by default: lazy makes a checkpoint every 20 steps, so that there is one in each turn.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, step_rates
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, TURN = 4, 20
TARGETS = {"lazy": 0.98, "eager": 0.65}


def measure(effort: Effort) -> Result:
    """Measure all, in turns."""
    rows = effort.keys(1_000_000)
    files = data.all_keys(rows, rows) + data.drawn_keys(rows, rows, 12)
    policies = ("lazy", "eager", "logging", "history")
    with ExitStack() as stack:
        sides = {"none": stack.enter_context(Side("benchmarks.sides.boatlift_side", durable=False))}
        for policy in policies:
            sides[policy] = stack.enter_context(Side("benchmarks.sides.boatlift_side", policy=policy))
        rates = step_rates(effort, sides, files, rows, warm_up=WARM_UP, count=TURN)
    ratios = {policy: median_ratio(rates[policy], rates["none"]) for policy in policies}
    return Result(
        name="policies",
        target="throughput over no fault tolerance at all: lazy at least 0.98, eager at least 0.65",
        met=all(ratios[policy] >= target for policy, target in TARGETS.items()),
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )
