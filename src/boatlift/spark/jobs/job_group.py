"""The Spark jobs of a dataflow as one job group, and their progress, as Spark's own status store has it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Hashable, Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from boatlift.processes.jvm import unless_gone
from boatlift.runtime.engine import Activity

MOST_TASKS = 8
"""So many running tasks of a stage are named, and asked for their rows."""


class JobGroup:
    """A dataflow's Spark jobs as one job group, with one tag per unit; each job says in words what it is for.

    The name of a group is never used again: Spark remembers that the jobs to come of a cancelled one must not begin.

    Attributes:
        ended: Whether all jobs were cancelled and none may begin.
    """

    def __init__(self, spark: SparkSession, dataflow: str) -> None:
        self._spark, self._context, self._dataflow = spark, spark.sparkContext, dataflow
        self._name = f"boatlift:{dataflow}:{secrets.token_hex(8)}"
        self._thread = threading.local()
        self.ended = False

    def join(self, unit: str, doing: str = "") -> None:
        """Let the jobs of this thread belong to a unit. Only a change calls Spark, whose calls are slow.

        Args:
            doing: The work of the jobs, as Spark's page shows it behind the unit; empty: as before, if the unit is the
                same.
        """
        if not getattr(self._thread, "joined", False):
            self._context.setJobGroup(self._name, f"dataflow {self._dataflow}", interruptOnCancel=True)
            self._thread.joined, self._thread.unit, self._thread.doing = True, None, None
        if self._thread.unit != unit:
            self._context.clearJobTags()
            self._context.addJobTag(self._tag(unit))
            self._thread.unit, self._thread.doing = unit, None
        if self._thread.doing is None or (doing and doing != self._thread.doing):
            self._context.setJobDescription(" · ".join(filter(None, (unit or self._dataflow, doing))))
            self._thread.doing = doing

    def activity(self, unit: str) -> Activity:
        """Return the progress of a unit's jobs."""
        return _activity(self._spark, self._tag(unit))

    def end(self, unit: str) -> None:
        """Cancel the jobs of a unit."""
        with unless_gone():
            self._context.cancelJobsWithTag(self._tag(unit))

    def end_all(self) -> None:
        """Cancel all jobs, and let none begin, nor one that is being planned."""
        self.ended = True
        with unless_gone():
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._name)

    def _tag(self, unit: str) -> str:
        return f"{self._name}-{unit}"


def _activity(spark: SparkSession, tag: str) -> Activity:
    """Return the progress of the running jobs with a tag.

    Executors report the rows of running tasks with each heartbeat (`spark.executor.heartbeatInterval`): those that a
    task has read itself, and those that passed between Spark's operators and to Python functions.
    """
    context = spark.sparkContext
    tracker = context._jsc.sc().statusTracker()
    jobs = sorted(tracker.getJobIdsForTag(tag))
    marks: list[Hashable] = [max(jobs, default=-1)]
    tasks: list[str] = []
    for job in jobs:
        for stage in _running_stages(tracker, job):
            marks.append((stage.stageId(), stage.currentAttemptId(), stage.numCompletedTasks(), stage.numFailedTasks()))
            if stage.numActiveTasks():
                marks.append(_rows_between_operators(spark, job))
                for number, rows, words in _running_tasks(context, job, stage):
                    marks.append((number, rows))
                    tasks.append(words)
    return Activity(tuple(marks), "; ".join(tasks))


def _rows_between_operators(spark: SparkSession, job: int) -> str:
    """Return the metrics of a job's query as text; empty if the job is of no query."""
    query = spark.sparkContext._jsc.sc().statusStore().jobWithAssociatedSql(job)._2()  # noqa: SLF001 - of a pair
    if query.isEmpty():
        return ""
    store = spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - PySpark has no public name for it
    return str(store.executionMetrics(query.get()).toString())


def _running_stages(tracker: Any, job: int) -> Iterator[Any]:
    found = tracker.getJobInfo(job)
    if found.isEmpty() or str(found.get().status()) != "RUNNING":
        return
    for number in found.get().stageIds():
        stage = tracker.getStageInfo(number)
        if not stage.isEmpty():
            yield stage.get()


def _running_tasks(context: SparkContext, job: int, stage: Any) -> Iterator[tuple[int, int, str]]:
    """Yield number, rows read and words of the first running tasks of a stage."""
    java: Any = context._jvm
    running = java.java.util.List.of(java.org.apache.spark.status.api.v1.TaskStatus.RUNNING)
    number, attempt = stage.stageId(), stage.currentAttemptId()
    store, unsorted = context._jsc.sc().statusStore(), java.scala.Option.empty()
    tasks = store.taskList(number, attempt, 0, MOST_TASKS, unsorted, True, running)
    for place in range(tasks.size()):
        task = tasks.apply(place)
        metrics, rows = task.taskMetrics(), 0
        if metrics.isDefined():
            read = metrics.get()
            rows = read.inputMetrics().recordsRead() + read.shuffleReadMetrics().recordsRead()
        executor = "" if task.executorId() == "driver" else f", executor {task.executorId()}"
        yield task.taskId(), rows, f"job {job}, stage {number}, task {task.index()} on {task.host()}{executor}"
