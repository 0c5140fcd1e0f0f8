"""The tasks that write a large step: each is one of the sink's writers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from boatlift.connectors.kafka.access import Access
from boatlift.connectors.kafka.division import part_of
from boatlift.connectors.kafka.ledger import Written
from boatlift.connectors.kafka.ownership import refuse_newer
from boatlift.connectors.kafka.writer import Writer
from boatlift.connectors.kit import read_pieces
from boatlift.connectors.kit.tasks import guarded
from boatlift.dataflow.contracts import Staged
from boatlift.errors import InvalidError, UnavailableError, from_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["WriteTask", "refuse_speculation", "worth_tasks", "write_in_tasks"]

ROWS_FOR_TASKS = 100_000
"""The driver writes a step of fewer rows: a job, and the takeover of the transactional ids, would take longer."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes a step's part of each writer whose number it gets.

    Attributes:
        access: How to reach the cluster.
        topic, ledger: The topics of rows and of their records.
        records: The record of each writer.
        rows, staged: How many rows the step has, and the receipts of its pieces.
        upserts: Whether a message without a value deletes its key.
    """

    access: Access
    topic: str
    ledger: str
    records: tuple[Written, ...]
    rows: int
    staged: tuple[Staged, ...]
    upserts: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the parts; yield the records that were written."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                work = partial(self.run, self.records[number])
                written = guarded(f"the sink of topic {self.topic}", work)
                yield pa.record_batch({"receipt": pa.array([msgspec.json.encode(written)], pa.binary())})

    def run(self, record: Written) -> Written:
        """Write a part, unless an earlier attempt has; fence that attempt."""
        writer = Writer(
            self.access, self.topic, self.ledger, record.writer, partial(refuse_newer, self.topic, record.token)
        )
        rows = part_of(read_pieces(self.rows, self.staged), record.writer, record.writers, upserts=self.upserts)
        return writer.deliver(rows, lambda: record)


_WRITTEN = msgspec.json.Decoder(Written)


def write_in_tasks(spark: SparkSession, task: WriteTask) -> list[Written]:
    """Write the missing parts of a step, each in a task of its own.

    Raises:
        BoatliftError: a task raised it.
        UnavailableError: `[SINK_FAILED]` the job failed.
    """
    count = len(task.records)
    try:
        rows = spark.range(0, count, 1, count).mapInArrow(task, "receipt BINARY").collect()
    except Exception as error:
        ours = from_text(str(error))
        if ours is not None:
            raise ours from error
        raise UnavailableError("SINK_FAILED", f"the tasks that write topic {task.topic} failed: {error}") from error
    return [_WRITTEN.decode(bytes(row[0])) for row in rows]


def refuse_speculation(spark: SparkSession) -> None:
    """Raise if Spark runs tasks speculatively: a task and its double would fence each other.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise InvalidError(
            "BAD_OPTION",
            "spark.speculation is true, and tasks that write to Kafka would fence their doubles: set it to false, or "
            "writers=1",
        )


def worth_tasks(rows: int, writers: int) -> bool:
    """Return whether a step is so large that tasks write it faster than the driver."""
    return writers > 1 and rows >= ROWS_FOR_TASKS
