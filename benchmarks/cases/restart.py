"""A restart as state grows: from the start of the process to the first new output, on 10M keys against 100k keys.

The dataflow has stopped in good order, so nothing is replayed. Before each start the store's files leave the page
cache, as after a restart of the machine. The session is the same for all states; what comes after it is reported by
itself.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, rounds
from benchmarks.harness.side import Side

__all__ = ["measure"]

ROWS = 1000
SMALL, LARGE, LARGEST = "100k keys", "10M keys", "100M keys"


def measure(effort: Effort) -> Result:
    """Restart dataflows with a small and a large state, in turns; at full size a third one with ten times the keys."""
    sizes = {SMALL: effort.keys(100_000), LARGE: effort.keys(10_000_000)}
    if effort.scale == 1:
        sizes[LARGEST] = 100_000_000
    small = {name: data.drawn_keys(ROWS, keys, 100) for name, keys in sizes.items()}
    fed = dict.fromkeys(small, 0)

    def restart(name: str, side: Side) -> tuple[float, float]:
        """Start a side that was stopped; return the seconds to its first new output, and those without the session."""
        _leave_the_cache(side.folder / "store")
        began = time.monotonic()
        side.start(start=False)
        alone = float(side.ask("resume", files=[str(path) for path in cycled(small[name], fed[name], 1)])["seconds"])
        whole = time.monotonic() - began
        fed[name] += 1
        _stop(side)
        return whole, alone

    with ExitStack() as stack:
        sides = {name: stack.enter_context(Side("benchmarks.sides.boatlift_side", every=20)) for name in sizes}
        for name, side in sides.items():
            _fill(side, sizes[name])
        turns = rounds(effort.rounds, sides, restart)
    seconds = {name: [whole for whole, _ in found] for name, found in turns.items()}
    after = {name: [1000 * behind for _, behind in found] for name, found in turns.items()}
    ratios = {name: median_ratio(seconds[name], seconds[SMALL]) for name in seconds if name != SMALL}
    added = {name: [large - small for large, small in zip(after[name], after[SMALL], strict=True)] for name in ratios}
    return Result(
        name="restart",
        target="10M keys over 100k keys: at most 1.3",
        met=ratios[LARGE] <= 1.3,
        ratios=ratios,
        figures={f"{name}, from the process's start": Figure.of("s", found) for name, found in seconds.items()}
        | {f"{name}, once the session stands": Figure.of("ms", found) for name, found in after.items()}
        | {f"{name}, more than {SMALL}": Figure.of("ms", found) for name, found in added.items()},
    )


def _fill(side: Side, keys: int) -> None:
    """Fill the state and stop: all of it is in a checkpoint."""
    side.run(data.all_keys(keys, min(keys, 1_000_000)))
    _stop(side)


def _stop(side: Side) -> None:
    side.ask("stop")
    side.kill()


def _leave_the_cache(folder: Path) -> None:
    """Let the pages of all files of a folder go, which are on the disk: a restarted machine has none of them either."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
