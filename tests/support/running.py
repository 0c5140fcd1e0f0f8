"""A dataflow that runs beside the test, in the folder `store`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boatlift as bl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["running"]


@contextmanager
def running(flow: bl.Dataflow, spark: SparkSession, **options: Any) -> Iterator[bl.Running]:
    """Runs it, and stops it in good order."""
    started = bl.start(flow, "store", spark=spark, **options)
    try:
        yield started
    finally:
        started.stop()
