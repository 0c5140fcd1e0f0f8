"""The dataflow that crash tests kill: a source, a materialised transform, two aggregates, five sinks.

One aggregate reads the source itself, so that its small steps run together; the other reads what the transform
materialised. One sink keeps no account of steps.

It runs in the current folder, over `data/*.csv`.
"""

import json
import os
from pathlib import Path

from pyspark.sql import functions as F

import boatlift as bl

SCHEMA = "k STRING, g INT, v DOUBLE"

DELIVERED = Path("delivered.txt").absolute()


def deliver(rows, step):
    """Appends a step's rows to a file, in one line and one act."""
    line = json.dumps([step, [[row["k"], row["g"], row["v"].hex()] for row in rows.to_pylist()]])
    file = os.open(DELIVERED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)


flow = bl.Dataflow("crash")
rows = flow.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1))
clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL").withColumn("w", F.col("v") * 3))
clean.sink("cleaned", bl.parquet("cleaned"))
clean.sink("alerts", bl.foreach(deliver))
sums = clean.group_by("k").agg(
    "sums", F.count("*").alias("n"), F.sum("v").alias("total"), F.avg("w").alias("mean"), policy=bl.Lazy(every=3)
)
sums.sink("answers", bl.sqlite("answers.db", table="sums", key=["k"]))
sums.sink("history", bl.parquet("history"))
extremes = rows.group_by("g").agg(
    "extremes", F.min("v").alias("low"), F.max("v").alias("high"), policy=bl.Lazy(every=4)
)
extremes.sink("range", bl.sqlite("answers.db", table="extremes", key=["g"]))
