"""A dataflow's Spark jobs as one group, in which each unit's have a tag: so all, or a unit's, can be made to end."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from boatlift.spark.session.jvm import unless_gone

__all__ = ["JobGroup"]


class JobGroup:
    """The jobs of one dataflow.

    Args:
        spark: The session.
        dataflow: Its name, for people.
    """

    def __init__(self, spark: SparkSession, dataflow: str) -> None:
        self._context, self._dataflow = spark.sparkContext, dataflow
        self._name = f"boatlift-{dataflow}-{id(self)}"
        self._thread = threading.local()

    def join(self, unit: str) -> None:
        """Makes the jobs of this thread those of a unit, if they are not: it is slow."""
        if not getattr(self._thread, "joined", False):
            self._context.setJobGroup(self._name, f"dataflow {self._dataflow}", interruptOnCancel=True)
            self._thread.joined, self._thread.unit = True, None
        if self._thread.unit != unit:
            self._context.clearJobTags()
            self._context.addJobTag(self._tag(unit))
            self._thread.unit = unit

    def end(self, unit: str) -> None:
        """Makes the jobs of a unit end soon."""
        with unless_gone():
            self._context.cancelJobsWithTag(self._tag(unit))

    def end_all(self) -> None:
        """Makes all jobs end soon."""
        with unless_gone():
            self._context.cancelJobGroup(self._name)

    def _tag(self, unit: str) -> str:
        return f"{self._name}-{unit}"
