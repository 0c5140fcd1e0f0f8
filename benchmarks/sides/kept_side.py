"""Dataflows of one aggregation, with restore points and without; each runs while it is measured, and no longer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.harness.watch import Watch
from benchmarks.sides.boatlift_side import SETTINGS

if TYPE_CHECKING:
    import boatlift as bl

WAITING = 3
"""Files that wait while a dataflow runs, so that none waits for a file."""

INTERVALS = 1.4
"""A turn lasts so many intervals between two points: one point comes at the beginning, and one after an interval."""


class Kept:
    """Two dataflows in one session, so that both run on the same warm JVM."""

    def __init__(self) -> None:
        self._folder = Path()
        self._fed: dict[str, int] = {}

    def prepare(self, folder: str) -> Answer:
        """Make the session."""
        import boatlift as bl

        self._folder = Path(folder)
        self._spark = bl.session(master="local[2]", **SETTINGS)
        return {"ready": True}

    def run(self, name: str, files: list[str], every: float, keep: bool) -> Answer:
        """Run a dataflow for a while; return when its outputs and its restore points came, from the start.

        Args:
            name: The dataflow.
            files: Its input: one file a step, again and again.
            every: The seconds between two restore points.
            keep: Whether it keeps them.
        """
        import boatlift as bl

        watch, before = Watch(), self._fed.get(name, 0)
        (self._folder / f"{name}-input").mkdir(exist_ok=True)
        began = time.monotonic()
        watch.running = bl.start(
            self._flow(name, every if keep else None), self._folder / name, spark=self._spark, on_progress=watch
        )
        visible = watch.of("commit", "out")
        while time.monotonic() - began < every * INTERVALS:
            if self._fed.get(name, 0) - before < len(visible) + WAITING:
                self._feed(name, files)
            time.sleep(0.02)
        watch.running.stop()
        points = [at - began for at, _ in watch.of("kept", name)]
        return {"visible": [at - began for at, _ in visible], "points": points}

    def _feed(self, name: str, files: list[str]) -> None:
        number = self._fed.get(name, 0)
        feed(self._folder / f"{name}-input", number, Path(files[number % len(files)]))
        self._fed[name] = number + 1

    def _flow(self, name: str, every: float | None) -> bl.Dataflow:
        from pyspark.sql import functions as F

        import boatlift as bl

        keep = None if every is None else bl.Keep("7 days", every=f"{every:.0f} seconds")
        flow = bl.Dataflow(name, keep=keep)
        files = bl.files(
            self._folder / f"{name}-input", format="parquet", schema="k BIGINT, v DOUBLE", max_files_per_step=1
        )
        totals = (F.count("*").alias("n"), F.sum("v").alias("total"))
        sums = flow.source("rows", files).group_by("k").agg("sums", *totals)
        sums.sink("out", bl.parquet(self._folder / f"{name}-output", key=["k"], compression="snappy"))
        return flow


def main() -> None:
    """Serve the two dataflows."""
    side = Kept()
    serve({name: getattr(side, name) for name in ("prepare", "run")})


if __name__ == "__main__":
    main()
