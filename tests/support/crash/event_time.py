"""The dataflow of event time that crash tests kill: late rows, windows that end, duplicates, timers; a view, a loop.

It runs in the current folder, over `data/*.csv`.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pyspark.sql import functions as F

import boatlift as bl


def silence(key: Any, rows: Any, state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
    if context.timer is not None:
        if context.timer == state.due:
            yield key.k, state.n, context.bound
            state.clear()
        return
    for row in rows:
        state.n = (state.n or 0) + 1
        due = row.at.replace(microsecond=0) + timedelta(seconds=20)
        state.due = due if state.due is None else max(state.due, due)
    context.set_timer(state.due)


def walks(have: Any, timely: Any) -> Any:
    steps = timely.selectExpr("pmod(v, 7) AS a", "pmod(3 * v + length(k), 7) AS b").where("a IS NOT NULL")
    further = have.alias("h").join(steps.alias("s"), F.col("h.b") == F.col("s.a")).select("h.a", "s.b")
    return steps.union(further).distinct()


flow = bl.Dataflow("crash-event-time")
events = flow.source("events", bl.files("data/*.csv", schema="k STRING, v LONG, at TIMESTAMP", max_files_per_step=1))
timely = events.with_watermark("timely", "at", "1 minute", policy=bl.Lazy(every=3))
timely.late_rows("late", policy=bl.Lazy(every=4)).sink("late_out", bl.parquet("late"))
minutes = bl.window("at", "1 minute")
counted = F.count("*").alias("n"), F.sum("v").alias("v")
ended = timely.group_by(minutes, "k").agg("ended", *counted, emit="final", policy=bl.Lazy(every=3))
ended.sink("windows_out", bl.parquet("windows"))
changing = timely.group_by(minutes).agg("changing", *counted, policy=bl.Lazy(every=2))
changing.sink("counts_out", bl.parquet("counts"))
first = timely.drop_duplicates("first", ["k"], within="1 minute", policy=bl.Lazy(every=4))
first.sink("first_out", bl.parquet("first"))
silent = timely.group_by("k").process(
    "silent",
    silence,
    state="n LONG, due TIMESTAMP",
    output="k STRING, n LONG, bound TIMESTAMP",
    order_by=["at"],
    timers="event",
    policy=bl.Lazy(every=3),
)
silent.sink("silent_out", bl.parquet("silent"))
walking = timely.iterate("walking", walks, output="a LONG, b LONG", keep_every="0 seconds", policy=bl.Lazy(every=3))
walking.sink("walks_out", bl.parquet("walks"))
kept = flow.sql(
    "kept",
    "SELECT l.k, l.at, count(DISTINCT r.v) AS n FROM timely l JOIN timely r ON l.k = r.k "
    "AND r.at BETWEEN l.at - INTERVAL 30 SECONDS AND l.at GROUP BY l.k, l.at",
    policy=bl.Lazy(every=3),
)  # its state goes below the bound
kept.sink("kept_out", bl.parquet("kept"))
sessions = flow.sql(
    "sessions",
    "SELECT k, session_window.start AS begins, session_window.end AS ends, count(*) AS n, max(v) AS v FROM timely "
    "GROUP BY k, session_window(at, '20 seconds')",
    policy=bl.Lazy(every=3),
)  # its rows go with their session
sessions.sink("sessions_out", bl.parquet("sessions"))
