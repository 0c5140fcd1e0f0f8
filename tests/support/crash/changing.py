"""A program, and the changed one: another expression, and a further sink."""

from __future__ import annotations

from pyspark.sql import functions as F

import boatlift as bl


def flow_of(*, changed: bool) -> bl.Dataflow:
    flow = bl.Dataflow("changing")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    rows.sink("copy", bl.parquet("copy"))
    factor = 2 if changed else 1
    scaled = rows.transform("scaled", lambda df: df.where("v % 3 > 0").withColumn("v", F.col("v") * factor))
    totals = scaled.group_by("k").agg("totals", F.sum("v").alias("total"), policy=bl.Lazy(every=2))
    totals.sink("answers", bl.sqlite("answers.db", table="totals", key=["k"]))
    totals.sink("history", bl.parquet("history"))
    if changed:
        scaled.sink("more", bl.parquet("more"))
    return flow


before, after = flow_of(changed=False), flow_of(changed=True)
