"""Our side: the same aggregation over the same files in Boatlift, with its log, its state and its checkpoints."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.side import Answer, feed, serve
from benchmarks.stores import CountingStore, VolatileStore

__all__ = ["SETTINGS"]

SETTINGS = {
    "spark.driver.memory": "4g",
    # A side that is stopped while the other is measured must not be taken for dead.
    "spark.network.timeout": "3600s",
}

NEVER = 1 << 30


class Boatlift:
    """One dataflow, fed file by file."""

    def __init__(self) -> None:
        self._fed = 0
        self._folder = Path()
        self._visible: list[float] = []
        self._steps: list[float] = []
        self._checkpoints: list[int] = []
        self._committed = -1
        self._replayed = 0
        self._changed = threading.Condition()
        self._store: CountingStore | None = None
        self._running: Any = None

    def prepare(self, folder: str, every: int = 20, durable: bool = True, start: bool = True) -> Answer:
        """Makes the session and, if `start`, starts the dataflow.

        Args:
            folder: Where everything is kept; a store that is there is gone on with.
            every: Steps between two checkpoints.
            durable: False: log and manifests go nowhere, nothing is synced, there are no checkpoints.
            start: Whether the dataflow starts already.
        """
        import boatlift as bl

        self._folder = Path(folder)
        (self._folder / "input").mkdir(exist_ok=True)
        self._fed = len(list((self._folder / "input").iterdir()))
        self._every, self._durable = every, durable
        self._spark = bl.session(master="local[2]", **SETTINGS)
        # Whatever the first job and the first Python worker of a session cost is not a dataflow's.
        self._spark.range(0, 1000, 1, 2).repartition(2, "id").mapInArrow(lambda batches: batches, "id long").collect()
        return self.start() if start else {"ready": True}

    def start(self) -> Answer:
        """Starts the dataflow, or goes on with it."""
        from pyspark.sql import functions as F

        import boatlift as bl
        from boatlift.storage.local import LocalStore

        flow = bl.Dataflow("bench")
        rows = flow.source("rows", bl.files(self._folder / "input", format="parquet", schema="k BIGINT, v DOUBLE"))
        sums = rows.group_by("k").agg(
            "sums",
            F.count("*").alias("n"),
            F.sum("v").alias("total"),
            policy=bl.Lazy(every=self._every if self._durable else NEVER),
        )
        sums.sink("out", bl.parquet(self._folder / "output", key=["k"], compression="snappy"))
        self._store = CountingStore(
            LocalStore.open(self._folder / "store", create=True)
            if self._durable
            else VolatileStore(self._folder / "scratch")
        )
        self._running = bl.start(flow, self._store, spark=self._spark, on_progress=self._note)
        return {"ready": True}

    def run(self, files: list[str]) -> Answer:
        """Feeds files and waits for as many commits."""
        begin, steps = len(self._visible), len(self._steps)
        began = time.monotonic()
        for file in files:
            feed(self._folder / "input", self._fed, Path(file))
            self._fed += 1
        self._wait(lambda: len(self._visible) >= begin + len(files))
        return {
            "visible": [at - began for at in self._visible[begin:]],
            "durations_ms": self._steps[steps : steps + len(files)],
        }

    def resume(self, files: list[str]) -> Answer:
        """Starts the dataflow with files that wait for it: how long until the last of them is in the sink."""
        for file in files:
            feed(self._folder / "input", self._fed, Path(file))
            self._fed += 1
        began = time.monotonic()
        self.start()
        # By its number: what is replayed before it is compared with the sink and reported too.
        self._wait(lambda: self._committed >= self._fed - 1)
        return {"seconds": self._visible[-1] - began, "replayed": self._replayed}

    def checkpoint(self) -> Answer:
        """Waits until all that was fed is in a checkpoint; tells what was created since the last time it was asked.

        Only with `every=1`, where each step is followed by one.
        """
        self._wait(lambda: bool(self._checkpoints) and self._checkpoints[-1] >= self._fed - 1)
        assert self._store is not None
        created, self._store.created = self._store.created, []
        return {"created": created, "bytes": sum(size for _, size in created)}

    def stop(self) -> Answer:
        """Stops cleanly: everything is in a checkpoint."""
        self._running.stop()
        return {"stopped": True}

    def _note(self, progress: Any) -> None:
        with self._changed:
            match progress.what:
                case "commit":
                    self._visible.append(time.monotonic())
                    self._committed = progress.time
                case "step":
                    self._steps.append(progress.durationMs)
                    self._replayed += progress.replay
                case "checkpoint":
                    self._checkpoints.append(progress.time)
            self._changed.notify_all()

    def _wait(self, done: Callable[[], bool]) -> None:
        with self._changed:
            while not done():
                self._changed.wait(0.1)
                if not self._running.is_active:
                    self._running.wait()
                    raise RuntimeError("the dataflow ended though nobody stopped it")


def main() -> None:
    """Serves one dataflow."""
    side = Boatlift()
    serve({name: getattr(side, name) for name in ("prepare", "start", "run", "resume", "checkpoint", "stop")})


if __name__ == "__main__":
    main()
