"""For a connector's code in Spark's tasks, and for sinks whose `commit` runs tasks. This module imports PySpark.

`guarded` runs a function of a task: a `BoatliftError` reaches the driver unchanged, any other error as `[INTERNAL]`. An
error outside of `guarded` counts as an error of the user's code.
`job_parameters` returns the parameters of the task's job; `source` has the bytes of `ParameterizedRead.parameters_for`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from boatlift.errors import UnavailableError
from boatlift.tasks.parameters import guarded, job_parameters
from boatlift.tasks.sealed_errors import TaskFailedError, unsealing

__all__ = ["guarded", "guarded_rows", "job_parameters", "parts_of_tasks", "run_in_tasks", "session_of_process"]

Part = TypeVar("Part")


def parts_of_tasks(
    batches: Iterator[pa.RecordBatch],
    source: str,
    tasks: Sequence[Sequence[Part]] | None,
    decode: Callable[[bytes], Sequence[Part]],
) -> Iterator[Sequence[Part]]:
    """Yield the parts of each task whose number comes in batches; without `tasks` the job's parameters name them."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            if tasks is None:
                yield guarded(source, lambda: decode(job_parameters().source))
            else:
                yield tasks[number]


def guarded_rows(source: str, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows that a task reads; an error of the read is `guarded`."""
    while (made := guarded(source, partial(next, rows, None))) is not None:
        yield made


def session_of_process() -> SparkSession | None:
    """Return the Spark session, also in a thread without an active one; None if the process has none."""
    return SparkSession.builder.getOrCreate() if SparkContext._active_spark_context is not None else None


def run_in_tasks(spark: SparkSession, count: int, work: Callable[[int], bytes], what: str) -> list[bytes]:
    """Run a function in a task for each number from 0 on; return the results in any order. Spark retries failed tasks.

    Args:
        what: The owner of the tasks, in words, for errors: `the sink of topic orders`.

    Raises:
        BoatliftError: the function raised it.
        UnavailableError: `[SINK_FAILED]` the job failed.
    """

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = guarded(what, lambda: work(number))  # noqa: B023 - called at once
                yield pa.record_batch({"result": pa.array([result], pa.binary())})

    try:
        with unsealing(spark.sparkContext):
            rows = spark.range(0, count, 1, count).mapInArrow(each, "result BINARY").collect()
    except TaskFailedError as failed:
        raise failed.error from failed
    except Exception as error:
        raise UnavailableError("SINK_FAILED", f"the tasks of {what} failed: {error}") from error
    return [bytes(row[0]) for row in rows]
