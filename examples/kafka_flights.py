"""Two dataflows over Kafka: from flights to landed flights and delays of routes, and from these to late routes.

Run them with this folder on the Python path, and BOATLIFT_DEMO_SERVERS naming the cluster:

    boatlift run kafka_flights:delays --store delays
    boatlift run kafka_flights:late --store late
"""

import os

from pyspark.sql import functions as F

import boatlift as bl

SERVERS = os.environ["BOATLIFT_DEMO_SERVERS"]

delays = bl.Dataflow("delays", determinants=os.environ.get("BOATLIFT_DEMO_DETERMINANTS", "store"))
flights = delays.source(
    "flights",
    bl.kafka.source(
        SERVERS,
        topic="flights",
        format="json",
        schema="number INT, carrier STRING, origin STRING, dest STRING, arr_delay INT",
        max_offsets_per_step=10_000,
        group="delays",
    ),
)
landed = flights.transform(
    "landed", lambda df: df.where("arr_delay IS NOT NULL").withColumn("route", F.concat_ws("-", "origin", "dest"))
)
landed.sink("landed_out", bl.kafka.sink(SERVERS, "landed", key="route", writers=2))
routes = landed.group_by("route").agg(
    "routes", F.count("*").alias("flights"), F.sum("arr_delay").alias("delay"), policy=bl.Lazy(every=5)
)
routes.sink("routes_out", bl.kafka.sink(SERVERS, "routes", key="route", rows="upsert"))

late = bl.Dataflow("late")
of_routes = late.source(
    "routes",
    bl.kafka.source(
        SERVERS, topic="routes", format="json", schema="route STRING, flights BIGINT, delay BIGINT", group="late"
    ),
)
of_routes.transform("late_ones", lambda df: df.where("delay > 15 * flights")).sink(
    "late_out", bl.kafka.sink(SERVERS, "late", key="route")
)
