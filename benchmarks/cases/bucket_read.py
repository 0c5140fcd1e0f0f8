"""Rows a second of files in an object store, from the first listing to the last row, over those of a local folder.

SeaweedFS runs on this machine, and takes its share of the processors from the side that reads from it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from boatlift.testing.object_server import ObjectServer

__all__ = ["measure"]

FILES = 4
LEAST = 0.5
FORMATS = ("csv", "json", "parquet")
OBJECTS, DISK = "object store", "local folder"
SCHEMA = "k BIGINT, v DOUBLE"


def measure(effort: Effort) -> Result:
    """Read the same files of each format from both, in turns; a step takes all of them."""
    import obstore
    from obstore.store import S3Store

    import boatlift as bl

    rows = effort.keys(2_000_000)
    rates: dict[str, list[float]] = {}
    with ObjectServer() as server, tempfile.TemporaryDirectory() as folder:
        os.environ.update(server.environment)
        bucket = S3Store(server.bucket, client_options={"allow_http": True})
        for path in _written(Path(folder), rows):
            obstore.put(bucket, path.name, path)
        with bl.session(master="local[2]") as spark:
            for turn in range(effort.rounds + 1):
                for name in FORMATS:
                    for side, place in ((OBJECTS, f"s3://{server.bucket}"), (DISK, folder)):
                        began = time.perf_counter()
                        source = bl.files(f"{place}/*.{name}", schema=SCHEMA, max_files_per_step=FILES)
                        position = source.next(source.start())
                        assert position is not None
                        (answer,) = source.load(spark, position).selectExpr("count(*)", "count(v)").collect()
                        assert tuple(answer) == (rows, rows)
                        if turn:  # the first one begins workers
                            rates.setdefault(f"{side}, {name}", []).append(rows / (time.perf_counter() - began))
    ratios = {
        f"{DISK}, {name}": median_ratio(rates[f"{OBJECTS}, {name}"], rates[f"{DISK}, {name}"]) for name in FORMATS
    }
    return Result(
        name="bucket_read",
        target=f"rows/s of CSV, JSON and Parquet in an object store over those in a folder: each at least {LEAST:g}",
        met=min(ratios.values()) >= LEAST,
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )


def _written(folder: Path, rows: int) -> Sequence[Path]:
    share = rows // FILES
    for number in range(FILES):
        keys = range(number * share, number * share + share + (rows % FILES if number == FILES - 1 else 0))
        table = pa.table({"k": keys, "v": [key / 7 for key in keys]})
        pyarrow.csv.write_csv(table, folder / f"{number}.csv", pa.csv.WriteOptions(quoting_style="none"))
        (folder / f"{number}.json").write_text("".join(f'{{"k": {key}, "v": {key / 7}}}\n' for key in keys))
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=1 << 17)
    return sorted(folder.iterdir())
