"""How long a crash costs: SIGKILL at 1M keys, in a warm session, until the first new output is in the sink.

Taken off is what the same first step takes on empty state, in the same warm session: it is no recovery.
"""

from __future__ import annotations

import statistics

from benchmarks import data
from benchmarks.boatlift_side import SETTINGS
from benchmarks.harness import Effort, Figure, Result, cycled
from benchmarks.side import Side
from boatlift.testing.warm_jvm import WarmJvm

__all__ = ["measure"]

ROWS = 1000
STEPS = 29  # with a checkpoint every 20 steps, about ten of them are replayed


def measure(effort: Effort) -> Result:
    """Kills and resumes as often as there are rounds."""
    keys = effort.keys(1_000_000)
    state = data.all_keys(keys, keys)
    small = data.drawn_keys(ROWS, keys, 100)
    empty, resumed, replayed = [], [], []
    with WarmJvm(conf=SETTINGS) as jvm:
        for number in range(effort.rounds):
            first = cycled(small, number, 1)
            with Side("benchmarks.boatlift_side", jvm.environment(), start=False) as side:
                empty.append(side.ask("resume", files=[str(path) for path in first])["seconds"])
            with Side("benchmarks.boatlift_side", jvm.environment(), every=20) as side:
                side.run(state)
                side.run(cycled(small, number, STEPS))
                side.kill()
                side.start(start=False)
                answer = side.ask("resume", files=[str(path) for path in first])
            resumed.append(answer["seconds"])
            replayed.append(answer["replayed"])
    added = [after - before for after, before in zip(resumed, empty, strict=True)]
    return Result(
        name="recovery",
        target="seconds that a crash adds to the first new output: under 0.5",
        met=statistics.median(added) < 0.5,
        ratios={"seconds added": float(f"{statistics.median(added):.4g}")},
        figures={
            "first new output after SIGKILL": Figure.of("s", resumed),
            "first output on empty state": Figure.of("s", empty),
            "added": Figure.of("s", added),
            "replayed": Figure.of("steps", replayed),
        },
    )
