"""The dataflow that crash tests kill: a source, a materialised transform, two aggregates, four sinks.

One aggregate reads the source itself, so that its small steps run together; the other reads what the transform
materialised.

It runs in the current folder, over `data/*.csv`.
"""

from pyspark.sql import functions as F

import boatlift as bl

SCHEMA = "k STRING, g INT, v DOUBLE"

flow = bl.Dataflow("crash")
rows = flow.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1))
clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL").withColumn("w", F.col("v") * 3))
clean.sink("cleaned", bl.parquet("cleaned"))
sums = clean.group_by("k").agg(
    "sums", F.count("*").alias("n"), F.sum("v").alias("total"), F.avg("w").alias("mean"), policy=bl.Lazy(every=3)
)
sums.sink("answers", bl.sqlite("answers.db", table="sums", key=["k"]))
sums.sink("history", bl.parquet("history"))
extremes = rows.group_by("g").agg(
    "extremes", F.min("v").alias("low"), F.max("v").alias("high"), policy=bl.Lazy(every=4)
)
extremes.sink("range", bl.sqlite("answers.db", table="extremes", key=["g"]))
