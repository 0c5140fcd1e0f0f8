"""The dataflow that is killed again and again before its policy would make a state durable.

It runs in the current folder, over `data/*.csv`.
"""

from pyspark.sql import functions as F

import boatlift as bl

flow = bl.Dataflow("progress")
rows = flow.source("rows", bl.files("data/*.csv", schema="k STRING, v LONG", max_files_per_step=1))
clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL"), policy=bl.Eager())
sums = clean.group_by("k").agg("sums", F.count("*").alias("n"), F.sum("v").alias("total"), policy=bl.Lazy(every=20))
sums.sink("answers", bl.sqlite("answers.db", table="sums", key=["k"]))
