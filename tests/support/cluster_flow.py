"""A dataflow for the cluster test: values whose float sum depends on the order in which they are added.

A UDF in it waits, in the tasks of one step, until the test says that it has killed something under them.
"""

import os
import time
from pathlib import Path

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


def make_flow(history: Path) -> bl.Dataflow:
    """Gives the dataflow, from `data/` in the folder that the environment names into another folder."""
    folder = os.environ["BOATLIFT_TEST_FOLDER"]
    flow = bl.Dataflow("cluster")
    rows = flow.source("rows", bl.files(f"{folder}/data/*.csv", schema=SCHEMA))
    gated = rows.transform("gated", lambda df: df.withColumn("v", held(F.col("step"), F.col("v"))), deterministic=True)
    sums = gated.group_by("k").agg(
        "sums", F.sum("v").alias("total"), F.avg("v").alias("mean"), F.count("*").alias("n"), policy=bl.Lazy(every=2)
    )
    sums.sink("history", bl.parquet(history))
    return flow
