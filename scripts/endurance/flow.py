"""The dataflow that runs for long: pushes and files, and one processor of each kind whose state has a bound.

It runs in the current folder, over `data/*.csv`, and listens where `ENDURANCE_LISTEN` says.
"""

from __future__ import annotations

import os

from pyspark.sql import functions as F

import boatlift as bl

__all__ = ["flow"]

flow = bl.Dataflow("endurance", tick="5 seconds")
policy = bl.Lazy(every=20, seconds=10)
totals = (F.count("*").alias("n"), F.sum("v").alias("total"))

listen = os.environ["ENDURANCE_LISTEN"]
pushes = flow.source("pushes", bl.push("id LONG NOT NULL, k INT NOT NULL, v LONG", listen=listen))
pushed = pushes.group_by("k").agg("pushed", *totals, policy=policy)
pushed.sink("pushed_out", bl.sqlite("answers.db", table="pushed", key=["k"]))

rows = flow.source(
    "rows", bl.files("data/*.csv", schema="id LONG, k INT, at TIMESTAMP, v LONG"), lateness={"at": "20 seconds"}
)
filed = rows.group_by("k").agg("filed", *totals, policy=policy)
filed.sink("filed_out", bl.sqlite("answers.db", table="filed", key=["k"]))

once = rows.drop_duplicates("once", ["id"], within="10 seconds", policy=policy)
windows = once.group_by(bl.window("at", "10 seconds"), "k").agg(
    "windows", F.count("*").alias("n"), emit="final", policy=policy
)
ended = windows.group_by("k").agg("ended", F.sum("n").alias("n"), policy=policy)
ended.sink("ended_out", bl.sqlite("answers.db", table="ended", key=["k"]))
