"""A step of the top 3 of each of 10,000 groups over 10M rows, next to running the batch query again.

A step has 10,000 changes: half of them take a row back. The batch query reads one Parquet table of as many rows, and
writes its result as Parquet. The peers run after both, one step at a time too.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, rounds
from benchmarks.harness.side import Side
from benchmarks.peers.view_top_peers import TENTH, dbsp_steps, flink_steps

__all__ = ["measure"]

WARM_UP, TURN = 5, 10
GROUPS, CHANGES, FILE_ROWS = 10_000, 10_000, 1_000_000
TOP = """
    SELECT k, v, place FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS place FROM {rows})
    WHERE place <= 3
"""


def measure(effort: Effort) -> Result:
    """Measure, in turns: steps one at a time, and runs of the batch query."""
    rows = effort.keys(10_000_000)
    there = data.scores(rows, GROUPS, min(rows, FILE_ROWS))
    steps = data.score_changes(rows, GROUPS, min(CHANGES, rows // 100), WARM_UP + TURN * effort.rounds)
    fed = 0

    def turn(name: str, side: Side, count: int = TURN) -> list[float]:
        nonlocal fed
        if name == "batch":
            answer = side.ask("run", times=2)
        else:
            answer = side.ask("one_by_one", files=[("rows", str(file)) for file in steps[fed : fed + count]])
            fed += count
        times: list[float] = answer["ms"]
        return times

    with ExitStack() as stack:
        view = Side("benchmarks.sides.query_side", sources=["rows"], query=TOP.format(rows="now"), weighted=True)
        batch = Side("benchmarks.peers.batch_peer", query=TOP.format(rows="rows"), files=[str(file) for file in there])
        sides = {"view": stack.enter_context(view), "batch": stack.enter_context(batch)}
        sides["view"].ask("run", files=[("rows", str(file)) for file in there])
        for name, side in sides.items():
            turn(name, side, WARM_UP)
        turns = rounds(effort.rounds, sides, turn)
    turns |= {name: _turns(times, effort.rounds) for name, times in _peers(rows, there, steps) if times}
    middle = {name: [statistics.median(times) for times in made] for name, made in turns.items()}
    ratios = {name: median_ratio(times, middle["view"]) for name, times in middle.items() if name != "view"}
    ratio = ratios.pop("batch")
    return Result(
        name="view_top",
        target="a step: at least 20 times faster than the batch query; Flink SQL and DBSP, which is in memory and "
        "recovers nothing, are reported",
        met=ratio >= 20,
        ratios={"the batch query": ratio, **ratios},
        figures={f"{name} p50": Figure.of("ms", values) for name, values in middle.items()},
    )


def _peers(rows: int, there: list[Path], steps: list[Path]) -> Iterator[tuple[str, list[float]]]:
    """Yield the peers that can run here, and the milliseconds of their steps; the view and the batch have ended."""
    yield "DBSP", dbsp_steps(there, steps)
    fewer = rows // TENTH
    flink_there = data.scores(fewer, GROUPS, min(fewer, FILE_ROWS))
    flink_changes = data.score_changes(fewer, GROUPS, min(CHANGES, fewer // 100), len(steps))
    yield "Flink SQL, a tenth of the rows", flink_steps(flink_there, flink_changes)


def _turns(times: list[float], count: int) -> list[list[float]]:
    return [times[WARM_UP + TURN * number :][:TURN] for number in range(count)]
