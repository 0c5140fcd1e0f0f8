"""The task of a view: it runs a network of nodes over one partition's changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import InvalidError
from boatlift.kernels.loop.node import LoopNode
from boatlift.kernels.network.network import Network, OutputCollector
from boatlift.kernels.network.node import ZSet, concat
from boatlift.kernels.step_state import ALONE, NOT_KEPT, Exchange, LoopCheckpoint, Runs
from boatlift.spark.tasks.barrier import RelayAddress, joined
from boatlift.spark.tasks.divide import read_pieces
from boatlift.spark.tasks.inputs import INPUT, by_input, input_column
from boatlift.spark.tasks.keyed_task import of_share, task_input
from boatlift.spark.tasks.loop_checkpoint_files import LoopCheckpointFiles
from boatlift.spark.tasks.parameters import JobParameters, attempt, guarded, job_parameters, partition
from boatlift.spark.tasks.stage import Output, Report, TaskReceipt, fresh_run, packed, stage_all
from boatlift.spark.tasks.staging import ArrowStager, as_declared
from boatlift.state.arrangement.arranged import key_hashes, key_words
from boatlift.state.column import Column
from boatlift.state.group import group, grouped_sum
from boatlift.state.key_groups import Share
from boatlift.state.opened import LocatedRun, RunsOnDemand
from boatlift.storage.records.records import RunRef


@dataclass(frozen=True, slots=True)
class Channel:
    """Rows that a job writes for later jobs of the same step.

    Attributes:
        name: Its name within the view.
        place: The place in the network of the node with these rows.
    """

    name: str
    place: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class NetworkTask:
    """Runs the nodes of a network over a partition's changes, and stages their output.

    Attributes:
        channels: The rows for later jobs of the step.
        output_collector: Collects the step's output; None in a job that is not the step's last.
        tasks: The number of partitions; partition i has the key groups g with g % tasks == i.
    """

    processor: str
    network: Network
    channels: tuple[Channel, ...]
    output_collector: OutputCollector | None
    outputs: tuple[Output, ...]
    token: int
    tasks: int
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parameters, number = job_parameters(), partition()
        receipt = guarded(self.processor, lambda: self.run(parameters, number, list(batches)))
        yield packed(Report(parameters, [receipt]))

    def run(self, parameters: JobParameters, number: int, handed: Sequence[pa.RecordBatch]) -> TaskReceipt:
        """Execute the step over a partition's rows.

        Args:
            number: The partition's number, which determines the key groups of its rows.
            handed: The rows, unless they are in files.
        """
        given, share = task_input(parameters), Share(self.tasks, number)
        rows = handed if given.pieces is None else list(read_pieces(given.pieces[number]))
        names = tuple(map(str, range(len(self.network.inputs))))
        inputs = by_input(rows, names)
        files: dict[str, str] = {}

        def write_to(part: str) -> Path:
            files[part] = fresh_run(self.token)
            return Path(self.folder) / files[part]

        changes = [change_of(inputs[name], schema) for name, schema in zip(names, self.network.inputs, strict=True)]
        with self._exchange(given.barrier, share) as exchange:
            made = self.network.step(
                changes,
                self._opened(given.runs, share),
                write_to,
                time=parameters.first,
                share=share,
                first=given.first,
                exchange=exchange,
                iterations=partial(self._iterations, given.iterations, parameters.first, share),
                passed=given.passed,
            )
        runs = {part: msgspec.structs.replace(run, name=f"runs/{files[part]}") for part, run in made.runs.items()}
        staged = self._staged(made.changes, parameters.first, number)
        rows_in = sum(batch.num_rows for batch in rows)
        if self.output_collector is None:
            return TaskReceipt(number, rows_in, 0, 0, {}, runs, staged)
        result = self.output_collector.of(made.changes)
        handed_out = stage_all(
            self.outputs, self.folder, self.token, parameters.first, number, result.rows, result.replaced
        )
        return TaskReceipt(number, rows_in, result.count, result.digest, handed_out, runs, staged)

    def _iterations(self, folder: str, time: int, share: Share, name: str) -> LoopCheckpoint:
        node = self.network.nodes[self.network.names.index(name)]
        if not folder or not isinstance(node, LoopNode):
            return NOT_KEPT
        return LoopCheckpointFiles(
            Path(folder), name, node.keep_every, self.processor, node.kept_codecs, time, share, self.token
        )

    def _exchange(self, barrier: RelayAddress | None, share: Share) -> AbstractContextManager[Exchange]:
        if barrier is None:
            return nullcontext(ALONE)
        return joined(barrier, share, Path(self.folder), self.token, attempt())

    def _opened(self, runs: Mapping[str, Sequence[LocatedRun]], share: Share) -> dict[str, Runs]:
        return {
            part: RunsOnDemand(of_share(runs.get(part, ()), share), codec) for part, codec in self.network.parts.items()
        }

    def _staged(self, changes: Sequence[ZSet | None], time: int, number: int) -> dict[str, RunRef | None]:
        left: dict[str, RunRef | None] = {}
        for channel in self.channels:
            change = changes[channel.place]
            batches = []
            if change is not None:
                columns = [*change.columns, pa.array(change.weights)]
                batches.append(pa.RecordBatch.from_arrays(columns, schema=channel.schema))
            output = Output(channel.name, ArrowStager(channel.schema), upserts=False)
            left |= stage_all((output,), self.folder, self.token, time, number, batches)
        return left


def change_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> ZSet | None:
    """Return an input's rows in the declared types; the batches' last column is `_weight`."""
    changes = [
        ZSet(
            tuple(map(as_declared, batch.columns[:-1], schema.types)),
            batch.column(WEIGHT).to_numpy(zero_copy_only=False).astype(np.int64),
        )
        for batch in batches
    ]
    return concat(changes)


@dataclass(frozen=True, slots=True)
class InputHashes:
    """The key hashes of rows, by which nodes divide them.

    Attributes:
        keys: For each input the places of its key columns; None: all columns.
    """

    keys: tuple[tuple[int, ...] | None, ...]

    def __call__(self, rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        if len(self.keys) == 1:
            return self._of(0, rows)
        hashes = np.zeros(rows.num_rows, np.uint64)
        numbers = rows.column(INPUT).to_numpy(zero_copy_only=False)
        for number in range(len(self.keys)):
            places = np.flatnonzero(numbers == number)
            own = rows.column(input_column(number)).take(pa.array(places))
            hashes[places] = self._of(number, pa.RecordBatch.from_struct_array(own))
        return hashes

    def _of(self, number: int, rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        places = self.keys[number]
        chosen = range(rows.num_columns - 1) if places is None else places  # the last column is `_weight`
        return key_hashes([rows.column(place) for place in chosen], rows.num_rows)


@dataclass(frozen=True, slots=True)
class ChannelTask:
    """Reads a channel: files of an earlier job of the step, or of another unit.

    Attributes:
        processor: The unit that reads, for messages.
        files: The files; the task's input rows have their numbers. None: the one task reads all files that the job's
            input file names.
    """

    processor: str
    name: str
    files: tuple[str, ...] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        yield from guarded(self.processor, lambda: self.run(numbers))

    def is_named(self, parameters: JobParameters) -> bool:
        """Return whether the input file of a step's job names files of this channel."""
        return bool(parameters.input_file) and self.name in task_input(parameters).channels

    def run(self, numbers: Sequence[int]) -> list[pa.RecordBatch]:
        """Return the rows of some of the files."""
        if self.files is None:
            files: Sequence[str] = task_input(job_parameters()).channels[self.name]
        else:
            files = [self.files[number] for number in numbers]
        readers = [pa.ipc.open_file(pa.memory_map(file)) for file in files]
        return [reader.get_batch(each) for reader in readers for each in range(reader.num_record_batches)]


@dataclass(frozen=True, slots=True)
class NetTask:
    """Drops the rows of a change that cancel out: their weights add up to 0.

    Attributes:
        processor: The unit that reads, for messages.
    """

    processor: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the remaining rows of a partition; equal rows are in one partition."""
        yield from guarded(self.processor, lambda: self.run(list(batches)))

    def run(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        if not batches:
            return []
        rows = pa.Table.from_batches(batches).combine_chunks()
        columns = [column.combine_chunks() for column in rows.columns[:-1]]  # the last column is `_weight`
        try:
            hashes, words = key_hashes(columns, len(rows)), key_words(columns, len(rows))
        except InvalidError:  # values of this type cannot be compared, so no rows are known to cancel out
            return list(batches)
        grouping = group(hashes, [Column(pa.int64(), words)])
        weights = rows.column(WEIGHT).to_numpy()[grouping.order]
        sizes = np.diff(grouping.starts, append=len(rows))
        left = np.repeat(grouped_sum(weights, grouping.starts) != 0, sizes)
        kept: list[pa.RecordBatch] = rows.take(pa.array(np.sort(grouping.order[left]))).to_batches()
        return kept
