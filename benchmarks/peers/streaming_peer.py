"""The peer: the same aggregation in Spark Structured Streaming, with its best settings.

State in RocksDB with changelog checkpointing, or in memory; a real checkpoint folder; a Parquet file source, one file a
batch; update mode; every batch written as Parquet by `foreachBatch`, idempotently under its number, which is what makes
it exactly-once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.side import Answer, feed, serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SETTINGS"]

SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.sql.streaming.metricsEnabled": "false",
    # A side that is stopped while the other is measured must not be taken for dead.
    "spark.network.timeout": "3600s",
}

STATE_STORES = {
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Counting keys costs a read for every write; Spark's guide advises to leave it off for speed.
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    },
    "memory": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        )
    },
}


class Peer:
    """One streaming query, fed file by file."""

    mode = "update"

    def __init__(self) -> None:
        self._visible: list[float] = []
        self._fed = 0
        self._query: Any = None
        self._folder = Path()

    def prepare(self, folder: str, state: str) -> Answer:
        """Make the session and start the query; `state` is `rocksdb` or `memory`."""
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        self._folder = Path(folder)
        builder = SparkSession.builder.master("local[2]").appName(f"peer-{state}")
        for name, value in (SETTINGS | STATE_STORES[state]).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        (self._folder / "input").mkdir(exist_ok=True)
        output = self._folder / "output"

        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").option("compression", "snappy").parquet(str(output / f"batch={number}"))
            self._visible.append(time.monotonic())

        rows = (
            spark.readStream.schema("k BIGINT, v DOUBLE")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._folder / "input"))
        )
        self._query = (
            self.query(rows)
            .writeStream.outputMode(self.mode)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .foreachBatch(write)
            .start()
        )
        return {"ready": True}

    def query(self, rows: DataFrame) -> DataFrame:
        """Return the frame that the query writes."""
        from pyspark.sql import functions as F

        return rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))

    def run(self, files: list[str]) -> Answer:
        """Feed files and wait for as many batches."""
        begin, reported = len(self._visible), len(self._progress())
        began = time.monotonic()
        for file in files:
            feed(self._folder / "input", self._fed, Path(file))
            self._fed += 1
        self._wait(lambda: len(self._visible) >= begin + len(files))
        self._wait(lambda: len(self._progress()) >= reported + len(files))
        batches = self._progress()[reported:]
        return {
            "visible": [at - began for at in self._visible[begin:]],
            "durations_ms": [batch["durationMs"]["triggerExecution"] for batch in batches],
            "breakdown_ms": [batch["durationMs"] for batch in batches],
            "rows": [batch["numInputRows"] for batch in batches],
        }

    def _progress(self) -> list[dict[str, Any]]:
        """Return the progress of the query's batches that had rows."""
        return [json.loads(p.json) for p in self._query.recentProgress if p.numInputRows]

    def _wait(self, done: Callable[[], bool]) -> None:
        while not done():
            if not self._query.isActive:
                raise RuntimeError(f"the query ended: {self._query.exception()}")
            time.sleep(0.01)


def main() -> None:
    """Serve one peer."""
    peer = Peer()
    serve({"prepare": peer.prepare, "run": peer.run})


if __name__ == "__main__":
    main()
