"""The cost of a crash: SIGKILL at 1M keys, in a warm session, until the first new output is in the sink.

Taken off is what the same first step takes on empty state, in the same warm session: it is no recovery. The two take
turns in going first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled
from benchmarks.harness.side import Side
from benchmarks.sides.boatlift_side import SETTINGS
from boatlift.processes.warm_jvm import WarmJvm

__all__ = ["measure"]

ROWS = 1000
STEPS = 29  # with a checkpoint every 20 steps, about ten of them are replayed


def measure(effort: Effort) -> Result:
    """Kill and resume as often as there are rounds."""
    keys = effort.keys(1_000_000)
    state = data.all_keys(keys, keys)
    small = data.drawn_keys(ROWS, keys, 100)
    empty, resumed = [], []
    with WarmJvm(conf=SETTINGS) as jvm:
        for number in range(-1, effort.rounds):
            first = [str(path) for path in cycled(small, max(number, 0), 1)]
            sides: list[Callable[[], None]] = [
                lambda: empty.append(_on_empty_state(jvm, first)),  # noqa: B023 used at once
                lambda: resumed.append(_after_a_crash(jvm, state, cycled(small, max(number, 0), STEPS), first)),  # noqa: B023
            ]
            for side in sides if number % 2 else reversed(sides):
                side()
    # The first round finds a JVM that has compiled none of this yet: it counts for neither.
    del empty[0], resumed[0]
    replayed = [steps for _, steps in resumed]
    seconds = [after for after, _ in resumed]
    added = [after - before for after, before in zip(seconds, empty, strict=True)]
    return Result(
        name="recovery",
        target="seconds that a crash adds to the first new output: under 0.5",
        met=statistics.median(added) < 0.5,
        ratios={"seconds added": float(f"{statistics.median(added):.4g}")},
        figures={
            "first new output after SIGKILL": Figure.of("s", seconds),
            "first output on empty state": Figure.of("s", empty),
            "added": Figure.of("s", added),
            "replayed": Figure.of("steps", replayed),
        },
    )


def _on_empty_state(jvm: WarmJvm, first: list[str]) -> float:
    with Side("benchmarks.sides.boatlift_side", jvm.environment(), start=False) as side:
        return float(side.ask("resume", files=first)["seconds"])


def _after_a_crash(jvm: WarmJvm, state: list[Path], before: list[Path], first: list[str]) -> tuple[float, int]:
    """Fill the state, kill the process, and return the seconds to the first new output and the steps replayed."""
    with Side("benchmarks.sides.boatlift_side", jvm.environment(), every=20) as side:
        side.run(state)
        side.run(before)
        side.kill()
        side.start(start=False)
        answer = side.ask("resume", files=first)
    return float(answer["seconds"]), int(answer["replayed"])
