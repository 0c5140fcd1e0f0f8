"""Dataflows whose process is stopped and goes on: one whose sinks hold no lock, and one that writes to a database.

They run in the current folder, over `data/*.csv`. A process of `locking` stops itself inside a database transaction,
at the step that the environment names.
"""

import os
import signal
from typing import Any

from pyspark.sql import functions as F

import boatlift as bl
from boatlift.connectors.sqlite.table import KeyedTable
from support.crash.flow import SCHEMA

free = bl.Dataflow("free")
rows = free.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1))
clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL"))
clean.sink("all", bl.parquet("all"))
clean.group_by("k").agg("sums", F.sum("v").alias("total"), policy=bl.Lazy(every=3)).sink("sums-out", bl.parquet("sums"))
clean.group_by("g").agg("lows", F.min("v").alias("low"), policy=bl.Lazy(every=2)).sink("lows-out", bl.parquet("lows"))


def make_locking() -> bl.Dataflow:
    """Gives the dataflow with a database, of the folder that is the current one now."""
    flow = bl.Dataflow("locking")
    rows = flow.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1))
    sums = rows.group_by("k").agg("sums", F.count("*").alias("n"), F.sum("v").alias("total"), policy=bl.Lazy(every=3))
    sums.sink("answers", bl.sqlite("answers.db", table="answers", key=["k"], lock_timeout=0.5))
    sums.sink("history", bl.parquet("sums"))
    return flow


locking = make_locking()

applied, steps = KeyedTable.apply, 0


def apply_and_stop(table: KeyedTable, *arguments: Any) -> None:
    """Applies a step's rows; after those of the chosen step it stops, with the database's lock in its hands."""
    global steps
    applied(table, *arguments)
    if steps == int(os.environ["BOATLIFT_TEST_PAUSED_STEP"]):
        os.kill(os.getpid(), signal.SIGSTOP)
    steps += 1


if "BOATLIFT_TEST_PAUSED_STEP" in os.environ:
    KeyedTable.apply = apply_and_stop  # type: ignore[method-assign]
