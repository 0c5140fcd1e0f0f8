"""Batches have Python workers of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from boatlift.processes.worker_pools import BATCHES, workers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_plan_that_is_built_for_a_batch_has_workers_apart(spark: SparkSession) -> None:
    def mine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"worker": [os.getpid()], "daemon": [os.getppid()]})

    def who() -> tuple[int, int]:
        (row,) = spark.range(0, 1, 1, 1).mapInArrow(mine, "worker LONG, daemon LONG").collect()
        return row["worker"], row["daemon"]

    everybody = who()
    with workers_of(BATCHES, spark.sparkContext):
        batch = who()
    assert batch[1] != everybody[1]
    assert who()[1] == everybody[1]
