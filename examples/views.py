"""Views in SQL over five streams of real data: joined, ranked, aggregated, exactly once.

Run it in a folder that has the data (`examples/cut_tables.py` makes them), with this folder on the Python path:

    boatlift run views:flow --store store --available-now
"""

from pathlib import Path

import boatlift as bl

SCHEMAS = {
    "flights": "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "air_time INT, distance INT, hour INT, minute INT, time_hour STRING",
    "weather": "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, "
    "wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour STRING",
    "planes": "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, "
    "speed INT, engine STRING",
    "airlines": "carrier STRING, name STRING",
    "airports": "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING",
}

flow = bl.Dataflow("views")
for name, schema in SCHEMAS.items():
    flow.source(name, bl.files(f"data/{name}/*.csv", schema=schema, null_value="NA", max_files_per_step=1))

views = flow.sql_file(Path(__file__).with_name("views.sql"), policy=bl.Lazy(every=10))
for name, key in {
    "punctuality": ["name"],
    "routes": ["origin", "airport"],
    "ranking": ["origin", "place"],
    "fog": ["origin"],
    "unseen": ["tailnum", "manufacturer"],
}.items():
    views[name].sink(f"{name}-table", bl.sqlite("answers.db", table=name, key=key))
views["ranking"].sink("history", bl.parquet("history"))
