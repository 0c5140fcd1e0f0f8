"""Flights from Kafka into a lake: new rows and changes in Delta tables, files of Parquet, a view in PostgreSQL.

Run it with this folder on the Python path. BOATLIFT_DEMO_SERVERS names the Kafka cluster and BOATLIFT_DEMO_LAKE a place
in a bucket; AWS_* and PG* are the variables of all clients of buckets and of PostgreSQL, PGDATABASE too:

    boatlift run lake_flights:lake --store s3://bucket/flows/lake --scratch store
"""

import os

import boatlift as bl

LAKE = os.environ["BOATLIFT_DEMO_LAKE"]

ROUTES = """
    SELECT origin, dest, count(*) AS flights, count(arr_delay) AS landed, avg(arr_delay) AS delay,
        max(arr_delay) AS worst
    FROM flights GROUP BY origin, dest
"""

lake = bl.Dataflow("lake")
flights = lake.source(
    "flights",
    bl.kafka.source(
        os.environ["BOATLIFT_DEMO_SERVERS"],
        topic="departures",
        format="json",
        schema="number INT, carrier STRING, origin STRING, dest STRING, arr_delay INT",
        max_offsets_per_step=1_000,
        group="lake",
    ),
)
flights.sink("archive", bl.parquet(f"{LAKE}/archive", every="5 seconds"))
landed = flights.transform("landed", lambda df: df.where("arr_delay IS NOT NULL"))
landed.sink("landed_table", bl.delta(f"{LAKE}/landed"))
routes = lake.sql("routes", ROUTES)
routes.sink("routes_table", bl.postgres("", table="routes", key=["origin", "dest"]))
routes.sink("history", bl.delta(f"{LAKE}/history"))
