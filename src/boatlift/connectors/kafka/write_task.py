"""The tasks that write a large step: each is one of the sink's writers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from boatlift.connectors.kafka.access import Access
from boatlift.connectors.kafka.division import part_of
from boatlift.connectors.kafka.ledger import Written
from boatlift.connectors.kafka.ownership import refuse_newer
from boatlift.connectors.kafka.writer import Writer
from boatlift.connectors.kit import read_pieces
from boatlift.connectors.kit.task_jobs import run_in_tasks
from boatlift.dataflow.contracts import Staged
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_FOR_TASKS = 100_000
"""The driver writes a step of fewer rows: a job, and the takeover of the transactional ids, would take longer."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the part of a step of the writer whose number it gets.

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

    def __call__(self, number: int) -> bytes:
        return msgspec.json.encode(self.run(self.records[number]))

    def run(self, record: Written) -> Written:
        """Write a part, unless an earlier attempt has; fence that attempt."""
        from pyspark import TaskContext

        context = TaskContext.get()
        writer = Writer(
            self.access,
            self.topic,
            self.ledger,
            record.writer,
            partial(refuse_newer, self.topic, record.token),
            again=context is not None and context.attemptNumber() > 0,
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
    written = run_in_tasks(spark, len(task.records), task, f"the sink of topic {task.topic}")
    return [_WRITTEN.decode(each) for each in written]


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
