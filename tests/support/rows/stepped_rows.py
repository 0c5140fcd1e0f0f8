"""Rows with a time, step by step: written as files of which a step reads one, and read back from a sink of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import boatlift as bl

__all__ = ["Fields", "rows_of", "run", "steps_of", "write_steps"]

TYPES = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
SCHEMA = "k STRING, v LONG, at TIMESTAMP"
Fields = dict[str, Any]


def write_steps(steps: list[list[Fields]], name: str = "rows") -> None:
    """Write the rows of each step as a file of a folder."""
    Path(name).mkdir()
    for number, rows in enumerate(steps):
        pq.write_table(pa.Table.from_pylist(rows, TYPES), f"{name}/{number:03}.parquet")


def rows_of(flow: bl.Dataflow, name: str = "rows") -> bl.Stream:
    """Return the source of such a folder."""
    return flow.source(name, bl.files(name, format="parquet", schema=SCHEMA, max_files_per_step=1))


def steps_of(path: str) -> list[list[Fields]]:
    """Return the rows of each step of a Parquet sink."""
    return [pq.read_table(file).to_pylist() for file in sorted(Path(path).glob("*.parquet"))]


def run(flow: bl.Dataflow, spark: SparkSession, **options: Any) -> None:
    """Run a dataflow over what is there."""
    bl.run(flow, "store", available_now=True, spark=spark, **options)
