"""The tasks of a stateful unit: steps over one partition, and the merging of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path

import msgspec
import pyarrow as pa

from boatlift.operators.aggregate.kernel import Layout, StepKernel
from boatlift.spark.tasks.divide import Piece, read_pieces
from boatlift.spark.tasks.ordinals import by_ordinal
from boatlift.spark.tasks.parameters import JobParameters, guarded, job_parameters, partition
from boatlift.spark.tasks.stage import Output, Report, TaskReceipt, fresh_run, packed, stage_all
from boatlift.storage.records.records import RunRef

__all__ = ["AggregateTask", "HeldRun", "MergeTask", "TaskInput"]

HeldRun = tuple[RunRef, str]
"""A run and the file it can be read from."""


class TaskInput(msgspec.Struct, frozen=True, array_like=True):
    """What a step's tasks read from a file, because it is known only when the step begins.

    Attributes:
        runs: The runs of the whole state.
        pieces: For each task where its rows are; None if Spark hands them over.
    """

    runs: list[HeldRun]
    pieces: list[list[Piece]] | None


@dataclass(frozen=True, slots=True)
class AggregateTask:
    """Steps of a stateful unit, one after the other: group the rows, probe the state, add a run, stage the changes.

    Attributes:
        layout: How state is laid out.
        output: The schema of the changes.
        processor, token: Whose steps, and who runs them.
        tasks: How many partitions the step has; partition i takes key groups g with g % tasks == i.
        outlets: Where the changes go.
        folder: Where new files go.
    """

    layout: Layout
    output: pa.Schema
    processor: str
    token: int
    tasks: int
    outlets: tuple[Output, ...]
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes a partition's rows and gives its receipts."""
        step, number = job_parameters(), partition()
        yield packed(Report(step, guarded(self.processor, lambda: self.run(step, number, batches))))

    def run(self, step: JobParameters, partition: int, batches: Iterator[pa.RecordBatch]) -> list[TaskReceipt]:
        """Takes a partition's rows; the partition's number decides which key groups they may be of.

        Args:
            step: Which; with several, `_ordinal` tells the rows apart.
            partition: Its number.
            batches: Its rows.

        Returns:
            A receipt for each time.
        """
        given = msgspec.msgpack.decode(Path(step.given).read_bytes(), type=TaskInput)
        handed = list(batches)
        taken = handed if given.pieces is None else list(read_pieces(given.pieces[partition]))
        shares = [taken] if step.first == step.last else by_ordinal(taken, len(step.times))
        held = [(path, run) for run, path in given.runs if _meets(run, self.tasks, partition)]
        receipts = []
        for time, share in zip(step.times, shares, strict=True):
            receipt = self._step(time, partition, share, held)
            if receipt.run is not None:
                held.append((str(Path(self.folder) / Path(receipt.run.name).name), receipt.run))
            receipts.append(receipt)
        return receipts

    def _step(
        self, time: int, partition: int, rows: Sequence[pa.RecordBatch], held: Sequence[tuple[str, RunRef]]
    ) -> TaskReceipt:
        name = fresh_run(self.token)
        upserts = all(outlet.upserts for outlet in self.outlets)
        kernel = StepKernel(self.layout, self.processor, upserts=upserts)
        path = Path(self.folder) / name
        made = kernel.run(rows, held, path, time=time, modulus=self.tasks, residue=partition)
        changes = [_declared(batch, self.output) for batch in made.batches]
        staged = stage_all(self.outlets, self.folder, self.token, time, partition, changes)
        run = None if made.run is None else msgspec.structs.replace(made.run, name=f"runs/{name}")
        return TaskReceipt(partition, sum(batch.num_rows for batch in rows), made.rows, made.digest, staged, run)


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
        number = partition()
        merged = guarded(self.processor, lambda: self.run(number))
        yield pa.record_batch({"receipt": pa.array([msgspec.msgpack.encode(merged)], pa.binary())})

    def run(self, partition: int) -> RunRef | None:
        """Merges a partition's share; None if it is empty."""
        name = fresh_run(self.token)
        merged = StepKernel(self.layout, self.processor).compact(
            [(path, run) for run, path in self.runs if _meets(run, self.tasks, partition)],
            Path(self.folder) / name,
            modulus=self.tasks,
            residue=partition,
        )
        return None if merged is None else msgspec.structs.replace(merged, name=f"runs/{name}")


def _meets(run: RunRef, tasks: int, partition: int) -> bool:
    """Tells whether a run can hold key groups of a partition."""
    common = gcd(run.modulus, tasks)
    return run.residue % common == partition % common


def _declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows in the declared types, which differ at most in nullability."""
    return batch if batch.schema == schema else batch.cast(schema)
