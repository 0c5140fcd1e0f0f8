"""The peers of a loop: the connected components of a whole graph, computed anew by Spark, and by NumPy in one thread.

Spark computes them as one writes it without GraphFrames: labels go round until none changes, a checkpoint a round cuts
the plan, and what a round reads again is cached.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.graphs import components_of
from benchmarks.harness.side import Answer, serve
from benchmarks.peers.streaming_peer import SETTINGS


class Recomputed:
    """One session."""

    def prepare(self, folder: str) -> Answer:
        """Make the session."""
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        self._folder = Path(folder)
        builder = SparkSession.builder.master("local[2]").appName("recomputed")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        self._spark: Any = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")
        return {"ready": True}

    def spark(self, file: str) -> Answer:
        """Compute the components of the edges in a file with Spark; return the milliseconds, and the rounds."""
        from pyspark.sql import functions as F

        began = time.monotonic()
        edges = self._spark.read.parquet(file).repartition("a").cache()
        own = edges.selectExpr("a AS v", "a AS label").distinct()
        labels, rounds = own, 0
        while True:
            offered = labels.join(edges, labels.v == edges.a).selectExpr("b AS v", "label")
            made = own.union(offered).groupBy("v").agg(F.min("label").alias("label")).localCheckpoint()
            before = labels.withColumnRenamed("label", "before")
            changed = made.join(before, "v").where("label <> before").limit(1).count()
            labels, rounds = made, rounds + 1
            if not changed:
                break
        labels.write.mode("overwrite").option("compression", "snappy").parquet(str(self._folder / "result"))
        took = 1000 * (time.monotonic() - began)
        edges.unpersist()
        vertices, least = components_of(pq.read_table(file))
        held = pq.read_table(self._folder / "result").sort_by("v")
        wrong = len(held) != len(vertices) or bool((held["label"].to_numpy() != least).any())
        return {"ms": took, "rounds": rounds, "wrong": wrong}

    def numpy(self, file: str) -> Answer:
        """Compute the same with NumPy; return the milliseconds."""
        began = time.monotonic()
        vertices, least = components_of(pq.read_table(file))
        pq.write_table(pa.table({"v": vertices, "label": least}), self._folder / "numpy.parquet")
        return {"ms": 1000 * (time.monotonic() - began)}


def main() -> None:
    """Serve one session."""
    side = Recomputed()
    serve({name: getattr(side, name) for name in ("prepare", "spark", "numpy")})


if __name__ == "__main__":
    main()
