"""Sums, minima and distinct counts by key under an approach to fault tolerance, and what it keeps where."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.harness.usage import resident_bytes
from benchmarks.harness.watch import Watch
from benchmarks.sides.boatlift_side import SETTINGS

__all__ = ["APPROACHES", "QUERY"]

QUERY = """SELECT k, sum(v) AS total, min(v) AS least, count(DISTINCT CAST(v / 10 AS INT)) AS kinds
FROM rows GROUP BY k"""

APPROACHES = ("input logging", "checkpoint and restore", "persistent state")


class Approach:
    """One dataflow, fed file by file."""

    def __init__(self) -> None:
        self._folder = Path()
        self._fed = 0
        self._watch = Watch()
        self._peak = 0

    def prepare(self, folder: str, approach: str, start: bool = True) -> Answer:
        """Make the session and, if `start`, start the dataflow; what else is in the store is continued."""
        import boatlift as bl

        self._folder, self._approach = Path(folder), approach
        (self._folder / "input").mkdir(exist_ok=True)
        self._fed = len(list((self._folder / "input").iterdir()))
        self._spark = bl.session(master="local[2]", **SETTINGS)
        self._spark.range(0, 1000, 1, 2).repartition(2, "id").mapInArrow(lambda batches: batches, "id long").collect()
        threading.Thread(target=self._sample, daemon=True).start()
        return self.start() if start else {"ready": True}

    def start(self) -> Answer:
        """Start the dataflow, or go on with it."""
        import boatlift as bl

        policies = (bl.Lazy(None), bl.Lazy(20, state="in memory"), bl.Lazy(20))
        policy = dict(zip(APPROACHES, policies, strict=True))[self._approach]
        flow = bl.Dataflow("approaches")
        schema = "k BIGINT, v DOUBLE"
        flow.source("rows", bl.files(self._folder / "input", format="parquet", schema=schema, max_files_per_step=1))
        totals = flow.sql("totals", QUERY, policy=policy)
        totals.sink("out", bl.parquet(self._folder / "output", key=["k"], compression="snappy"))
        self._watch.running = bl.start(flow, self._folder / "store", spark=self._spark, on_progress=self._watch)
        return {"ready": True}

    def run(self, files: list[str]) -> Answer:
        """Feed files and wait until their outputs can be seen."""
        visible = self._watch.of("commit", "out")
        before, began = len(visible), time.monotonic()
        self._feed(files)
        self._watch.wait(lambda: len(visible) >= before + len(files))
        return {"visible": [at - began for at, _ in visible[before:]]}

    def resume(self, files: list[str]) -> Answer:
        """Start after a death of the computer: scratch is gone; return the seconds to the output of new files."""
        shutil.rmtree(self._folder / "store" / "scratch", ignore_errors=True)
        self._feed(files)
        began = time.monotonic()
        self.start()
        self._watch.wait(lambda: self._watch.last("commit", "out") >= self._fed - 1)
        seconds = self._watch.of("commit", "out")[-1].at - began
        return {"seconds": seconds, "replayed": sum(step.replay for _, step in self._watch.of("step", "totals"))}

    def kept(self) -> Answer:
        """Return the bytes of each part of storage, of states in memory, and of resident memory at most."""
        from boatlift.storage.local import LocalStore
        from boatlift.storage.log import Log
        from boatlift.storage.records.payloads import runs_of

        store = LocalStore.open(self._folder / "store", create=False)
        states = Log.open(store, None).history.live_records.states.get("totals", {})
        newest = max(states, default=None)
        runs = [] if newest is None else list(runs_of(states[newest].payload))
        return {
            "input": _bytes_in(self._folder / "input"),
            "log": _bytes_in(self._folder / "store" / "log"),
            "deltas": sum(run.size for run in runs if run.first > 0),
            "snapshots": sum(run.size for run in runs if run.first == 0),
            "output": _bytes_in(self._folder / "output"),
            "memory": _bytes_in(Path(os.environ["BOATLIFT_MEMORY"])),
            "peak": self._peak,
        }

    def _feed(self, files: list[str]) -> None:
        for file in files:
            feed(self._folder / "input", self._fed, Path(file))
            self._fed += 1

    def _sample(self) -> None:
        while True:
            self._peak = max(self._peak, resident_bytes(os.getpid()))
            time.sleep(0.5)


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Serve one dataflow."""
    side = Approach()
    serve({name: getattr(side, name) for name in ("prepare", "run", "resume", "kept")})


if __name__ == "__main__":
    main()
