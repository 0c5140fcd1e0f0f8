"""A shop: orders in files, customers that move, clicks in Kafka; live tables, final hours, a top five, dead letters.

Run it in a folder that has orders and customers, with this folder on the Python path, and BOATLIFT_DEMO_SERVERS naming
the cluster that has the clicks (`examples/shop_demo.py` makes all of it):

    boatlift run shop:flow --store store --available-now
"""

import os

from pyspark.sql import functions as F

import boatlift as bl

SERVERS = os.environ["BOATLIFT_DEMO_SERVERS"]

flow = bl.Dataflow("shop")
orders = flow.source(
    "orders",
    bl.files(
        "orders/*.csv",
        schema="id LONG, customer LONG, product STRING, pieces INT, price DECIMAL(9,2), at TIMESTAMP",
        max_files_per_step=1,
    ),
    lateness={"at": "2 hours"},
    bad_rows="dead_letters",
)
moves = flow.source("moves", bl.files("customers/*.csv", schema="customer LONG, region STRING, since TIMESTAMP"))
customers = moves.upserts("customers", key=["customer"], order="since")
clicks = flow.source(
    "clicks", bl.kafka.source(SERVERS, topic="clicks", format="json", schema="product STRING"), bad_rows="dead_letters"
)

# Live: revenue by region and hour, for the region in which each customer lives now.
revenue = flow.sql(
    "revenue",
    """
    SELECT region, window(at, '1 hour').start AS hour, count(*) AS orders, sum(pieces * price) AS revenue
    FROM orders JOIN customers USING (customer) GROUP BY region, window(at, '1 hour')
    """,
)
revenue.sink("revenue_now", bl.sqlite("shop.db", table="revenue", key=["region", "hour"]))

# Final: each hour once, when no order of it can come any more.
hours = orders.group_by(bl.window("at", "1 hour")).agg("hours", F.sum("pieces").alias("pieces"), emit="final")
hours.sink("hours_done", bl.parquet("hours"))

# The five products that sell best, with the clicks on them.
top = flow.sql(
    "top",
    """
    WITH sold AS (SELECT product, sum(pieces) AS pieces FROM orders GROUP BY product),
        seen AS (SELECT product, count(*) AS clicks FROM clicks GROUP BY product)
    SELECT product, pieces, coalesce(clicks, 0) AS clicks FROM sold LEFT JOIN seen USING (product)
    ORDER BY pieces DESC, product LIMIT 5
    """,
)
top.sink("top_five", bl.kafka.sink(SERVERS, "top-products", key="product", rows="upsert"))

orders.late_rows("late_orders").sink("late", bl.parquet("late"))
orders.bad_rows("bad_orders").sink("bad", bl.parquet("bad"))
clicks.bad_rows("bad_clicks").sink("bad_messages", bl.parquet("bad-messages"))
