"""A dataflow's Spark jobs as one group, in which the jobs of each unit have a tag: all, or a unit's, can be ended."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from boatlift.spark.session.jvm import unless_gone


class JobGroup:
    """The jobs of one dataflow.

    Attributes:
        ended: Whether all jobs were made to end, and none may begin.
    """

    def __init__(self, spark: SparkSession, dataflow: str) -> None:
        self._context, self._dataflow = spark.sparkContext, dataflow
        self._name = f"boatlift-{dataflow}-{id(self)}"
        self._thread = threading.local()
        self.ended = False

    def join(self, unit: str) -> None:
        """Make the jobs of this thread those of a unit, unless they are: the calls are slow."""
        if not getattr(self._thread, "joined", False):
            self._context.setJobGroup(self._name, f"dataflow {self._dataflow}", interruptOnCancel=True)
            self._thread.joined, self._thread.unit = True, None
        if self._thread.unit != unit:
            self._context.clearJobTags()
            self._context.addJobTag(self._tag(unit))
            self._thread.unit = unit

    def end(self, unit: str) -> None:
        """Make the jobs of a unit end soon."""
        with unless_gone():
            self._context.cancelJobsWithTag(self._tag(unit))

    def end_all(self) -> None:
        """Make all jobs end soon, and let none begin."""
        self.ended = True
        with unless_gone():
            self._context.cancelJobGroup(self._name)

    def _tag(self, unit: str) -> str:
        return f"{self._name}-{unit}"
