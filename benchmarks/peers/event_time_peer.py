"""The peer of event time: the same in Spark Structured Streaming, with `withWatermark` and its best settings.

Settings, checkpoints and output are those of `query_peer`. In append mode a window comes once, as ours does.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.event_data import SCHEMA, rows_held
from benchmarks.harness.side import Answer, feed, serve
from benchmarks.peers.streaming_peer import SETTINGS, STATE_STORES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EventTimePeer:
    """One streaming query, fed file by file."""

    def __init__(self) -> None:
        self._visible: list[float] = []
        self._fed = 0
        self._query: Any = None
        self._folder = Path()

    def prepare(self, folder: str, state: str, query: str, lateness: str) -> Answer:
        """Make the session and start the query.

        Args:
            folder: The folder of all files.
            state: `rocksdb` or `memory`.
            query, lateness: As of our side.
        """
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as F

        self._folder = Path(folder)
        builder = SparkSession.builder.master("local[2]").appName(f"peer-{state}")
        heap = {"spark.driver.memory": "10g"} if state == "memory" else {}
        # A batch without rows after each would only cost the peer time: the next rows bring what it would.
        settings = SETTINGS | STATE_STORES[state] | heap | {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        output = self._folder / "output"

        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").option("compression", "snappy").parquet(str(output / f"batch={number}"))
            self._visible.append(time.monotonic())

        (self._folder / "rows").mkdir()
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self._folder / "rows"))
        timely = rows.withWatermark("at", lateness)
        if query == "windows":
            made = timely.groupBy(F.window("at", "1 minute"), "k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
            made = made.select(F.col("window.end").alias("window_end"), "k", "n", "s")
        else:
            made = timely.dropDuplicatesWithinWatermark(["k"])
        self._query = (
            made.writeStream.outputMode("append")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .foreachBatch(write)
            .start()
        )
        return {"ready": True}

    def run(self, files: list[str]) -> Answer:
        """Feed files, each a batch, and wait for as many batches."""
        before, began = len(self._visible), time.monotonic()
        for file in files:
            feed(self._folder / "rows", self._fed, Path(file))
            self._fed += 1
        while len(self._visible) < before + len(files):
            if not self._query.isActive:
                raise RuntimeError(f"the query ended: {self._query.exception()}")
            time.sleep(0.01)
        return {"visible": [at - began for at in self._visible[before:]]}

    def held(self, ended: int) -> Answer:
        """Return rows of the output, and how many rows they count; see `rows_held`."""
        return rows_held(self._folder / "output", ended)


def main() -> None:
    """Serve one peer."""
    peer = EventTimePeer()
    serve({"prepare": peer.prepare, "run": peer.run, "held": peer.held})


if __name__ == "__main__":
    main()
