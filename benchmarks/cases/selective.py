"""The rows that the user's functions execute again after one processor failed, over those after all processors failed.

Two inputs, one five epochs late; each processor in turn fails half an interval after the last checkpoint. A process
that is killed at the same moment rolls back to the last total checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result
from benchmarks.harness.side import Side
from benchmarks.sides.selective_side import EVERY, PROCESSORS
from boatlift.processes.warm_jvm import WarmJvm

__all__ = ["measure"]

ROWS = 1_000
LATE = 5
BEFORE = EVERY + EVERY // 2
"""So many steps are complete when something fails."""


def measure(effort: Effort) -> Result:
    """Let each processor fail alone, then all; rows are counted, so that once is enough."""
    files = [str(path) for path in data.drawn_keys(ROWS, effort.keys(100_000), BEFORE + LATE + 1)]
    again: dict[str, int] = {}
    with WarmJvm() as jvm:
        for who in (*PROCESSORS, "everything"):
            with Side("benchmarks.sides.selective_side", jvm.environment()) as side:
                before = side.ask("run", early=files[: BEFORE + LATE], late=files[:BEFORE])
                if who == "everything":
                    side.kill()
                    again[who] = _more(before, side.start(), 0)
                else:
                    after = side.ask("fail", who=who, early=files[BEFORE + LATE], late=files[BEFORE])
                    again[who] = _more(before, after, 4 * ROWS)  # a step of each reader, and of their sum
    ratios = {f"{who} fails": float(f"{again[who] / again['everything']:.4g}") for who in PROCESSORS}
    return Result(
        name="selective",
        target="rows executed again, one processor failed over a rollback to the last total checkpoint: at most 0.5",
        met=max(ratios.values()) <= 0.5,
        ratios=ratios,
        figures={f"{who} fails: executed again": Figure.of("rows", [rows]) for who, rows in again.items()},
    )


def _more(before: Mapping[str, int], after: Mapping[str, int], new: int) -> int:
    """Return the number of rows executed between two counts, without new ones."""
    return sum(after[name] - before[name] for name in PROCESSORS) - new
