"""The tasks of a unit with a kernel: they execute steps over one partition, and merge runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import ORDINAL
from boatlift.decoders import packed_decoder
from boatlift.kernels.kernel import Kernel
from boatlift.kernels.loop.node import LoopNode
from boatlift.kernels.network.node import Node
from boatlift.kernels.step_state import (
    ALONE,
    NO_TIME,
    NOT_KEPT,
    Answers,
    Exchange,
    LoopCheckpoint,
    StepState,
    StepTime,
)
from boatlift.state.codec import ValueCodec
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.key_groups import Share
from boatlift.state.merge import merge_runs
from boatlift.state.opened import LocatedRun, RunsOnDemand
from boatlift.storage.records.records import RunRef
from boatlift.storage.remote_files import fetched
from boatlift.tasks.barrier import RelayAddress, joined
from boatlift.tasks.divide import DividedBatches, read_pieces
from boatlift.tasks.inputs import by_input
from boatlift.tasks.loop_checkpoint_files import LoopCheckpointFiles
from boatlift.tasks.parameters import (
    JobParameters,
    attempt,
    guarded,
    input_of_order,
    job_parameters,
    partition,
)
from boatlift.tasks.stage import Output, Report, TaskReceipt, fresh_run, packed, stage_all
from boatlift.tasks.state_memory import filling


class TaskInput(msgspec.Struct, frozen=True, array_like=True):
    """The part of a step's input that its tasks read from a file, because it is known only when the step begins.

    Attributes:
        runs: The runs of the whole state, by part.
        pieces: For each task the places of its rows; None if Spark delivers the rows.
        first: Whether this is the processor's first step.
        channels: The files of each channel, from an earlier job of the step or from another unit.
        clocks: The recorded clock of each step of the job, for a kernel that needs it.
        barrier: The address of the relay, if the tasks exchange rows.
        iterations: The folder of loop checkpoints.
        answers: For each step of the job its recorded answers by key; None for a step that asks now.
        passed: The time of each part of a view's state before the step, if its rows expire.
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
    """Return the input file's content for the parameters of this task's job."""
    given: TaskInput = _INPUTS.decode(input_of_order() or Path(fetched(parameters.input_file)).read_bytes())
    return given


@dataclass(frozen=True, slots=True)
class KernelTask:
    """Executes consecutive steps of a unit: runs a kernel over a partition's rows, and stages its output.

    Attributes:
        output: The declared schema of the output.
        tasks: The number of partitions; partition i has the key groups g with g % tasks == i.
        channels: The channels of the kernel, for later jobs of the step.
        memory: The folder of the state's runs, if it is in memory; else they are in `folder`.
    """

    kernel: Kernel
    output: pa.Schema
    token: int
    tasks: int
    outputs: tuple[Output, ...]
    folder: str
    channels: tuple[Output, ...] = ()
    memory: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step, number = job_parameters(), partition()
        receipts = guarded(self.kernel.processor, lambda: self.run(step, number, batches))
        yield packed(Report(step, receipts))

    def run(self, step: JobParameters, partition: int, batches: Iterator[pa.RecordBatch]) -> list[TaskReceipt]:
        """Execute the steps over a partition's rows, whose key groups follow from the partition's number.

        Args:
            step: The steps; with several, `_ordinal` divides the rows. With several inputs, `_input` does (`by_input`).
            batches: The rows, unless they are in files.

        Returns:
            A receipt for each time.
        """
        given = task_input(step)
        handed = list(batches)  # read to the end even if unused, else Spark does not reuse the worker
        rows = self._rows_by_step(step, handed if given.pieces is None else list(read_pieces(given.pieces[partition])))
        share = Share(self.tasks, partition)
        runs = {part: of_share(given.runs.get(part, ()), share) for part in self.kernel.parts}
        clocks = given.clocks or [NO_TIME] * len(rows)
        answers = given.answers or [None] * len(rows)
        receipts = []
        with self._exchange(given.barrier, share) as exchange:
            for time, clock, recorded, inputs in zip(step.times, clocks, answers, rows, strict=True):
                files: dict[str, str] = {}
                asked = Answers(self.kernel.processor, recorded) if self.kernel.records_answers else None
                state = StepState(
                    {part: RunsOnDemand(runs[part], codec) for part, codec in self.kernel.parts.items()},
                    partial(self._fresh_file, files),
                    time,
                    share,
                    given.first and time == step.first,
                    clock,
                    exchange,
                    checkpoints_of=partial(self._checkpoints, given.iterations, time, share),
                    expiries=self.kernel.expiries,
                    answers=asked,
                    passed=given.passed,
                )
                receipts.append(receipt := self._step(inputs, state, files))
                for part, run in receipt.runs.items():
                    runs[part].append((run, str(self._state / files[part])))
        return receipts

    def _rows_by_step(
        self, step: JobParameters, rows: Sequence[pa.RecordBatch]
    ) -> list[dict[str, list[pa.RecordBatch]]]:
        by_step = [list(rows)] if step.first == step.last else by_ordinal(rows, len(step.times))
        return [by_input(each, tuple(self.kernel.inputs)) for each in by_step]

    def _step(
        self, inputs: Mapping[str, Sequence[pa.RecordBatch]], state: StepState, files: Mapping[str, str]
    ) -> TaskReceipt:
        with filling(self.memory):
            made = self.kernel.step(inputs, state, upserts=all(output.upserts for output in self.outputs))
        stage = partial(stage_all, folder=self.folder, token=self.token, time=state.time, partition=state.share.residue)
        batches, replaced = ([declared(each, self.output) for each in rows] for rows in (made.batches, made.replaced))
        staged = stage(self.outputs, batches=batches, replaced=replaced)
        left: dict[str, RunRef | None] = {}
        for channel in self.channels:
            rows = made.channels.get(channel.name)
            left |= stage((channel,), batches=[] if rows is None else [rows])
        added = {part: msgspec.structs.replace(run, name=f"runs/{files[part]}") for part, run in made.runs.items()}
        rows_in = sum(batch.num_rows for batches in inputs.values() for batch in batches)
        given = None if state.answers is None else state.answers.given
        return TaskReceipt(
            state.share.residue, rows_in, made.rows, made.digest, staged, added, left, dict(made.report), given
        )

    def _fresh_file(self, files: dict[str, str], part: str) -> Path:
        files[part] = fresh_run(self.token)
        return self._state / files[part]

    @property
    def _state(self) -> Path:
        return Path(self.memory or self.folder)

    def _exchange(self, barrier: RelayAddress | None, share: Share) -> AbstractContextManager[Exchange]:
        if barrier is None:
            return nullcontext(ALONE)
        return joined(barrier, share, Path(self.folder), self.token, attempt())

    def _checkpoints(self, folder: str, time: int, share: Share, name: str, node: Node) -> LoopCheckpoint:
        if not folder or not isinstance(node, LoopNode):
            return NOT_KEPT
        return LoopCheckpointFiles(
            Path(folder), name, node.keep_every, self.kernel.processor, node.kept_codecs, time, share, self.token
        )


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges runs of one part of a state: partition i of `tasks` merges the key groups g with g % tasks == i.

    Attributes:
        processor: The processor, for runs and messages.
        memory: The folder of the state's runs, if it is in memory; else they are in `folder`.
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
    memory: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        number = partition()
        merged = guarded(self.processor, lambda: self.run(number))
        yield pa.record_batch({"receipt": pa.array([msgspec.msgpack.encode(merged)], pa.binary())})

    def run(self, partition: int) -> RunRef | None:
        """Merge a partition's share; return None if it is empty.

        Raises:
            UnavailableError: `[MEMORY_FULL]`.
        """
        with filling(self.memory):  # here, because an error of a task reaches the driver as text, without its cause
            return self._merged(partition)

    def _merged(self, partition: int) -> RunRef | None:
        name, share = fresh_run(self.token), Share(self.tasks, partition)
        runs = of_share(self.runs, share)
        opened = list(RunsOnDemand(runs, self.codec))
        merged = merge_runs(
            self.codec,
            opened,
            Path(self.memory or self.folder) / name,
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


def declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the declared types, which may differ in nullability."""
    return batch if batch.schema == schema else batch.cast(schema)


def by_ordinal(batches: Sequence[pa.RecordBatch], steps: int) -> list[list[pa.RecordBatch]]:
    """Return the rows of each step in their order, without the ordinal."""
    if not batches:
        return [[] for _ in range(steps)]
    rows = pa.concat_batches(batches)
    ordinals = rows.column(ORDINAL).to_numpy(zero_copy_only=True)
    order = np.argsort(ordinals, kind="stable")
    ends = np.cumsum(np.bincount(ordinals, minlength=steps)).tolist()
    rows = rows.drop_columns([ORDINAL]).take(pa.array(order))
    return [[rows.slice(begin, end - begin)] for begin, end in zip([0, *ends], ends, strict=False)]
