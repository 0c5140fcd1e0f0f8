"""The cost of restore points: throughput with one each minute over that with none, 1M keys and 1M rows a step.

Rates are those of a minute in which one point falls, and of the same minute of a dataflow that keeps none.
"""

from __future__ import annotations

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, rounds, rows_per_second
from benchmarks.harness.side import Answer, Side

__all__ = ["measure"]

SECONDS, FEWEST = 60, 10
"""From one point to the next; and at a smaller scale, where a minute is for nothing, no less than this."""

FILES = 12

LEAST = 0.98

KEPT, NONE = "a point each minute", "no points"


def measure(effort: Effort) -> Result:
    """Measure both, in turns, after one turn that warms the session up."""
    rows = effort.keys(1_000_000)
    files = [str(path) for path in data.drawn_keys(rows, rows, FILES)]
    every = max(FEWEST, SECONDS / effort.scale)
    with Side("benchmarks.sides.kept_side") as side:

        def turn(name: str, _: Side) -> float:
            keep = name == KEPT
            answer = side.ask("run", name="kept" if keep else "plain", files=files, every=every, keep=keep)
            return rows_per_second(_of_one_point(answer, every, points=int(keep)), rows)

        for name in (KEPT, NONE):
            side.ask("run", name=f"warm-{name[:1]}", files=files, every=FEWEST, keep=name == KEPT)
        rates = rounds(effort.rounds, dict.fromkeys((KEPT, NONE), side), turn)
    ratio = median_ratio(rates[KEPT], rates[NONE])
    return Result(
        name="keep",
        target=f"throughput with restore points each minute over that with none: at least {LEAST:g}",
        met=ratio >= LEAST,
        ratios={NONE: ratio},
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )


def _of_one_point(answer: Answer, every: float, points: int) -> Answer:
    """Return the outputs from a quarter of the interval on and for as long as one: a point falls in its last quarter.

    Raises:
        RuntimeError: There were fewer points in it, or more.
    """
    begin, end = every / 4, every * 5 / 4
    found = [at for at in answer["points"] if begin <= at < end]
    if len(found) != points:
        raise RuntimeError(f"points after {answer['points']} s, where {points} belong between {begin} and {end} s")
    return {"visible": [at for at in answer["visible"] if begin <= at < end]}
