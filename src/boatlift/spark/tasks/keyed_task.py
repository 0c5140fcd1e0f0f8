"""The tasks of a unit with keyed state: steps over one partition, and the merging of runs, both by a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from boatlift.decoders import packed_decoder
from boatlift.kernels.answers import Answers
from boatlift.kernels.kernel import KeyedKernel
from boatlift.kernels.step_state import NO_TIME, StepState, StepTime
from boatlift.spark.tasks.divide import DividedBatches, read_pieces
from boatlift.spark.tasks.inputs import by_input
from boatlift.spark.tasks.ordinals import by_ordinal
from boatlift.spark.tasks.parameters import JobParameters, guarded, job_parameters, partition
from boatlift.spark.tasks.relay_connection import RelayAddress
from boatlift.spark.tasks.stage import Output, Report, TaskReceipt, fresh_run, packed, stage_all
from boatlift.state.codec import ValueCodec
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.key_groups import Share
from boatlift.state.merge import merge_runs
from boatlift.state.opened import LocatedRun, RunsOnDemand
from boatlift.storage.records.records import RunRef


class TaskInput(msgspec.Struct, frozen=True, array_like=True):
    """The part of a step's input that its tasks read from a file, because it is known only when the step begins.

    Attributes:
        runs: The runs of the whole state, by part.
        pieces: For each task the places of its rows; None if Spark hands them over.
        first: Whether this is the first step that the processor takes.
        channels: The files of each channel of rows: those that an earlier job of the step has left, and those that
            other units have sent.
        clocks: The recorded clock of each step of the job, for a kernel that asks for it.
        barrier: Where the tasks meet, if they exchange rows while they run.
        iterations: Where the rounds of loops are kept.
        answers: The answers of each step of the job that is executed again, by key; None of a step that asks.
        passed: The time that had passed for each part of a view's state before the step, if its rows expire.
    """

    runs: dict[str, list[LocatedRun]]
    pieces: list[list[DividedBatches]] | None
    first: bool = False
    channels: dict[str, list[str]] = {}
    clocks: list[StepTime] = []
    barrier: RelayAddress | None = None
    iterations: str = ""
    answers: list[dict[str, list[str]] | None] = []
    passed: dict[str, int] = {}


_INPUTS = packed_decoder(TaskInput)


def task_input(parameters: JobParameters) -> TaskInput:
    """Return what the parameters of a job name."""
    given: TaskInput = _INPUTS.decode(Path(parameters.input_file).read_bytes())
    return given


@dataclass(frozen=True, slots=True)
class KeyedTask:
    """Steps of a unit with keyed state, one after the other: run the kernel over the step's rows, stage its output.

    Attributes:
        output: The schema of the output as it is declared.
        tasks: How many partitions the step has; partition i takes key groups g with g % tasks == i.
    """

    kernel: KeyedKernel
    output: pa.Schema
    token: int
    tasks: int
    outputs: tuple[Output, ...]
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step, number = job_parameters(), partition()
        receipts = guarded(self.kernel.processor, lambda: self.run(step, number, batches))
        yield packed(Report(step, receipts))

    def run(self, step: JobParameters, partition: int, batches: Iterator[pa.RecordBatch]) -> list[TaskReceipt]:
        """Take a partition's rows; the partition's number decides which key groups they may be of.

        Args:
            step: The steps; with several, `_ordinal` divides the rows. With several inputs, `_input` does (`by_input`).
            batches: Its rows, unless they stand in files.

        Returns:
            A receipt for each time.
        """
        given = task_input(step)
        handed = list(batches)  # read to its end also if it says nothing: else Spark does not use the worker again
        rows = self._rows_by_step(step, handed if given.pieces is None else list(read_pieces(given.pieces[partition])))
        share = Share(self.tasks, partition)
        runs = {part: of_share(given.runs.get(part, ()), share) for part in self.kernel.parts}
        clocks = given.clocks or [NO_TIME] * len(rows)
        answers = given.answers or [None] * len(rows)
        receipts = []
        for time, clock, recorded, inputs in zip(step.times, clocks, answers, rows, strict=True):
            asked = Answers(self.kernel.processor, recorded) if self.kernel.records_answers else None
            receipt = self._step(time, clock, share, inputs, runs, asked)
            for part, run in receipt.runs.items():
                runs[part].append((run, str(Path(self.folder) / Path(run.name).name)))
            receipts.append(receipt)
        return receipts

    def _rows_by_step(
        self, step: JobParameters, rows: Sequence[pa.RecordBatch]
    ) -> list[dict[str, list[pa.RecordBatch]]]:
        """Return for each step the rows of each input."""
        by_step = [list(rows)] if step.first == step.last else by_ordinal(rows, len(step.times))
        return [by_input(each, tuple(self.kernel.inputs)) for each in by_step]

    def _step(
        self,
        time: int,
        clock: StepTime,
        share: Share,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        runs: Mapping[str, Sequence[LocatedRun]],
        answers: Answers | None,
    ) -> TaskReceipt:
        files: dict[str, str] = {}

        def write_to(part: str) -> Path:
            files[part] = fresh_run(self.token)
            return Path(self.folder) / files[part]

        opened = {part: RunsOnDemand(runs[part], codec) for part, codec in self.kernel.parts.items()}
        state = StepState(opened, write_to, time, share, clock=clock, expiries=self.kernel.expiries, answers=answers)
        made = self.kernel.step(inputs, state, upserts=all(output.upserts for output in self.outputs))
        batches = [_declared(batch, self.output) for batch in made.batches]
        replaced = [_declared(batch, self.output) for batch in made.replaced]
        staged = stage_all(self.outputs, self.folder, self.token, time, share.residue, batches, replaced)
        added = {part: msgspec.structs.replace(run, name=f"runs/{files[part]}") for part, run in made.runs.items()}
        rows_in = sum(batch.num_rows for batches in inputs.values() for batch in batches)
        given = None if answers is None else answers.given
        return TaskReceipt(share.residue, rows_in, made.rows, made.digest, staged, added, answers=given)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges runs of one part of a state: partition i of `tasks` makes one run of the key groups g with g % tasks == i.

    Attributes:
        processor: The processor whose state it is.
        codec: The form of the part's rows.
        oldest: Whether no other run of the part is older.
        expiry, now: The column by which rows of the part expire, and the time by which they have; see `merge_runs`.
    """

    processor: str
    codec: ValueCodec[Any, Any]
    token: int
    tasks: int
    runs: tuple[LocatedRun, ...]
    folder: str
    oldest: bool = False
    expiry: ExpiryColumn | None = None
    now: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        number = partition()
        merged = guarded(self.processor, lambda: self.run(number))
        yield pa.record_batch({"receipt": pa.array([msgspec.msgpack.encode(merged)], pa.binary())})

    def run(self, partition: int) -> RunRef | None:
        """Merge a partition's share; return None if it is empty."""
        name, share = fresh_run(self.token), Share(self.tasks, partition)
        runs = of_share(self.runs, share)
        opened = list(RunsOnDemand(runs, self.codec))
        merged = merge_runs(
            self.codec,
            opened,
            Path(self.folder) / name,
            processor=self.processor,
            share=share,
            oldest=self.oldest,
            expiry=self.expiry,
            now=self.now,
        )
        return None if merged is None else msgspec.structs.replace(merged, name=f"runs/{name}")


def of_share(runs: Iterable[LocatedRun], share: Share) -> list[LocatedRun]:
    """Return the runs that may hold keys of a share."""
    return [(run, path) for run, path in runs if Share(run.modulus, run.residue).meets(share)]


def _declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same rows in the declared types, which differ at most in nullability."""
    return batch if batch.schema == schema else batch.cast(schema)
