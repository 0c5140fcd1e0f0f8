"""The time of a small step of a join of four streams with an aggregate over it, next to that of one keyed aggregate.

Both have 1,000 rows a step, one step at a time, from input to output; the joined streams hold 100,000 keys each.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, percentile, rounds
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, SINGLE = 30, 40
ROWS = 1000
QUERY = """
    SELECT a.k, count(*) AS n, sum(a.v) AS s, sum(d.v) AS t
    FROM rows a JOIN b ON a.k = b.k JOIN c ON b.k = c.k JOIN d ON c.k = d.k
    GROUP BY a.k
"""


def measure(effort: Effort) -> Result:
    """Measure, in turns, steps one at a time."""
    keys = effort.keys(100_000)
    (state,) = data.all_keys(keys, keys)
    small = [("rows", str(file)) for file in data.drawn_keys(ROWS, keys, 100)]
    fed = {"view": 0, "aggregate": 0}

    def turn(name: str, side: Side, count: int = SINGLE) -> list[float]:
        side.ask("run", files=[small[fed[name] % len(small)]])  # a process that was stopped has to wake up
        files = [small[(fed[name] + 1 + number) % len(small)] for number in range(count)]
        fed[name] += count + 1
        times: list[float] = side.ask("one_by_one", files=files)["ms"]
        return times

    with ExitStack() as stack:
        view = Side("benchmarks.sides.query_side", sources=["rows", "b", "c", "d"], query=QUERY, every=20)
        aggregate = Side("benchmarks.sides.query_side", sources=["rows"], query="", every=20, key=["k"])
        sides = {"view": stack.enter_context(view), "aggregate": stack.enter_context(aggregate)}
        sides["view"].ask("one_by_one", files=[(name, str(state)) for name in ("b", "c", "d")])
        sides["aggregate"].ask("run", files=[("rows", str(state))])
        for name, side in sides.items():
            turn(name, side, WARM_UP)
        turns = rounds(effort.rounds, sides, turn)
    middle = {name: [statistics.median(times) for times in made] for name, made in turns.items()}
    late = {name: [percentile(times, 0.99) for times in made] for name, made in turns.items()}
    ratio = median_ratio(middle["view"], middle["aggregate"])
    figures = {f"{name} p50": Figure.of("ms", values) for name, values in middle.items()}
    figures |= {f"{name} p99": Figure.of("ms", values) for name, values in late.items()}
    return Result(
        name="view_latency",
        target="p50 of a step: at most 2.0 times that of one keyed aggregate",
        met=ratio <= 2.0,
        ratios={"keyed aggregate": ratio},
        figures=figures,
    )
