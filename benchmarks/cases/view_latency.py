"""The time of a small step of views, next to that of one keyed aggregate.

All have 1,000 rows a step, one step at a time, from input to output. One view is a join of four streams with an
aggregate over it; the joined streams hold 100,000 keys each. The twenty views are aggregates of one source.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Any

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, percentile, rounds
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, SINGLE = 30, 40
ROWS, VIEWS = 1000, 20
MOST, MOST_OF_TWENTY = 1.2, 1.5
MOST_P50, MOST_P99 = 25, 50
"""Milliseconds."""

QUERY = """
    SELECT a.k, count(*) AS n, sum(a.v) AS s, sum(d.v) AS t
    FROM rows a JOIN b ON a.k = b.k JOIN c ON b.k = c.k JOIN d ON c.k = d.k
    GROUP BY a.k
"""
ONE_OF_TWENTY = "SELECT k, count(*) AS n, sum(v + {number}) AS s FROM rows WHERE k % 23 <> {number} GROUP BY k"


def measure(effort: Effort) -> Result:
    """Measure, in turns, steps one at a time."""
    keys = effort.keys(100_000)
    (state,) = data.all_keys(keys, keys)
    small = [("rows", str(file)) for file in data.drawn_keys(ROWS, keys, 100)]
    fed = dict.fromkeys(("view", "aggregate", "one", "twenty"), 0)

    def turn(name: str, side: Side, count: int = SINGLE) -> list[float]:
        side.ask("run", files=[small[fed[name] % len(small)]])  # a process that was stopped has to wake up
        files = [small[(fed[name] + 1 + number) % len(small)] for number in range(count)]
        fed[name] += count + 1
        times: list[float] = side.ask("one_by_one", files=files)["ms"]
        return times

    options: dict[str, dict[str, Any]] = {
        "view": {"sources": ["rows", "b", "c", "d"], "query": QUERY},
        "aggregate": {"sources": ["rows"], "query": "", "key": ["k"]},
        "one": {"sources": ["rows"], "query": ONE_OF_TWENTY},
        "twenty": {"sources": ["rows"], "query": ONE_OF_TWENTY, "views": VIEWS},
    }
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(Side("benchmarks.sides.query_side", every=20, **each))
            for name, each in options.items()
        }
        sides["view"].ask("one_by_one", files=[(name, str(state)) for name in ("b", "c", "d")])
        for name, side in sides.items():
            if name != "view":
                side.ask("run", files=[("rows", str(state))])
            turn(name, side, WARM_UP)
        turns = rounds(effort.rounds, sides, turn)
    middle = {name: [statistics.median(times) for times in made] for name, made in turns.items()}
    late = {name: [percentile(times, 0.99) for times in made] for name, made in turns.items()}
    ratio = median_ratio(middle["view"], middle["aggregate"])
    of_twenty = median_ratio(middle["twenty"], middle["one"])
    figures = {f"{name} p50": Figure.of("ms", values) for name, values in middle.items()}
    figures |= {f"{name} p99": Figure.of("ms", values) for name, values in late.items()}
    quick = statistics.median(middle["view"]) <= MOST_P50 and statistics.median(late["view"]) <= MOST_P99
    return Result(
        name="view_latency",
        target=f"p50 of a step: at most {MOST:g} times that of a keyed aggregate, {MOST_P50} ms, p99 {MOST_P99} ms; "
        f"of twenty views at most {MOST_OF_TWENTY:g} times that of one",
        met=ratio <= MOST and of_twenty <= MOST_OF_TWENTY and quick,
        ratios={"keyed aggregate": ratio, "twenty views over one": of_twenty},
        figures=figures,
    )
