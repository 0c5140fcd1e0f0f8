"""The peer: the Delta sink of Structured Streaming, exactly once, with its best settings.

Its jar is for Spark 4.1, so it runs in an environment of its own (`environment`).
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.harness.data import ARTIFACTS
from benchmarks.harness.side import Answer, serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["environment"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pyspark==4.1.4", "pyarrow", "numpy")
SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    # A side that is stopped while the other is measured must not be taken for dead.
    "spark.network.timeout": "3600s",
}


def environment() -> str:
    """Return a Python interpreter with the peer's Spark, made at the first call; its jars are fetched, too."""
    subprocess.run([sys.executable, str(ROOT / "scripts" / "kafka_jars.py"), "delta"], check=True)
    folder = ARTIFACTS / "spark-4.1"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")], check=True)
            subprocess.run([str(folder / "venv" / "bin" / "pip"), "install", "--quiet", *PACKAGES], check=True)
            (folder / "whole").touch()
    return str(folder / "venv" / "bin" / "python")


class Peer:
    """A session in which queries follow one another."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None

    def prepare(self, folder: str) -> Answer:
        """Make the session."""
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        jars = ",".join(str(jar) for jar in (ROOT / ".kafka" / "delta" / "libs").glob("*.jar"))
        builder = SparkSession.builder.master("local[2]").appName("peer-delta").config("spark.jars", jars)
        for name, value in {**SETTINGS, "spark.local.dir": folder}.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")
        return {"ready": True}

    def write(self, columns: dict[str, str], rows: int, steps: int, folder: str) -> Answer:
        """Append so many steps of so many rows to a new table; return the seconds, and the rows that are there."""
        assert self._spark is not None, "prepare comes first"
        each = self._spark.readStream.format("rate-micro-batch").options(rowsPerBatch=rows, numPartitions=2).load()
        shown = each.selectExpr(*(f"{column.replace('id', 'value')} AS {name}" for name, column in columns.items()))
        with TemporaryDirectory(dir=folder) as place:
            table = f"{place}/table"
            began = time.perf_counter()
            query = shown.writeStream.format("delta").option("checkpointLocation", f"{place}/checkpoint").start(table)
            while query.isActive and len(_commits(table)) < steps:
                time.sleep(0.005)
            took = time.perf_counter() - began
            query.stop()
            found = self._spark.read.format("delta").option("versionAsOf", steps - 1).load(table).count()
        return {"seconds": took, "rows": found}


def _commits(table: str) -> list[Path]:
    return list(Path(table, "_delta_log").glob("*[0-9].json"))


if __name__ == "__main__":
    peer = Peer()
    serve({"prepare": peer.prepare, "write": peer.write})
