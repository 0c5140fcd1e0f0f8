"""Structured Streaming's real-time mode from topic to topic: at-least-once, with a slot for every task at once.

`python -m benchmarks.peers.real_time_peer SERVERS FROM TO (rows | keyed) STORE` runs until it is killed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.peers.kafka_peer import PARTITIONS, ROOT

__all__ = ["NUMBERED", "main"]

NUMBERED = ("CAST(split(CAST(value AS STRING), ' ')[1] AS BIGINT) % 100 AS k", "CAST(value AS STRING) AS v")
"""A message of the probe, and the key of its number."""

SHUFFLE_PARTITIONS = 1
"""As a small step of Boatlift's has one task."""


def main() -> None:
    """Run the query."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    servers, before, after, kind, store = sys.argv[1:]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = ",".join(sorted(str(jar) for jar in (ROOT / ".kafka" / "spark" / "libs").glob("*.jar")))
    settings = {
        "spark.master": f"local[{PARTITIONS + SHUFFLE_PARTITIONS}]",
        "spark.jars": jars,
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
        "RocksDBStateStoreProvider",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    access = {"kafka.bootstrap.servers": servers}
    rows = spark.readStream.format("kafka").options(**access, subscribe=before, startingOffsets="earliest").load()
    if kind == "keyed":
        counted = rows.selectExpr(*NUMBERED).groupBy("k").agg(F.count("*").alias("n"), F.max("v").alias("v"))
        out = counted.selectExpr("CAST(k AS STRING) AS key", "to_json(struct(k, n, v)) AS value")
    else:
        out = rows.select("key", "value")
    writer = out.writeStream.format("kafka").options(**access, topic=after)
    query = writer.option("checkpointLocation", str(Path(store) / "checkpoint")).outputMode("update")
    query.trigger(realTime="5 minutes").start().awaitTermination()  # type: ignore[call-overload] # not in its types


if __name__ == "__main__":
    main()
