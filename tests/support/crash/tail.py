"""The dataflow that is killed while a process appends to the files that it reads.

It runs in the current folder, over `data/*.csv`, which `tail_writer` writes.
"""

from pyspark.sql import functions as F

import boatlift as bl

flow = bl.Dataflow("tail")
rows = flow.source(
    "rows",
    bl.files("data/*.csv", schema="file STRING, n LONG", tail=True, max_files_per_step=2, max_bytes_per_step=3000),
    bad_rows="dead_letters",
)
rows.sink("kept", bl.parquet("kept"))
rows.bad_rows("bad").sink("late", bl.parquet("late"))
sums = rows.group_by("file").agg("sums", F.count("*").alias("n"), F.sum("n").alias("total"), policy=bl.Lazy(every=3))
sums.sink("answers", bl.sqlite("answers.db", table="sums", key=["file"]))
