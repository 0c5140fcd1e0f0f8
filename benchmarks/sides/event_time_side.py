"""Our side of event time: windows that end, or duplicates within a time, with log, state and checkpoints."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.harness.event_data import SCHEMA, rows_held
from benchmarks.harness.side import Answer, feed, serve
from benchmarks.harness.watch import Watch
from benchmarks.sides.boatlift_side import SETTINGS


class EventTime:
    """One dataflow, fed file by file."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._fed = 0
        self._folder = Path()

    def prepare(self, folder: str, query: str, lateness: str) -> Answer:
        """Make the session and start the dataflow.

        Args:
            folder: The folder of all files.
            query: `windows`: counts and sums by minute and key; `dedup`: the first row of each key within the lateness.
            lateness: How late rows can be.
        """
        from pyspark.sql import functions as F

        import boatlift as bl

        self._folder = Path(folder)
        spark = bl.session(master="local[2]", **SETTINGS)
        spark.range(0, 1000, 1, 2).repartition(2, "id").mapInArrow(lambda batches: batches, "id long").collect()
        flow, policy = bl.Dataflow("bench"), bl.Lazy(every=5)
        (self._folder / "rows").mkdir()
        rows = flow.source("rows", bl.files(self._folder / "rows", format="parquet", schema=SCHEMA))
        timely = rows.with_watermark("timely", "at", lateness, policy=policy)
        if query == "windows":
            counted = F.count("*").alias("n"), F.sum("v").alias("s")
            made = timely.group_by(bl.window("at", "1 minute"), "k").agg("made", *counted, emit="final", policy=policy)
        else:
            made = timely.drop_duplicates("made", ["k"], within=lateness, policy=policy)
        made.sink("out", bl.parquet(self._folder / "output", compression="snappy"))
        self._watch.running = bl.start(flow, self._folder / "store", spark=spark, on_progress=self._watch)
        return {"ready": True}

    def run(self, files: list[str]) -> Answer:
        """Feed files, each a step, and wait for as many commits."""
        visible = self._watch.of("commit", "out")
        before, began = len(visible), time.monotonic()
        for file in files:
            feed(self._folder / "rows", self._fed, Path(file))
            self._fed += 1
        self._watch.wait(lambda: len(visible) >= before + len(files))
        return {"visible": [at - began for at, _ in visible[before:]]}

    def held(self, ended: int) -> Answer:
        """Return rows of the output, and how many rows they count; see `rows_held`."""
        return rows_held(self._folder / "output", ended)


def main() -> None:
    """Serve one dataflow."""
    side = EventTime()
    serve({"prepare": side.prepare, "run": side.run, "held": side.held})


if __name__ == "__main__":
    main()
