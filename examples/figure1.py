"""Figure 1 of the Falkirk Wheel paper, as it is drawn: users ask over HTTP, and get an answer each.

Records of flights come in files, and are cleaned (*ephemeral*). A *batch* fits the delay to expect, anew every few
weeks; a *loop* keeps the fewest flights from each airport to each other one (*lazy*). A question is joined with the
output of the batch, then with that of the loop. Statistics about the answers are stored in a database (*eager*), and
the answer goes back to the user.

Run it in a folder with flights (`examples/demo.py` makes them), with this folder on the Python path:

    boatlift run figure1:flow --store store
    curl -H 'Idempotency-Key: q1' -d '{"origin": "JFK", "dest": "LAX", "carrier": "AA", "month": 1}' \
        localhost:8080/questions
"""

import os

import answers
from flights import SCHEMA
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import boatlift as bl


def flown(flights: DataFrame) -> DataFrame:
    """Keep what the loop needs."""
    return flights.select("origin", "dest")


flow = bl.Dataflow("figure1")
flights = flow.source("flights", bl.files("flights/*.csv", schema=SCHEMA, null_value="NA", max_files_per_step=1))
clean = flights.transform("clean", answers.arrived)

fits = clean.recompute("fits", answers.expected, policy=bl.Batch(epochs=2))

legs = clean.transform("legs", flown)
distinct = flow.sql("distinct_legs", "SELECT DISTINCT origin, dest FROM legs", policy=bl.Lazy(every=10))
hops = distinct.iterate(
    "hops", answers.connections, output="origin STRING, dest STRING, flights INT", policy=bl.Lazy(every=10)
)
ways = flow.sql(
    "ways", "SELECT origin, dest, min(flights) AS flights FROM hops GROUP BY origin, dest", policy=bl.Lazy(every=10)
)

questions = bl.push(
    "id STRING, origin STRING, dest STRING, carrier STRING, month INT",
    listen=os.environ.get("LISTEN", "127.0.0.1:8080"),
    ack="answer",
    key="id",
)
asked = flow.source("questions", questions)
fitted = asked.lookup("fitted", fit=fits.by("origin", "dest", "carrier", "month"), policy=bl.Lazy(every=20))
routed = fitted.lookup("routed", way=ways.by("origin", "dest"), policy=bl.Lazy(every=20))
answered = routed.transform("answered", lambda df: df.drop("month"))
answered.sink("responses", bl.reply(questions, "responses.db"))
statistics = answered.group_by("carrier").agg("statistics", F.count("*").alias("asked"), policy=bl.Eager())
statistics.sink("database", bl.sqlite("statistics.db", table="statistics", key=["carrier"]))
