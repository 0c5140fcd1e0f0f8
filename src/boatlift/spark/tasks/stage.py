"""What the last stage of a step's job does with its output: stage it for every sink, keep it for every reader.

Effects happen only here, in the last stage, so that no later stage can mix rows of two attempts. Files have fresh
names, and exist for anyone only when the driver names them from the receipts of the attempts that succeeded.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import xxhash

from boatlift.dataflow import Staged, Stager
from boatlift.dataflow.columns import ROW_HASH, WEIGHT
from boatlift.spark.tasks.parameters import JobParameters, guarded, job_parameters, partition
from boatlift.storage.records.records import RunRef

__all__ = ["Output", "Report", "StageTask", "TaskReceipt", "fresh_run", "packed", "stage_all"]


@dataclass(frozen=True, slots=True)
class Output:
    """Where a step's output goes: a sink, or (with the name `edges.EDGE`) other units.

    Attributes:
        upserts: Whether it takes only rows that hold now, not those that held before.
    """

    name: str
    stager: Stager
    upserts: bool


class TaskReceipt(msgspec.Struct, frozen=True, array_like=True):
    """What a task did, as the driver learns of it."""

    partition: int
    rows_in: int
    rows: int
    digest: int
    staged: dict[str, RunRef | None]
    run: RunRef | None = None


class Report(msgspec.Struct, frozen=True, array_like=True):
    """What a task returns: what it was told, and a receipt for each step."""

    parameters: JobParameters
    receipts: list[TaskReceipt]


def packed(report: Report) -> pa.RecordBatch:
    """Packs a task's report into the one row that it returns."""
    return pa.record_batch({"receipt": pa.array([msgspec.msgpack.encode(report)], pa.binary())})


def stage_all(
    outlets: Sequence[Output], folder: str, token: int, time: int, partition: int, changes: Sequence[pa.RecordBatch]
) -> dict[str, RunRef | None]:
    """Hands a task's output to every outlet, each under a fresh name; None where there is nothing."""
    staged: dict[str, RunRef | None] = {}
    for outlet in outlets:
        batches: Iterator[pa.RecordBatch] = iter(changes)
        if outlet.upserts:
            batches = (_held_now(batch) for batch in changes)
        name = fresh_run(token)
        receipt: Staged = outlet.stager.stage(folder, name, partition, batches)
        staged[outlet.name] = None
        if receipt.rows:
            size, digest = measured(Path(receipt.place))
            staged[outlet.name] = RunRef(f"runs/{name}", time, time, 0, partition, receipt.rows, size, digest)
    return staged


def fresh_run(token: int) -> str:
    """Makes a run's name: whose it is, and a part that nobody else can have."""
    return f"{token:012d}-{uuid.uuid4().hex}.arrow"


def measured(path: Path) -> tuple[int, str]:
    """Gives the size and the digest of a file, as they are recorded."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, xxhash.xxh3_128)
        return file.tell(), digest.hexdigest()


def _held_now(batch: pa.RecordBatch) -> pa.RecordBatch:
    weight = batch.column(WEIGHT).to_numpy(zero_copy_only=True)
    return batch.filter(pa.array(weight > 0))


@dataclass(frozen=True, slots=True)
class StageTask:
    """The task of a unit without state: it stages what Spark has computed."""

    processor: str
    token: int
    outlets: tuple[Output, ...]
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stages a partition and returns its receipt."""
        step = job_parameters()
        yield packed(Report(step, [guarded(self.processor, lambda: self.run(step.first, partition(), batches))]))

    def run(self, time: int, number: int, batches: Iterator[pa.RecordBatch]) -> TaskReceipt:
        """Stages a partition."""
        digest = 0
        rows = []
        for batch in batches:
            hashes = batch.column(ROW_HASH).to_numpy(zero_copy_only=True).view("uint64")
            digest = (digest + int(hashes.sum(dtype="uint64"))) % 2**64
            rows.append(batch.drop_columns([ROW_HASH]))
        count = sum(batch.num_rows for batch in rows)
        return TaskReceipt(
            number, count, count, digest, stage_all(self.outlets, self.folder, self.token, time, number, rows)
        )
