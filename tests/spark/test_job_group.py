"""The progress of jobs: a task that passes rows on makes some (`test_hanging_functions`: one that hangs, none)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from boatlift.spark.jobs.job_group import JobGroup
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MARKS = 8


def test_rows_that_pass_through_a_running_task_are_progress(spark: SparkSession, tmp_path: Path) -> None:
    goes, ends = tmp_path / "goes", tmp_path / "ends"

    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        many = pa.record_batch({"id": range(10_000)})  # more than the buffer of a worker
        for _ in batches:
            while not ends.exists():
                time.sleep(0.05)
                if goes.exists():
                    yield many

    group = JobGroup(spark, "flow")
    errors: list[Exception] = []

    def work() -> None:
        try:
            group.join("unit")
            spark.range(0, 1, 1, 1).mapInArrow(passing, "id LONG").count()
        except Exception as error:  # noqa: BLE001 - compared below
            errors.append(error)

    job = threading.Thread(target=work)
    job.start()
    try:
        first = until(lambda: (found := group.activity("unit")).tasks and found)
        assert "job " in first.tasks
        assert ", task 0 on " in first.tasks
        assert group.activity("other").tasks == ""
        goes.touch()
        marks = set()
        # The beginning of a task changes a mark a few times; rows that pass change it at each heartbeat.
        until(lambda: marks.add(group.activity("unit").mark) or len(marks) >= MARKS)
        assert group.activity("unit").tasks == first.tasks
        ends.touch()
        job.join(60)
        assert not errors
        assert group.activity("unit").tasks == ""
    finally:
        ends.touch()
        job.join(60)


def test_the_jobs_of_a_unit_end_when_they_are_cancelled(spark: SparkSession) -> None:
    def hanging(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(3600)
        yield from batches

    group = JobGroup(spark, "flow")
    raised: list[str] = []

    def work() -> None:
        group.join("unit")
        try:
            spark.range(0, 1, 1, 1).mapInArrow(hanging, "id LONG").count()
        except Exception as error:  # noqa: BLE001 - compared below
            raised.append(str(error))

    job = threading.Thread(target=work)
    job.start()
    until(lambda: group.activity("unit").tasks)
    group.end("unit")
    job.join(60)
    assert "SPARK_JOB_CANCELLED" in raised[0]


def test_a_job_that_was_being_planned_when_all_ended_does_not_begin(spark: SparkSession) -> None:
    group, raised = JobGroup(spark, "flow"), []

    def work() -> None:
        group.join("unit")
        planned = spark.range(3)
        group.end_all()
        try:
            planned.count()
        except Exception as error:  # noqa: BLE001 - compared below
            raised.append(str(error))

    job = threading.Thread(target=work)
    job.start()
    job.join(60)
    assert "SPARK_JOB_CANCELLED" in raised[0]
    other = JobGroup(spark, "flow")
    other.join("unit")
    assert spark.range(3).count() == 3
