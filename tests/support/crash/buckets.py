"""The dataflow that crash tests kill whose inputs and sinks are in a bucket, under the name of the current folder."""

import json
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

import boatlift as bl
from support.buckets import bucket_of

FILES = 4
ROWS = 120


def at(name: str) -> str:
    return f"s3://boatlift/{Path.cwd().name}/{name}"


def make_objects(folder: Path) -> None:
    """Put lines that are taken in ranges, and files of Parquet."""
    bucket = bucket_of(folder.name)
    for number in range(FILES):
        lines = (json.dumps({"id": number * ROWS + row, "k": row % 7}) for row in range(ROWS))
        obstore.put(bucket, f"lines/{number}.jsonl", "\n".join(lines).encode())
        made = pa.BufferOutputStream()
        ids = [1_000_000 + number * ROWS + row for row in range(ROWS)]
        pq.write_table(pa.table({"id": ids, "tags": [[str(each % 3)] for each in ids]}), made)
        obstore.put(bucket, f"tags/{number}.parquet", made.getvalue().to_pybytes())


flow = bl.Dataflow("bucket-to-bucket")
lines = flow.source("lines", bl.files(at("lines/*.jsonl"), schema="id LONG, k INT", max_bytes_per_step=1500))
tags = flow.source("tags", bl.files(at("tags"), format="parquet", schema="id LONG, tags ARRAY<STRING>", order="name"))
lines.sink("kept", bl.parquet(at("kept")))
tags.transform("first", lambda rows: rows.select("id", F.col("tags")[0].alias("tag"))).sink(
    "tagged", bl.parquet(at("tagged"))
)
sums = lines.group_by("k").agg("sums", F.count("*").alias("n"), F.sum("id").alias("total"), policy=bl.Lazy(every=3))
sums.sink("changes", bl.parquet(at("changes")))
