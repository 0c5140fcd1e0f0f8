"""Flights by origin, as four versions of one program; `FLIGHTS_VERSION` chooses one. `make demo-evolve` runs them.

Version 2 has another filter and a further aggregate, version 3 a view and a sink for it, version 4 reads no cancelled
flights any more and gives up the view.
"""

import os

from flights import SCHEMA
from pyspark.sql import functions as F

import boatlift as bl

version = int(os.environ["FLIGHTS_VERSION"])

flow = bl.Dataflow("evolving")
source = bl.files("data/flights/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1)
flights = flow.source("flights", source)
late = {1: "arr_delay > 60", 2: "arr_delay > 30", 3: "arr_delay > 30", 4: "arr_delay > 45"}[version]
clean = flights.transform("clean", lambda df: df.where(late))

further = [F.avg("arr_delay").alias("delay")] if version > 1 else []
delays = clean.group_by("origin", "dest").agg(
    "delays", F.count("*").alias("flights"), F.max("arr_delay").alias("worst"), *further
)
delays.sink("answers", bl.sqlite("answers.db", table="delays", key=["origin", "dest"]))
delays.sink("history", bl.parquet("history"))

if version == 3:
    carriers = flow.sql("carriers", "SELECT carrier, sum(distance) AS miles FROM flights GROUP BY carrier")
    carriers.sink("miles", bl.sqlite("answers.db", table="miles", key=["carrier"]))
