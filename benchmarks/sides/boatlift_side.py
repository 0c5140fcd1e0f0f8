"""Our side: the same aggregation over the same files in Boatlift, with its log, its state and its checkpoints."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.harness.stores import CountingStore, VolatileStore
from benchmarks.harness.watch import Watch

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
        self._watch = Watch()
        self._store: CountingStore | None = None
        self._holders: list[subprocess.Popen[bytes]] = []

    def prepare(
        self,
        folder: str,
        policy: str = "lazy",
        every: int = 20,
        durable: bool = True,
        start: bool = True,
        url: str = "",
        delay: float = 0.0,
        rides: bool | None = None,
        peers: int = 0,
        delivers: bool = False,
        row_wise: bool = False,
        identified: bool = False,
        kafka: str = "",
    ) -> Answer:
        """Make the session and, if `start`, start the dataflow.

        Args:
            folder: The folder of all files; a store in it is continued.
            policy: Of the aggregation: `lazy`, `eager`, `history` or `logging` (of input: no checkpoints).
            every: Steps between two checkpoints, if it is lazy.
            durable: False: log and manifests go nowhere, nothing is synced, there are no checkpoints.
            start: Whether the dataflow starts now.
            url: Of the store, if it is in an object store.
            delay, rides: As for `CountingStore`.
            peers: So many processes hold what the log lacks, and all of them must.
            delivers: The sink is a function that does nothing, in place of a folder.
            row_wise: There is no aggregate, and the function gets rows.
            identified: The function recognises rows.
            kafka: Brokers at which the sink is a topic of the side's own, in place of a folder.
        """
        import boatlift as bl

        self._folder = Path(folder)
        (self._folder / "input").mkdir(exist_ok=True)
        self._fed = len(list((self._folder / "input").iterdir()))
        self._policy, self._every, self._durable, self._url = policy, every, durable, url
        self._delay, self._rides, self._peers, self._delivers = delay, rides, peers, delivers
        self._row_wise, self._identified, self._kafka = row_wise, identified, kafka
        self._spark = bl.session(master="local[2]", **SETTINGS)
        # Whatever the first job and the first Python worker of a session cost is not a dataflow's.
        self._spark.range(0, 1000, 1, 2).repartition(2, "id").mapInArrow(lambda batches: batches, "id long").collect()
        if kafka:
            from confluent_kafka.admin import AdminClient, NewTopic

            admin = AdminClient({"bootstrap.servers": kafka})
            for made in admin.create_topics([NewTopic(self._folder.name, 1, 1)]).values():
                made.result(60)
        return self.start() if start else {"ready": True}

    def start(self) -> Answer:
        """Start the dataflow, or go on with it."""
        from pyspark.sql import functions as F

        import boatlift as bl
        from boatlift.storage.opening import open_store, suited_to
        from boatlift.storage.store import Store

        policies: dict[str, bl.Lazy | bl.Eager | bl.History] = {
            "lazy": bl.Lazy(every=self._every if self._durable else NEVER),
            "logging": bl.Lazy(every=None),
            "eager": bl.Eager(),
            "history": bl.History(),
        }
        flow = bl.Dataflow("bench", determinants=f"peers:{self._peers}" if self._peers else "store")
        rows = flow.source("rows", bl.files(self._folder / "input", format="parquet", schema="k BIGINT, v DOUBLE"))
        if self._row_wise:
            sums = rows.transform("sums", lambda df: df.withColumn("total", F.col("v") * 2))
        else:
            sums = rows.group_by("k").agg(
                "sums",
                F.count("*").alias("n"),
                F.sum("v").alias("total"),
                policy=policies[self._policy],
            )
        if self._identified:
            sums.sink("out", bl.foreach(pass_over, key=["k", "v"]))
        elif self._delivers:
            sums.sink("out", bl.foreach(pass_over))
        elif self._kafka:
            sums.sink("out", bl.kafka.sink(self._kafka, self._folder.name, key="k", rows="upsert"))
        else:
            sums.sink("out", bl.parquet(self._folder / "output", key=["k"], compression="snappy"))
        store: Store = VolatileStore(self._folder / "scratch")
        if self._durable:
            store = suited_to(open_store(self._url or self._folder / "store", create=True), "local[2]")
        self._store = CountingStore(store, self._delay, rides=self._rides)
        self._watch.running = bl.start(flow, self._store, spark=self._spark, on_progress=self._watch)
        for _ in range(self._peers):
            command = [sys.executable, "-m", "benchmarks.sides.holder", self._url or str(self._folder / "store")]
            self._holders.append(subprocess.Popen(command))
        return {"ready": True}

    def run(self, files: list[str]) -> Answer:
        """Feed files and wait for as many commits."""
        visible, steps = self._watch.of("commit", "out"), self._watch.of("step", "sums")
        before, begun = len(visible), len(steps)
        began = time.monotonic()
        for file in files:
            feed(self._folder / "input", self._fed, Path(file))
            self._fed += 1
        self._watch.wait(lambda: len(visible) >= before + len(files))
        return {
            "visible": [at - began for at, _ in visible[before:]],
            "durations_ms": [step.durationMs for _, step in steps[begun : begun + len(files)]],
        }

    def resume(self, files: list[str]) -> Answer:
        """Start the dataflow with files that wait; return the seconds until the last of them is in the sink."""
        for file in files:
            feed(self._folder / "input", self._fed, Path(file))
            self._fed += 1
        began = time.monotonic()
        self.start()
        # By its number: what is replayed before it is compared with the sink and reported too.
        self._watch.wait(lambda: self._watch.last("commit", "out") >= self._fed - 1)
        seconds = self._watch.of("commit", "out")[-1].at - began
        return {"seconds": seconds, "replayed": sum(step.replay for _, step in self._watch.of("step", "sums"))}

    def checkpoint(self) -> Answer:
        """Wait until all input is in a checkpoint; return the objects that were created since the last call.

        Only with `every=1`, where each step is followed by one.
        """
        self._watch.wait(lambda: self._watch.last("checkpoint", "sums") >= self._fed - 1)
        assert self._store is not None
        created, self._store.created = self._store.created, []
        return {"created": created, "bytes": sum(size for _, size in created)}

    def stop(self) -> Answer:
        """Stop cleanly: everything is in a checkpoint."""
        self._watch.running.stop()
        return {"stopped": True}


def pass_over(_rows: object, _step: int) -> None:
    """Receive a step, and do nothing."""


def main() -> None:
    """Serve one dataflow."""
    side = Boatlift()
    serve({name: getattr(side, name) for name in ("prepare", "start", "run", "resume", "checkpoint", "stop")})


if __name__ == "__main__":
    main()
