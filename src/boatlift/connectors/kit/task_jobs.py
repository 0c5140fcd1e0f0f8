"""Spark jobs of a sink: a commit by several tasks, or one whose effects belong into tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from boatlift.errors import UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def session_of_process() -> SparkSession | None:
    """Return the Spark session, also in a thread without an active one; None if the process has none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate() if SparkContext._active_spark_context is not None else None


def run_in_tasks(spark: SparkSession, count: int, work: Callable[[int], bytes], what: str) -> list[bytes]:
    """Run a function in a task for each number from 0 on; return the results in any order. Spark retries failed tasks.

    Args:
        work: The function; it is pickled.
        what: The owner of the tasks, in words, for errors: `the sink of topic orders`.

    Raises:
        BoatliftError: the function raised it.
        UnavailableError: `[SINK_FAILED]` the job failed.
    """

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from boatlift.connectors.kit.tasks import guarded

        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = guarded(what, lambda: work(number))  # noqa: B023 - called at once
                yield pa.record_batch({"result": pa.array([result], pa.binary())})

    from boatlift.spark.tasks.sealed_errors import TaskFailedError, unsealing

    try:
        with unsealing(spark.sparkContext):
            rows = spark.range(0, count, 1, count).mapInArrow(each, "result BINARY").collect()
    except TaskFailedError as failed:
        raise failed.error from failed
    except Exception as error:
        raise UnavailableError("SINK_FAILED", f"the tasks of {what} failed: {error}") from error
    return [bytes(row[0]) for row in rows]
