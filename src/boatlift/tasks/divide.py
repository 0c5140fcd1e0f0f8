"""Divides a step's rows among the tasks that own their keys, without Spark's shuffle (`docs/decisions/0011`).

A task writes its rows into one Arrow file in scratch, in batches of one share each. The tasks of the next job map the
file and read the batches of their share. The order of rows is not kept, because no result depends on it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import HASH
from boatlift.errors import UnavailableError
from boatlift.state.key_groups import residues
from boatlift.storage.object_cache import DIVIDED
from boatlift.storage.remote_files import fetched, writing
from boatlift.tasks.parameters import guarded

ROWS_AT_ONCE = 1 << 18
"""The number of rows that are divided together: enough for batches that are not tiny."""

DividedBatches = tuple[str, list[int]]
"""A file, and the numbers of its batches that belong to one share."""


class Division(msgspec.Struct, frozen=True, array_like=True):
    """The divided rows of one task.

    Attributes:
        place: The task's file; empty if there were no rows.
        batches: For each share, the numbers of its batches.
    """

    place: str
    batches: list[list[int]]


def hashes_of_column(rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """Return the hashes that Spark has computed."""
    hashes: npt.NDArray[np.uint64] = rows.column(HASH).to_numpy(zero_copy_only=True).view(np.uint64)
    return hashes


@dataclass(frozen=True, slots=True)
class DivideTask:
    """Divides the rows of one partition.

    Attributes:
        processor: The processor, for messages.
        shares: The number of tasks that get the rows, a power of two: share i has key groups g with g % shares == i.
        hashes: Returns the key hashes of rows.
    """

    processor: str
    shares: int
    folder: str
    hashes: Callable[[pa.RecordBatch], npt.NDArray[np.uint64]] = hashes_of_column

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        division = guarded(self.processor, lambda: self.run(batches))
        yield pa.record_batch({"receipt": pa.array([msgspec.msgpack.encode(division)], pa.binary())})

    def run(self, batches: Iterator[pa.RecordBatch]) -> Division:
        """Write the divided rows of a partition.

        Raises:
            UnavailableError: `[STORE_FAILED]` scratch cannot be written.
        """
        place = Path(self.folder) / f"{DIVIDED}{uuid.uuid4().hex}"
        numbers: list[list[int]] = [[] for _ in range(self.shares)]
        writer: pa.RecordBatchFileWriter | None = None
        written = 0
        try:
            with writing(place):
                for rows in _coalesced(batches):
                    if writer is None:
                        writer = pa.ipc.new_file(str(place), rows.schema)
                    for share, part in self._parts(rows):
                        writer.write_batch(part)
                        numbers[share].append(written)
                        written += 1
                if writer is not None:
                    writer.close()
        except OSError as error:
            raise UnavailableError("STORE_FAILED", f"cannot divide rows in {place}: {error}") from error
        return Division(str(place) if writer is not None else "", numbers)

    def _parts(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        shares = residues(self.hashes(rows), self.shares).astype(np.uint16)
        ends = np.cumsum(np.bincount(shares, minlength=self.shares))
        ordered = rows.take(pa.array(np.argsort(shares, kind="stable")))
        begin = 0
        for share, end in enumerate(ends.tolist()):
            if end > begin:
                yield share, ordered.slice(begin, end - begin)
            begin = end


def _coalesced(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= ROWS_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def pieces_of(divisions: Sequence[Division], shares: int) -> list[list[DividedBatches]]:
    """Return the places of each share's rows."""
    return [
        [
            (division.place, division.batches[share])
            for division in divisions
            if division.place and division.batches[share]
        ]
        for share in range(shares)
    ]


def read_pieces(pieces: Sequence[DividedBatches]) -> Iterator[pa.RecordBatch]:
    """Return the batches of a share, mapped into memory.

    Raises:
        UnavailableError: `[STORE_FAILED]` a file is gone or cannot be read.
    """
    for place, numbers in pieces:
        try:
            reader = pa.ipc.open_file(pa.memory_map(fetched(place)))
            for number in numbers:
                yield reader.get_batch(number)
        except (OSError, pa.ArrowInvalid) as error:
            raise UnavailableError("STORE_FAILED", f"cannot read divided rows in {place}: {error}") from error
