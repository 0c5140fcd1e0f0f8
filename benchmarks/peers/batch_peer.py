"""The peer of a view: its query, run again by Spark over a table of all rows."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.side import Answer, serve
from benchmarks.peers.streaming_peer import SETTINGS


class Batch:
    """One session that runs one query."""

    def prepare(self, folder: str, query: str, files: list[str]) -> Answer:
        """Make the session.

        Args:
            folder: The folder of the result.
            query: The query; it reads `rows`.
            files: The Parquet files of the table.
        """
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        self._folder, self._query = Path(folder), query
        builder = SparkSession.builder.master("local[2]").appName("batch")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        self._spark: Any = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")
        self._spark.read.parquet(*files).createOrReplaceTempView("rows")
        return {"ready": True}

    def run(self, times: int) -> Answer:
        """Run the query so many times; return the milliseconds of each."""
        spent = []
        for _ in range(times):
            began = time.monotonic()
            result = self._spark.sql(self._query).write.mode("overwrite").option("compression", "snappy")
            result.parquet(str(self._folder / "result"))
            spent.append(1000 * (time.monotonic() - began))
        return {"ms": spent}


def main() -> None:
    """Serve one session."""
    side = Batch()
    serve({"prepare": side.prepare, "run": side.run})


if __name__ == "__main__":
    main()
