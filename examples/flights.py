"""The first example: real flights, cleaned, aggregated two ways, into SQLite and Parquet, exactly once.

Run it in a folder that has the flights (`examples/cut_flights.py` makes them), with this folder on the Python path:

    boatlift run flights:flow --store store --available-now
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import boatlift as bl

SCHEMA = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT,
    arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT,
    hour INT, minute INT, time_hour STRING
"""


def landed(flights: DataFrame) -> DataFrame:
    """Keep flights that arrived, and add their speed in miles a minute."""
    return flights.where("arr_delay IS NOT NULL").select(
        "carrier", "origin", "dest", "dep_delay", "arr_delay", (F.col("distance") / F.col("air_time")).alias("speed")
    )


flow = bl.Dataflow("flights")
flights = flow.source("flights", bl.files("data/flights/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1))
clean = flights.transform("clean", landed)

delays = clean.group_by("origin", "dest").agg(
    "delays",
    F.count("*").alias("flights"),
    F.avg("arr_delay").alias("delay"),
    F.avg("speed").alias("speed"),
    F.max("arr_delay").alias("worst"),
    policy=bl.Lazy(every=20),
)
delays.sink("answers", bl.sqlite("answers.db", table="delays", key=["origin", "dest"]))
delays.sink("history", bl.parquet("history"))

carriers = clean.group_by("carrier").agg(
    "carriers",
    F.count("*").alias("flights"),
    F.sum("speed").alias("speeds"),
    F.min("dep_delay").alias("earliest"),
    F.max("dep_delay").alias("latest"),
    policy=bl.Lazy(every=7),
)
carriers.sink("punctuality", bl.sqlite("answers.db", table="carriers", key=["carrier"]))
