"""The bytes that a checkpoint writes after 1% of 1M keys changed, over the bytes of the full state."""

from __future__ import annotations

import statistics

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result
from benchmarks.harness.side import Side

__all__ = ["measure"]

CHECKPOINTS = 20


def measure(effort: Effort) -> Result:
    """Count every byte that the store gets for each checkpoint: compaction, log and manifests included."""
    keys = effort.keys(1_000_000)
    changes = data.all_keys(keys, keys // 100)[:CHECKPOINTS]
    with Side("benchmarks.sides.boatlift_side", every=1) as side:
        side.run(data.all_keys(keys, keys))
        full = sum(size for name, size in side.ask("checkpoint")["created"] if name.startswith("runs/"))
        written = []
        for change in changes:
            side.run([change])
            written.append(side.ask("checkpoint")["bytes"])
    shares = [each / full for each in written]
    return Result(
        name="checkpoint_size",
        target="bytes written over bytes of the full state: at most 0.05",
        met=statistics.fmean(shares) <= 0.05,
        ratios={"mean": float(f"{statistics.fmean(shares):.4g}"), "largest": float(f"{max(shares):.4g}")},
        figures={
            "full state": Figure.of("bytes", [full]),
            "written for a checkpoint": Figure.of("bytes", written),
        },
    )
