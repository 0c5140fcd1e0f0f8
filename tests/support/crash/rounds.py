"""The dataflow of views that crash tests kill in rounds of its long-running job: joins, top-n, a unit behind a view.

It runs in the current folder, over `data/*.csv`. Each step waits until a round takes it, and is then in `rounds.txt`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import boatlift as bl
from boatlift.spark.jobs import long_running
from boatlift.spark.jobs.long_running import LongRunningJob
from boatlift.tasks.parameters import JobParameters

PATIENCE = 60.0

long_running.STEPS_BEFORE = 0
long_running.QUICK_SECONDS = PATIENCE
long_running.MOST_BACKOFF = 0.0
long_running.LENT_SECONDS = 0.0
execute = LongRunningJob._step


def waiting(self: LongRunningJob, member: Any, parameters: JobParameters, given: bytes) -> bytes | None:
    deadline = time.monotonic() + PATIENCE
    while (report := execute(self, member, parameters, given)) is None and time.monotonic() < deadline:
        member.alone = None
        time.sleep(0.02)
    if report is not None:
        with Path("rounds.txt").open("a") as rounds:
            rounds.write(f"{member.unit} {parameters.first}\n")
    return report


LongRunningJob._step = waiting  # type: ignore[method-assign]

flow = bl.Dataflow("crash-rounds")
rows = flow.source("rows", bl.files("data/*.csv", schema="k STRING, v LONG, at TIMESTAMP", max_files_per_step=1))
sums = flow.sql(
    "sums",
    "SELECT a.k, a.n, b.most FROM (SELECT k, count(*) AS n FROM rows GROUP BY k) a "
    "JOIN (SELECT k, max(v) AS most FROM rows GROUP BY k) b ON a.k = b.k",
    policy=bl.Lazy(every=3),
)
sums.sink("sums_out", bl.parquet("sums"))
pairs = flow.sql("pairs", "SELECT a.k, a.v, b.v AS w FROM rows a JOIN rows b ON a.k = b.k AND a.at < b.at")
pairs.sink("pairs_out", bl.parquet("pairs"))
most = pairs.group_by("k").agg("most", F.sum("w").alias("w"), F.count("*").alias("n"), policy=bl.Lazy(every=4))
most.sink("most_out", bl.parquet("most"))
top = flow.sql(
    "top",
    "SELECT * FROM (SELECT k, v, at, row_number() OVER (PARTITION BY k ORDER BY v DESC, at) AS place FROM rows) "
    "WHERE place <= 2",
    policy=bl.Lazy(every=2),
)
top.sink("top_out", bl.parquet("top"))
