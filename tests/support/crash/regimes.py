"""The dataflow of all policies that crash tests kill: a cleaner, totals, a batch, calls to the outside, a lookup.

Ephemeral: `clean`. Lazy: `live`, and `answers`, which takes things as they come. History: `groups`, which keeps
state, and `known`, which keeps none. Batch: `fits`. Eager: `stats`, and `asked`, since it cannot be repeated. What was
answered is gathered, `by_four`, in epochs whose end the rows are asked of; its rows are a history, too. It runs in the
current folder, over `data/*.csv` and `queries/*.csv`.
"""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import boatlift as bl


def luck(_: int) -> int:
    """An answer that is never given twice."""
    return int.from_bytes(os.urandom(5), "big")


def with_luck(queries: DataFrame) -> DataFrame:
    """Asks for each query."""
    return queries.withColumn("luck", bl.call(luck, "id", returns="long"))


flow = bl.Dataflow("regimes")
rows = flow.source(
    "rows", bl.files("data/*.csv", schema="k STRING, g INT, v DOUBLE", null_value="NA", max_files_per_step=1)
)
clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL"))
clean.sink("cleaned", bl.parquet("cleaned"))
groups = clean.group_by("g").agg("groups", F.count("*").alias("n"), policy=bl.History())
groups.sink("kinds", bl.sqlite("answers.db", table="groups", key=["g"]))
live = clean.group_by("k").agg("live", F.count("*").alias("n"), F.max("v").alias("high"), policy=bl.Lazy(every=3))
live.sink("network", bl.sqlite("answers.db", table="live", key=["k"]))
fits = clean.recompute(
    "fits", lambda df: df.where("k IS NOT NULL").groupBy("k").agg(F.count("*").alias("m")), policy=bl.Batch(epochs=3)
)
fits.sink("model", bl.sqlite("answers.db", table="fits", key=["k"]))
queries = flow.source("queries", bl.files("queries/*.csv", schema="id LONG, k STRING", max_files_per_step=1))
asked = queries.transform("asked", with_luck, deterministic=False)
asked.sink("luck", bl.parquet("asked"))
answers = asked.lookup("answers", live=live.by("k"), fit=fits.by("k"), policy=bl.Lazy(every=4))
answers.sink("told", bl.parquet("told"))
stats = answers.group_by("k").agg("stats", F.count("*").alias("n"), F.sum("luck").alias("luck"), policy=bl.Eager())
stats.sink("interest", bl.sqlite("answers.db", table="stats", key=["k"]))
known = answers.transform("known", lambda df: df.where("luck IS NOT NULL"), policy=bl.History())
by_four = known.gather("by_four", policy=bl.History(bl.Batch(epochs=4, when="count(*) > 0")))
heard = by_four.group_by("k").agg(
    "heard", F.count("*").alias("n"), F.sum("luck").alias("luck"), policy=bl.Lazy(every=2)
)
heard.sink("fame", bl.sqlite("answers.db", table="heard", key=["k"]))
