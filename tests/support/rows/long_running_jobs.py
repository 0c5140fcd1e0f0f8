"""What tests of long-running jobs ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boatlift.spark.jobs.barrier import Slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["has_long_running_job", "holds_slot"]


def has_long_running_job(spark: SparkSession) -> bool:
    return any(job._relay.is_ready for job in Slots.of(spark.sparkContext)._holders)  # type: ignore[attr-defined]


def holds_slot(spark: SparkSession) -> bool:
    """Return whether a long-running job has not ended yet."""
    return bool(Slots.of(spark.sparkContext)._holders)
