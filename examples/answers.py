"""Four regimes in one application (Falkirk Wheel, Figure 1), on real flights.

Flights are cleaned (*ephemeral*) and kept as running totals (*lazy*). A *loop* keeps the fewest flights that lead from
each airport to each other one, round by round (*lazy*). A *batch* fits the delay to expect on a route, anew from all
flights, every few weeks. Questions come on a path of their own and are answered from totals and model as
they are at that moment (*lazy*, in order of arrival). The number of questions about each airline is kept *eagerly*,
beside the answers.

Run it in a folder that has flights and queries (`examples/demo.py` makes them), with this folder on the Python path:

    boatlift run answers:flow --store store --available-now
"""

from flights import SCHEMA
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import boatlift as bl

RESAMPLES = 4
"""So often the batch draws all of history anew, to know how sure it is."""


def arrived(flights: DataFrame) -> DataFrame:
    """Keep the flights that arrived, and the columns that matter here."""
    return flights.where("arr_delay IS NOT NULL").select("month", "carrier", "flight", "origin", "dest", "arr_delay")


def connections(have: DataFrame, flown: DataFrame) -> DataFrame:
    """Make ways that are one flight longer of those that are known, and keep the shortest between each two airports."""
    legs = flown.select("origin", "dest").union(flown.select("dest", "origin"))
    further = have.join(legs.toDF("via", "to"), F.col("dest") == F.col("via")).where("origin <> to AND flights < 6")
    ways = legs.selectExpr("*", "1 AS flights").union(further.selectExpr("origin", "to", "flights + 1"))
    return ways.groupBy("origin", "dest").agg(F.min("flights").alias("flights"))


def expected(flights: DataFrame) -> DataFrame:
    """Fit the delay to expect by route, airline and month: the median of all history, and its spread in resamples."""
    drawn = flights.withColumn("sample", F.explode(F.sequence(F.lit(0), F.lit(RESAMPLES - 1))))
    drawn = drawn.where("pmod(xxhash64(sample, month, carrier, flight, origin, dest, arr_delay), 3) > 0 OR sample = 0")
    route = ["origin", "dest", "carrier", "month"]
    medians = drawn.groupBy(*route, "sample").agg(
        F.expr("percentile(arr_delay, 0.5)").alias("median"), F.count("*").alias("seen")
    )
    return medians.groupBy(*route).agg(
        F.max(F.when(F.col("sample") == 0, F.col("median"))).alias("median"),
        F.max(F.when(F.col("sample") == 0, F.col("seen"))).alias("seen"),
        (F.max("median") - F.min("median")).alias("spread"),
    )


flow = bl.Dataflow("answers")
flights = flow.source("flights", bl.files("flights/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1))
clean = flights.transform("clean", arrived)

airports = clean.group_by("origin").agg(
    "airports", F.count("*").alias("flights"), F.avg("arr_delay").alias("delay"), policy=bl.Lazy(every=10)
)
routes = clean.group_by("origin", "dest").agg(
    "routes", F.count("*").alias("flights"), F.avg("arr_delay").alias("delay"), policy=bl.Lazy(every=10)
)
routes.sink("network", bl.sqlite("answers.db", table="network", key=["origin", "dest"]))
flown = flow.sql("flown", "SELECT DISTINCT origin, dest FROM clean", policy=bl.Lazy(every=10))
hops = flown.iterate("hops", connections, output="origin STRING, dest STRING, flights INT", policy=bl.Lazy(every=10))
hops.sink("connections", bl.sqlite("answers.db", table="connections", key=["origin", "dest"]))
fits = clean.recompute("fits", expected, policy=bl.Batch(epochs=4))
fits.sink("model", bl.sqlite("answers.db", table="model", key=["origin", "dest", "carrier", "month"]))

queries = flow.source(
    "queries",
    bl.files(
        "queries/*.csv",
        schema="id LONG, month INT, carrier STRING, flight INT, origin STRING, dest STRING",
        max_files_per_step=1,
    ),
)
asked = queries.lookup(
    "asked",
    airport=airports.by("origin"),
    route=routes.by("origin", "dest"),
    fit=fits.by("origin", "dest", "carrier", "month"),
    policy=bl.Lazy(every=20),
)
answered = asked.transform(
    "answered", lambda df: df.withColumn("expected", F.coalesce("fit_median", "route_delay", "airport_delay"))
)
answered.sink("answers", bl.sqlite("answers.db", table="answers", key=["id"]))
interest = answered.group_by("carrier").agg(
    "interest", F.count("*").alias("asked"), F.avg("expected").alias("told"), policy=bl.Eager()
)
interest.sink("statistics", bl.sqlite("answers.db", table="interest", key=["carrier"]))
