"""The dataflow that crash tests kill: a source, a materialised transform, two aggregates, three sinks.

It runs in the current folder, over `data/*.csv`.
"""

import random
from pathlib import Path

from pyspark.sql import functions as F

import boatlift as bl

SCHEMA = "k STRING, g INT, v DOUBLE"
FILES = 7

flow = bl.Dataflow("crash")
rows = flow.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1))
clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL").withColumn("w", F.col("v") * 3))
sums = clean.group_by("k").agg(
    "sums", F.count("*").alias("n"), F.sum("v").alias("total"), F.avg("w").alias("mean"), policy=bl.Lazy(every=3)
)
sums.sink("answers", bl.sqlite("answers.db", table="sums", key=["k"]))
sums.sink("history", bl.parquet("history"))
extremes = clean.group_by("g").agg(
    "extremes", F.min("v").alias("low"), F.max("v").alias("high"), policy=bl.Lazy(every=2)
)
extremes.sink("range", bl.sqlite("answers.db", table="extremes", key=["g"]))


def make_data(folder: Path) -> None:
    """Writes the input: keys that are NULL now and then, values whose float sum depends on their order."""
    folder.mkdir(parents=True)
    draw = random.Random(11)
    for number in range(FILES):
        lines = ["k,g,v"]
        for _ in range(60):
            key = "NA" if draw.random() < 0.1 else f"key{draw.randrange(12)}"
            value = "NA" if draw.random() < 0.05 else repr(draw.uniform(-1, 1) * 10 ** draw.randrange(-8, 9))
            lines.append(f"{key},{draw.randrange(4)},{value}")
        (folder / f"part-{number:02}.csv").write_text("\n".join(lines) + "\n")
