"""The last stage of a step's job: it stages the output for every sink and every reading unit.

Effects happen only in the last stage, so that no later stage can mix the rows of two attempts. Files have fresh names,
and count only if the driver finds their names in the receipts of attempts that succeeded.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from boatlift.dataflow import Staged, Stager
from boatlift.dataflow.columns import ORDINAL, ROW_HASH
from boatlift.storage.records.records import RunRef
from boatlift.tasks.parameters import JobParameters, guarded, job_parameters, partition


@dataclass(frozen=True, slots=True)
class Output:
    """A destination of a step's output: a sink, or (with the name `EDGE`) the units that read it.

    Attributes:
        upserts: Whether it keeps one row per key, so that it needs no row that the step replaces.
    """

    name: str
    stager: Stager
    upserts: bool


class TaskReceipt(msgspec.Struct, frozen=True, array_like=True):
    """The report of a task on one step.

    Attributes:
        rows_in: The number of input rows.
        rows, digest: The number of output rows, and their digest.
        staged: Output to its file of rows; None if it has no rows.
        runs: Part of the state to the run that the step adds, if it adds any.
        channels: Channel to its file of rows for later jobs of the step; None if it has no rows.
        report: Numbers of the operator's own.
        answers: The answers of the external system by key; None if the task records none.
    """

    partition: int
    rows_in: int
    rows: int
    digest: int
    staged: dict[str, RunRef | None]
    runs: dict[str, RunRef] = {}
    channels: dict[str, RunRef | None] = {}
    report: dict[str, Any] = {}
    answers: dict[str, list[str]] | None = None


class Report(msgspec.Struct, frozen=True, array_like=True):
    """The result of a task: the parameters of its job, and a receipt for each step."""

    parameters: JobParameters
    receipts: list[TaskReceipt]


def packed(report: Report) -> pa.RecordBatch:
    """Return a report as the one row that a task returns."""
    return pa.record_batch({"receipt": pa.array([msgspec.msgpack.encode(report)], pa.binary())})


def stage_all(
    outputs: Sequence[Output],
    folder: str,
    token: int,
    time: int,
    partition: int,
    batches: Sequence[pa.RecordBatch],
    replaced: Sequence[pa.RecordBatch] = (),
) -> dict[str, RunRef | None]:
    """Stage a task's rows for every output under fresh names; return None for an output without rows.

    Args:
        replaced: The old rows of keys that get another row; only outputs without `upserts` receive them.
    """
    staged: dict[str, RunRef | None] = {}
    for output in outputs:
        name = fresh_run(token)
        rows = iter(batches) if output.upserts else chain(replaced, batches)
        receipt: Staged = output.stager.stage(folder, name, partition, rows)
        staged[output.name] = None
        if receipt.rows:
            size, digest = measured(Path(receipt.place))
            staged[output.name] = RunRef(f"runs/{name}", time, time, 0, partition, receipt.rows, size, digest)
    return staged


def fresh_run(token: int) -> str:
    """Return a unique file name: the owner's token, and a random part."""
    return f"{token:012d}-{uuid.uuid4().hex}.arrow"


def measured(path: Path) -> tuple[int, str]:
    """Return the size and the digest of a file, as records have them."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, xxhash.xxh3_128)
        return file.tell(), digest.hexdigest()


@dataclass(frozen=True, slots=True)
class StageTask:
    """The task of a unit without state: it stages the rows that Spark has computed."""

    processor: str
    token: int
    outputs: tuple[Output, ...]
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step, number = job_parameters(), partition()
        yield packed(Report(step, guarded(self.processor, lambda: self.run_all(step.times, number, batches))))

    def run_all(self, times: range, number: int, batches: Iterator[pa.RecordBatch]) -> list[TaskReceipt]:
        """Stage a partition's rows of each step; rows of several steps have `_ordinal`."""
        rows = zip(times, _by_step(batches, len(times)), strict=True)
        return [self.run(time, number, iter(some)) for time, some in rows]

    def run(self, time: int, number: int, batches: Iterator[pa.RecordBatch]) -> TaskReceipt:
        """Stage a partition's rows of a step, which have `_row_hash`."""
        digest = 0
        rows = []
        for batch in batches:
            hashes = batch.column(ROW_HASH).to_numpy(zero_copy_only=True).view("uint64")
            digest = (digest + int(hashes.sum(dtype="uint64"))) % 2**64
            rows.append(batch.drop_columns([ROW_HASH]))
        count = sum(batch.num_rows for batch in rows)
        return TaskReceipt(
            number, count, count, digest, stage_all(self.outputs, self.folder, self.token, time, number, rows)
        )


def _by_step(batches: Iterator[pa.RecordBatch], steps: int) -> list[list[pa.RecordBatch]]:
    """Return the rows of each step in their order, without the ordinal; rows without one are those of a single step.

    If that is not so, a task has the parameters of another job. The report has these, so that the driver sees it.
    """
    found: list[list[pa.RecordBatch]] = [[] for _ in range(steps)]
    for batch in batches:
        if ORDINAL not in batch.schema.names:
            found[0].append(batch)
            continue
        ordinals = batch.column(ORDINAL).to_numpy(zero_copy_only=True)
        rows = batch.drop_columns([ORDINAL])
        ends = [0, *(np.flatnonzero(np.diff(ordinals)) + 1).tolist(), len(ordinals)]
        for begin, end in pairwise(ends):
            if begin < end:
                found[ordinals[begin]].append(rows.slice(begin, end - begin))
    return found
