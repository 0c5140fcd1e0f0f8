"""A dataflow whose sink takes nothing for a while: an aggregate, an aggregate over its changes, and `foreach`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import nan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.harness.watch import Watch

if TYPE_CHECKING:
    import pyarrow as pa

    from boatlift.runtime.inspect.status import DataflowStatus

__all__ = ["EVERY", "SECONDS", "UNITS"]

EVERY = 5
SECONDS = 4.0
"""The interval between checkpoints of each aggregate: so many steps, and so many seconds."""

UNITS = ("sums", "groups")
PAUSE = 0.3
"""A file comes so many seconds after the one before."""


def stalling_while(there: Path) -> Callable[[pa.Table, int], None]:
    """Return a function for `bl.foreach` that does not return while a file exists."""

    def deliver(_rows: pa.Table, _step: int) -> None:
        while there.exists():
            time.sleep(0.02)

    return deliver


class Stalling:
    """One dataflow, fed file by file whether its sink takes steps or not."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._folder = Path()
        self._fed = 0

    def prepare(self, folder: str) -> Answer:
        """Start the dataflow, or go on with it."""
        from pyspark.sql import functions as F

        import boatlift as bl

        self._folder = Path(folder)
        (self._folder / "input").mkdir(exist_ok=True)
        self._fed = len(list((self._folder / "input").iterdir()))
        spark = bl.session()
        spark.range(0, 1000, 1, 2).repartition(2, "id").mapInArrow(lambda batches: batches, "id long").collect()
        flow = bl.Dataflow("stalling")
        policy = bl.Lazy(EVERY, SECONDS)
        rows = flow.source(
            "rows",
            bl.files(self._folder / "input", format="parquet", schema="k BIGINT, v DOUBLE", max_files_per_step=1),
        )
        sums = rows.group_by("k").agg("sums", F.count("*").alias("n"), F.sum("v").alias("total"), policy=policy)
        grouped = sums.transform("grouped", lambda df: df.withColumn("g", F.col("k") % 100))
        groups = grouped.group_by("g").agg("groups", F.sum("n").alias("n"), policy=policy)
        groups.sink("out", bl.foreach(stalling_while(self._folder / "stall")))
        self._watch.running = bl.start(flow, self._folder / "store", spark=spark, on_progress=self._watch)
        return {"ready": True}

    def run(self, files: list[str], *, stall: bool) -> Answer:
        """Feed files at a steady pace; with `stall` the sink takes none of them.

        Returns:
            `age`: by unit, the greatest age of its newest checkpoint: how long ago the first step was executed that is
            not in it. `replay` and `most`: the steps that a crash would have executed again, of all units, on average
            over the looks at the store, and at the worst look.
        """
        flag = self._folder / "stall"
        if stall:
            flag.touch()
        ages, replay = dict.fromkeys(UNITS, 0.0), list[float]()
        for file in files:
            feed(self._folder / "input", self._fed, Path(file))
            self._fed += 1
            for status in self._looks(PAUSE):
                ages = {name: max(age, self._age(status, name)) for name, age in ages.items()}
                replay.append(sum(status.processors[name].to_replay for name in UNITS))
        # A dataflow that is being started may have no step at any look.
        return {"age": ages, "replay": fmean(replay or [nan]), "most": max(replay, default=nan), "fed": self._fed}

    def settle(self) -> Answer:
        """Let the sink take steps again; return when it has all that was fed."""
        (self._folder / "stall").unlink(missing_ok=True)
        self._watch.wait(lambda: self._watch.last("commit", "out") >= self._fed - 1)
        return {"fed": self._fed}

    def replayed(self) -> Answer:
        """Return how many steps the dataflow has executed again since its start, and how long all of them took."""
        began = time.monotonic()
        self._watch.wait(lambda: self._watch.last("commit", "out") >= self._fed - 1)
        steps = sum(step.progress.replay for name in UNITS for step in self._watch.of("step", name))
        return {"steps": steps, "seconds": time.monotonic() - began}

    def _looks(self, seconds: float) -> Iterator[DataflowStatus]:
        """Yield the status of the store, again and again for some seconds."""
        from boatlift.runtime.inspect.contents import log_at
        from boatlift.runtime.inspect.status import status_of

        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._watch.of("step", UNITS[0]):
                yield status_of(log_at(self._folder / "store"))
            time.sleep(0.1)

    def _age(self, status: DataflowStatus, name: str) -> float:
        checkpoint = status.processors[name].checkpoint
        unsaved = [step.at for step in self._watch.of("step", name) if step.progress.time > checkpoint]
        return time.monotonic() - min(unsaved) if unsaved else 0.0


def main() -> None:
    """Serve one dataflow."""
    side = Stalling()
    serve({name: getattr(side, name) for name in ("prepare", "run", "settle", "replayed")})


if __name__ == "__main__":
    main()
