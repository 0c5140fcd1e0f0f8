"""The way back over 1,000 steps with 1M keys in the state, over executing these steps again, which the next run does.

A step is a file of 1,000 rows; steps that wait share Spark jobs, so that the replay is quick. Sinks go back in ways of
their own: Parquet takes back what its files say; SQLite is compared with the past up to the point, which is computed.
Each has its store.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from benchmarks.harness.side import Side

__all__ = ["measure"]

STEPS, ROWS = 1000, 1000

SINKS = {"Parquet": "changes", "SQLite": "table"}

MOST = 0.1


def measure(effort: Effort) -> Result:
    """Go back and forth, again and again."""
    keys = effort.keys(1_000_000)
    state = data.all_keys(keys, keys)
    steps = data.drawn_keys(min(ROWS, keys // 10), keys, min(STEPS, effort.keys(10 * STEPS) // 10))
    taken = {kind: _back_and_forth(sink, state, steps, effort.rounds) for kind, sink in SINKS.items()}
    ratios = {kind: median_ratio(back, again) for kind, (back, again) in taken.items()}
    figures: dict[str, Figure] = {}
    for kind, (back, again) in taken.items():
        figures |= {f"{kind}, back": Figure.of("s", back), f"{kind}, {len(steps)} steps": Figure.of("s", again)}
    return Result(
        name="rewind",
        target=f"stopped time of the way back over that of replaying its {STEPS} steps: at most {MOST:g} for each sink",
        met=max(ratios.values()) <= MOST,
        ratios=ratios,
        figures=figures,
    )


def _back_and_forth(sink: str, state: list[Path], steps: list[Path], count: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each way back, and of each replay; the first of both warms the session up."""
    back, again = [], []
    with Side("benchmarks.sides.changing_side") as side:
        side.ask("feed", files=[str(path) for path in state])
        side.ask("run", sinks=[sink])
        for number in range(count + 1):
            # A point of its own for each way back: what the sink got on earlier ones is before it.
            side.ask("keep", name=f"round-{number}")
            if number == 0:
                side.ask("feed", files=[str(path) for path in steps])
            again.append(float(side.ask("run", sinks=[sink])["seconds"]))
            answer = side.ask("rewind", to=f"round-{number}", sinks=[sink])
            if answer["undone"] != len(steps):
                raise RuntimeError(f"{answer['undone']} steps were undone in place of {len(steps)}")
            back.append(float(answer["seconds"]))
    return back[1:], again[1:]
