"""The tasks of a stateful unit: a step over one partition, and the merging of runs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from boatlift.engine.stage_task import Outlet, Receipt, stage_all
from boatlift.engine.state import Layout, StepKernel
from boatlift.errors import BoatliftError, InternalError
from boatlift.storage.records import RunRef

__all__ = ["AggregateTask", "HeldRun", "MergeTask"]

T = TypeVar("T")

HeldRun = tuple[RunRef, str]
"""A run and the file it can be read from."""


@dataclass(frozen=True, slots=True)
class AggregateTask:
    """One step of a stateful unit: group the rows, probe the state, add a run, stage the changes.

    Attributes:
        layout: How state is laid out.
        output: The schema of the changes.
        processor, time, token: Whose step, which, and who runs it.
        tasks: How many partitions the step has; partition i takes key groups g with g % tasks == i.
        state: The file that lists the runs of the whole state.
        outlets: Where the changes go.
        folder: Where new files go.
    """

    layout: Layout
    output: pa.Schema
    processor: str
    time: int
    token: int
    tasks: int
    state: str
    outlets: tuple[Outlet, ...]
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes a partition's rows and gives its receipt."""
        partition = _partition()
        yield _guarded(self.processor, lambda: self.run(partition, batches)).batch()

    def run(self, partition: int, batches: Iterator[pa.RecordBatch]) -> Receipt:
        """Takes a partition's rows; the partition's number decides which key groups they may be of."""
        taken = list(batches)
        runs = msgspec.msgpack.decode(Path(self.state).read_bytes(), type=list[HeldRun])
        name = _fresh_run(self.token)
        upserts = all(outlet.upserts for outlet in self.outlets)
        kernel = StepKernel(self.layout, self.processor, upserts=upserts)
        made = kernel.run(
            taken,
            [(path, run) for run, path in runs if _meets(run, self.tasks, partition)],
            Path(self.folder) / name,
            time=self.time,
            modulus=self.tasks,
            residue=partition,
        )
        changes = [_declared(batch, self.output) for batch in made.batches]
        staged = stage_all(self.outlets, self.folder, partition, changes)
        run = None if made.run is None else msgspec.structs.replace(made.run, name=f"runs/{name}")
        return Receipt(partition, sum(batch.num_rows for batch in taken), made.rows, made.digest, staged, run)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges runs: partition i of `tasks` makes one run of the key groups g with g % tasks == i."""

    layout: Layout
    processor: str
    token: int
    tasks: int
    runs: tuple[HeldRun, ...]
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merges this partition's share; the slot's own row means nothing."""
        for _ in batches:
            pass
        partition = _partition()
        merged = _guarded(self.processor, lambda: self.run(partition))
        yield pa.record_batch({"receipt": pa.array([msgspec.msgpack.encode(merged)], pa.binary())})

    def run(self, partition: int) -> RunRef | None:
        """Merges a partition's share; None if it is empty."""
        name = _fresh_run(self.token)
        merged = StepKernel(self.layout, self.processor).compact(
            [(path, run) for run, path in self.runs if _meets(run, self.tasks, partition)],
            Path(self.folder) / name,
            modulus=self.tasks,
            residue=partition,
        )
        return None if merged is None else msgspec.structs.replace(merged, name=f"runs/{name}")


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _fresh_run(token: int) -> str:
    """Makes a run's name: whose it is, and a part that nobody else can have."""
    return f"{token:012d}-{uuid.uuid4().hex}.arrow"


def _meets(run: RunRef, tasks: int, partition: int) -> bool:
    """Tells whether a run can hold key groups of a partition."""
    common = gcd(run.modulus, tasks)
    return run.residue % common == partition % common


def _declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows in the declared types, which differ at most in nullability."""
    return batch if batch.schema == schema else batch.cast(schema)


def _guarded(processor: str, work: Callable[[], T]) -> T:
    """Lets our errors through; any other is a fault of ours, and says so when it reaches the driver as text."""
    try:
        return work()
    except BoatliftError:
        raise
    except Exception as error:
        raise InternalError("INTERNAL", f"a task of {processor} failed with {error!r}: please report it") from error
