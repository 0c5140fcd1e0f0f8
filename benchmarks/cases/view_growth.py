"""The time of a small step of a join, an aggregate over it and a ranking of that, with 100 times the state."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, rounds
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, SINGLE = 20, 30
ROWS = 1000
QUERY = """
    WITH totals AS (SELECT a.k, sum(a.v) AS s FROM rows a JOIN b ON a.k = b.k GROUP BY a.k),
         ranked AS (SELECT k, s, row_number() OVER (PARTITION BY k % 100 ORDER BY s DESC) AS place FROM totals)
    SELECT k, s, place FROM ranked WHERE place <= 3
"""


def measure(effort: Effort) -> Result:
    """Measure, in turns, steps one at a time."""
    sizes = {"small": effort.keys(10_000), "large": effort.keys(1_000_000)}
    steps = {name: [str(file) for file in data.drawn_keys(ROWS, keys, 100)] for name, keys in sizes.items()}
    fed = dict.fromkeys(sizes, 0)

    def turn(name: str, side: Side, count: int = SINGLE) -> list[float]:
        files = [("rows", steps[name][(fed[name] + number) % 100]) for number in range(count)]
        fed[name] += count
        times: list[float] = side.ask("one_by_one", files=files)["ms"]
        return times

    with ExitStack() as stack:
        sides = {}
        for name, keys in sizes.items():
            side = Side("benchmarks.sides.query_side", sources=["rows", "b"], query=QUERY, every=20)
            sides[name] = stack.enter_context(side)
            (state,) = data.all_keys(keys, keys)
            sides[name].ask("one_by_one", files=[(source, str(state)) for source in ("b", "rows")])
            turn(name, sides[name], WARM_UP)
        turns = rounds(effort.rounds, sides, turn)
    middle = {name: [statistics.median(times) for times in made] for name, made in turns.items()}
    ratio = median_ratio(middle["large"], middle["small"])
    return Result(
        name="view_growth",
        target="p50 of a step with 100 times the state: at most 1.3 times",
        met=ratio <= 1.3,
        ratios={"a hundredth of the state": ratio},
        figures={f"{name} p50": Figure.of("ms", values) for name, values in middle.items()},
    )
