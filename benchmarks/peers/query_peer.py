"""The peer of a query over several inputs: the same query in Spark Structured Streaming, with its best settings.

State in RocksDB with changelog checkpointing, or in memory; a real checkpoint folder; Parquet file sources, one file a
batch; append mode; every batch written as Parquet by `foreachBatch`, idempotently under its number, which is what makes
it exactly-once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.peers.streaming_peer import SETTINGS, STATE_STORES
from benchmarks.sides.query_side import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Peer:
    """One streaming query, fed file by file."""

    def __init__(self) -> None:
        self._visible: list[float] = []
        self._fed: dict[str, int] = {}
        self._query: Any = None
        self._folder = Path()

    def prepare(self, folder: str, state: str, sources: list[str], query: str, distinct: str = "") -> Answer:
        """Make the session and start the query.

        Args:
            folder: The folder of all files.
            state: `rocksdb` or `memory`.
            sources: The inputs.
            query: The query.
            distinct: `dropDuplicates` of this column of the one input, in place of the query.
        """
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        self._folder = Path(folder)
        builder = SparkSession.builder.master("local[2]").appName(f"peer-{state}")
        # A join in memory keeps all rows of both sides on the heap: with the 4 GB of the others it ran out.
        heap = {"spark.driver.memory": "10g"} if state == "memory" else {}
        for name, value in (SETTINGS | STATE_STORES[state] | heap).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        output = self._folder / "output"

        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").option("compression", "snappy").parquet(str(output / f"batch={number}"))
            self._visible.append(time.monotonic())

        for name in sources:
            (self._folder / name).mkdir()
            self._fed[name] = 0
            stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self._folder / name))
            stream.createOrReplaceTempView(name)
        result = stream.select(distinct).dropDuplicates([distinct]) if distinct else spark.sql(query)
        self._query = (
            result.writeStream.outputMode("append")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .foreachBatch(write)
            .start()
        )
        return {"ready": True}

    def run(self, files: list[tuple[str, str]]) -> Answer:
        """Feed files, each an input's and a batch, and wait for as many batches."""
        begin, began = len(self._visible), time.monotonic()
        for source, file in files:
            feed(self._folder / source, self._fed[source], Path(file))
            self._fed[source] += 1
        self._wait(lambda: len(self._visible) >= begin + len(files))
        return {"visible": [at - began for at in self._visible[begin:]]}

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
