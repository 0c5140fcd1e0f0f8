"""One side of Nexmark: each query from its input's beginning to its end, in Boatlift or in Structured Streaming."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cases.nexmark_queries import COLUMNS, QUERIES, SIDE_INPUT
from benchmarks.harness.side import Answer, serve
from benchmarks.peers.streaming_peer import SETTINGS, STATE_STORES
from benchmarks.sides.boatlift_side import SETTINGS as OURS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Nexmark:
    """One session, in which queries run one after the other."""

    def prepare(self, folder: str, system: str, data: str) -> Answer:
        """Make the session.

        Args:
            folder: The folder of all files of this side.
            system: `boatlift` or `streaming`.
            data: The folder of the events, a folder for each table.
        """
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        self._folder, self._system, self._data = Path(folder), system, Path(data)
        self._spark = _session(system)
        self._spark.sql(SIDE_INPUT)
        return {"ready": True}

    def query(self, name: str) -> Answer:
        """Run a query over all files; return the seconds from the first step's output to the last one's, and steps."""
        shutil.rmtree(self._folder / "run", ignore_errors=True)
        (self._folder / "run").mkdir()
        times = (self._view if self._system == "boatlift" else self._stream)(name)
        return {"seconds": times[-1] - times[0], "steps": len(times)}

    def answer(self, name: str) -> Answer:
        """Run a query as a batch, in UTC; return the Parquet file of its answer."""
        folder = self._folder / "answer"
        for table in COLUMNS:
            self._spark.read.parquet(str(self._data / table)).createOrReplaceTempView(table)
        zone = self._spark.conf.get("spark.sql.session.timeZone")
        self._spark.conf.set("spark.sql.session.timeZone", "UTC")
        try:
            self._spark.sql(QUERIES[name]).coalesce(1).write.mode("overwrite").parquet(str(folder))
        finally:
            self._spark.conf.set("spark.sql.session.timeZone", zone)
        return {"file": str(next(folder.glob("*.parquet")))}

    def _view(self, name: str) -> list[float]:
        import boatlift as bl
        from boatlift.api.sql_text import is_table_in

        flow = bl.Dataflow("nexmark")
        for table, ddl in COLUMNS.items():
            if is_table_in(QUERIES[name], table):
                flow.source(table, bl.files(self._data / table, format="parquet", schema=ddl, max_files_per_step=1))
        view = flow.sql("view", QUERIES[name], policy=bl.Lazy(every=5))
        view.sink("out", bl.parquet(self._folder / "run" / "out", compression="snappy"))
        seen: list[float] = []

        def note(progress: Any) -> None:
            if progress.what == "commit":
                seen.append(time.monotonic())

        bl.run(flow, self._folder / "run" / "store", available_now=True, spark=self._spark, on_progress=note)
        return seen

    def _stream(self, name: str) -> list[float]:
        for table, ddl in COLUMNS.items():
            reader = self._spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1)
            reader.parquet(str(self._data / table)).createOrReplaceTempView(table)
        seen: list[float] = []

        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").option("compression", "snappy").parquet(
                str(self._folder / "run" / "out" / f"batch={number}")
            )
            seen.append(time.monotonic())

        query = (
            self._spark.sql(QUERIES[name])
            .writeStream.outputMode("append")
            .trigger(availableNow=True)
            .option("checkpointLocation", str(self._folder / "run" / "checkpoint"))
            .foreachBatch(write)
            .start()
        )
        query.awaitTermination()
        return seen


def _session(system: str) -> Any:
    if system == "boatlift":
        import boatlift as bl

        return bl.session(master="local[2]", **OURS)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("nexmark")
    for name, value in (SETTINGS | STATE_STORES["rocksdb"]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    """Serve one session."""
    side = Nexmark()
    serve({"prepare": side.prepare, "query": side.query, "answer": side.answer})


if __name__ == "__main__":
    main()
