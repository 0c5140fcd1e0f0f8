"""The cost of a partial failure: seconds until outputs are fresh after one of eight processors failed, over all failed.

Both in a warm session, ten steps after the last checkpoint: in one case the Python workers of one processor are killed
while all others run on, in the other the process is killed and started again.
"""

from __future__ import annotations

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio
from benchmarks.harness.side import Side
from benchmarks.sides.eight_side import EVERY
from boatlift.processes.warm_jvm import WarmJvm

__all__ = ["measure"]

ROWS = 1_000
SINCE = EVERY // 2
"""Steps since the last checkpoint."""


def measure(effort: Effort) -> Result:
    """Fail a part and kill the whole as often as there are rounds."""
    keys = effort.keys(100_000)
    state = data.all_keys(keys, keys)
    small = [str(path) for path in cycled(data.drawn_keys(ROWS, keys, 100), 0, 4 * EVERY)]
    parts, others, wholes, replayed = [], [], [], []
    with WarmJvm() as jvm:
        for _ in range(effort.rounds + 1):
            with Side("benchmarks.sides.eight_side", jvm.environment()) as side:
                side.ask("start")
                side.run(state)
                begin = EVERY + SINCE
                side.ask("run", files=small[1:begin])
                part = side.ask("fail", file=small[begin])
                side.ask("run", files=small[begin + 1 : begin + EVERY])
                side.kill()
                side.start()
                whole = side.ask("start")
            parts.append(part["seconds"])
            others.append(part["others"])
            wholes.append(whole["seconds"])
            replayed.append(whole["replayed"])
    # The first round finds a JVM that has compiled none of this yet: it counts for neither.
    ratio = median_ratio(parts[1:], wholes[1:])
    return Result(
        name="partial_failure",
        target="seconds until outputs are fresh again, one of eight failed over all restarted: at most 0.2",
        met=ratio <= 0.2,
        ratios={"a restart in a warm session": ratio},
        figures={
            "one failed": Figure.of("s", parts[1:]),
            "all restarted": Figure.of("s", wholes[1:]),
            "replayed by all": Figure.of("steps", replayed[1:]),
            "the other seven meanwhile, from input to output": Figure.of("s", others[1:]),
        },
    )
