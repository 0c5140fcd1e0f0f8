"""A dataflow for the cluster test: values whose float sum depends on the order in which they are added.

A UDF in it waits, in the tasks of one step, until the test says that it has killed something under them.
"""

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

import boatlift as bl

SCHEMA = "k INT, step INT, v DOUBLE"
HELD_STEP = 2


def held(step: Column, value: Column) -> Column:
    """Gives the value; in the held step it first waits for the file `killed`, saying so in `began-…`."""
    folder = Path(os.environ["BOATLIFT_TEST_FOLDER"])

    def wait(step: int, value: float) -> float:
        if step == HELD_STEP and not (folder / "killed").exists():
            (folder / f"began-{os.getpid()}").touch()
            while not (folder / "killed").exists():
                time.sleep(0.02)
        return value

    return F.udf(wait, DoubleType())(step, value)


def add_event_time(rows: bl.Stream, folder: Path) -> None:
    """Add windows that end, timers in event time, duplicates, and a loop, each with a sink."""

    def walk(have: Any, legs: Any) -> Any:
        further = have.alias("h").join(legs.alias("l"), F.col("h.b") == F.col("l.a")).select("h.a", "l.b")
        return legs.select("a", "b").union(further).distinct()

    def remind(key: Any, rows: Any, state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
        if context.timer is not None:
            yield key.k, context.timer, state.n
        for row in rows:
            state.n = (state.n or 0) + 1
            context.set_timer(row.at.replace(second=0) + timedelta(minutes=1))

    timed = rows.transform(
        "timed", lambda df: df.selectExpr("k", "v", "timestamp_seconds(60 * step + pmod(hash(v), 90)) AS at")
    )
    timely = timed.with_watermark("timely", "at", "30 seconds", policy=bl.Lazy(every=2))
    counted = F.sum("v").alias("v"), F.count("*").alias("n")
    made = {
        "windows": timely.group_by(bl.window("at", "1 minute"), "k").agg("ended", *counted, emit="final"),
        "first": timely.drop_duplicates("first-rows", ["k", "at"], within="1 minute"),
        "reminders": timely.group_by("k").process(
            "remind", remind, state="n LONG", output="k INT, timer TIMESTAMP, n LONG", order_by=["at"], timers="event"
        ),
    }
    legs = rows.transform(
        "legs",
        lambda df: df.where("pmod(hash(v), 400) = 0").selectExpr("pmod(hash(v, 1), 40) a", "pmod(hash(v, 2), 40) b"),
    )
    made["walks"] = legs.iterate("walking", walk, output="a INT, b INT", keep_every="0 seconds")
    for name, stream in made.items():
        stream.sink(name, bl.parquet(folder / name))


def make_flow(history: Path, event_time: Path | None = None) -> bl.Dataflow:
    """Return the dataflow: it reads `data/` in the folder or below the URL that the environment names."""
    folder = os.environ.get("BOATLIFT_TEST_DATA") or os.environ["BOATLIFT_TEST_FOLDER"]
    flow = bl.Dataflow("cluster")
    rows = flow.source("rows", bl.files(f"{folder}/data/*.csv", schema=SCHEMA))
    gated = rows.transform("gated", lambda df: df.withColumn("v", held(F.col("step"), F.col("v"))), deterministic=True)
    sums = gated.group_by("k").agg(
        "sums", F.sum("v").alias("total"), F.avg("v").alias("mean"), F.count("*").alias("n"), policy=bl.Lazy(every=2)
    )
    sums.sink("history", bl.parquet(history))
    if event_time is not None:
        add_event_time(gated, event_time)
    return flow
