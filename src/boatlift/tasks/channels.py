"""Channels: rows that one job of a step leaves for another, and how the rows of a view are divided and netted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import InvalidError
from boatlift.state.arrangement.arranged import key_hashes, key_words
from boatlift.state.column import Column
from boatlift.state.group import group, grouped_sum
from boatlift.storage.remote_files import fetched
from boatlift.tasks.inputs import INPUT, input_column
from boatlift.tasks.kernel_task import task_input
from boatlift.tasks.parameters import JobParameters, guarded, job_parameters


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
        readers = [pa.ipc.open_file(pa.memory_map(fetched(file))) for file in files]
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
