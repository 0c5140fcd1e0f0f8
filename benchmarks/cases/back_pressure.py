"""Back-pressure: what a sink that takes nothing for a while does to the checkpoints before it, and to a crash.

Both measured twice in one process: while the sink takes each step, and while it takes none. Then the process is killed
during another stall and started again. A crash comes at any moment, so its cost is the mean over moments. The worst
moment is reported: it is when the sink has stalled for nearly the interval between checkpoints, because a checkpoint
keeps messages only for a reader that lags by more. Flink's aligned checkpoints cannot complete during such a stall,
because their barriers wait behind the rows; its unaligned ones can.
"""

from __future__ import annotations

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from benchmarks.harness.side import Side
from benchmarks.sides.back_pressure_side import EVERY, SECONDS, UNITS

__all__ = ["measure"]

ROWS = 1_000
STEPS = 60
"""Steps of each phase: with the pauses between them some 20 seconds, five intervals."""

MOST = 2.0
MORE = 1.25


def measure(effort: Effort) -> Result:
    """Stall the sink, and kill the process in a stall, as often as there are rounds."""
    small = [str(path) for path in data.drawn_keys(ROWS, effort.keys(100_000), 4 * STEPS)]
    ages: dict[str, list[float]] = {name: [] for name in UNITS}
    without: list[float] = []
    replay, replay_without, most, most_without, killed = [], [], [], [], []
    for _ in range(effort.rounds):
        with Side("benchmarks.sides.back_pressure_side") as side:
            side.ask("run", files=small[:EVERY], stall=False)
            side.ask("settle")
            steady = side.ask("run", files=small[EVERY : EVERY + STEPS], stall=False)
            side.ask("settle")
            stalled = side.ask("run", files=small[EVERY + STEPS : EVERY + 2 * STEPS], stall=True)
            side.ask("settle")
            side.ask("run", files=small[EVERY + 2 * STEPS : 3 * STEPS], stall=True)
            (side.folder / "stall").unlink()
            side.kill()
            side.start()
            killed.append(side.ask("replayed")["steps"])
        for name in UNITS:
            ages[name].append(stalled["age"][name])
        without.append(max(steady["age"].values()))
        replay.append(stalled["replay"])
        replay_without.append(steady["replay"])
        most.append(stalled["most"])
        most_without.append(steady["most"])
    more = median_ratio(replay, replay_without)
    oldest = max(max(seconds) for seconds in ages.values())
    return Result(
        name="back_pressure",
        target=f"the oldest checkpoint before a sink that takes nothing, over its interval: at most {MOST:g}; steps to "
        f"replay after a crash, on average, over those without a stall: at most {MORE:g}",
        met=oldest / SECONDS <= MOST and more <= MORE,
        ratios={"the interval between checkpoints": oldest / SECONDS, "steps to replay without a stall": more},
        figures={
            **{f"oldest checkpoint of {name} in a stall": Figure.of("s", seconds) for name, seconds in ages.items()},
            "oldest checkpoint without a stall": Figure.of("s", without),
            "steps to replay, in a stall, mean": Figure.of("steps", replay),
            "steps to replay, without a stall, mean": Figure.of("steps", replay_without),
            "steps to replay, in a stall, at most": Figure.of("steps", most),
            "steps to replay, without a stall, at most": Figure.of("steps", most_without),
            "steps replayed by a process killed in a stall": Figure.of("steps", killed),
        },
    )
