"""Tasks that read ranges of topics, count their rows and digest them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from boatlift.connectors.kafka.access import Access
from boatlift.connectors.kafka.fetching import messages_in
from boatlift.connectors.kafka.messages import Digest, RecordBatchBuilder
from boatlift.connectors.kafka.offsets import BLOCK, Range, blocks_of, size_of
from boatlift.connectors.kit.tasks import guarded, job_parameters
from boatlift.dataflow.columns import ORDINAL
from boatlift.dataflow.contracts import Reading
from boatlift.decoders import packed_decoder

ROWS_AT_ONCE = 1 << 14
"""The approximate rows of a batch for Spark."""

SMALL = 1 << 14
"""One client reads ranges with at most this many offsets together, because requests take most of the time."""


class _Note(msgspec.Struct, frozen=True, array_like=True):
    rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a step's range that one task reads.

    Attributes:
        range: The offsets; they begin at a block or with the step.
        ordinal: The index of the step, if several are read together; otherwise None.
        folder: Where the task notes the number and digest of its rows; empty: nowhere.
    """

    range: Range
    ordinal: int | None
    folder: str


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """Reads the ranges of each task whose number it gets.

    Attributes:
        committed: Whether rows of aborted and open transactions are left out.
        headers: Whether rows have headers.
        timed: Whether rows have the time of their message.
        tasks: The splits of each task; None: the job's parameters name them.
    """

    source: str
    access: Access
    committed: bool
    headers: bool
    timed: bool
    tasks: tuple[tuple[Split, ...], ...] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                mine = guarded(self.source, _splits_of_job) if self.tasks is None else self.tasks[number]
                for splits in _together(mine):
                    rows = self.read(splits)
                    while (made := guarded(self.source, partial(next, rows, None))) is not None:
                        yield made

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        """Read ranges of several partitions to their ends, and note the number and digest of their rows.

        Raises:
            DataError: `[INPUT_MISSING]` offsets of the ranges are gone, `[BAD_ROW]` a time is beyond the range.
            UnavailableError: `[INPUT_UNAVAILABLE]` the cluster does not answer.
        """
        ranges = [split.range for split in splits]
        gathered = [
            RecordBatchBuilder(each.topic, each.partition, headers=self.headers, timed=self.timed) for each in ranges
        ]
        digests = [{start // BLOCK: Digest() for start, _ in blocks_of(each)} for each in ranges]
        for i, messages in messages_in(ranges, self.access, self.source, committed=self.committed):
            gathered[i].add(messages)
            if len(gathered[i]) >= ROWS_AT_ONCE:
                yield self._digested(gathered[i].take(), digests[i], splits[i].ordinal)
        for split, rows, found in zip(splits, gathered, digests, strict=True):
            if len(rows):
                yield self._digested(rows.take(), found, split.ordinal)
            if split.folder:
                _note(split, found.values())

    @staticmethod
    def _digested(rows: pa.RecordBatch, digests: dict[int, Digest], ordinal: int | None) -> pa.RecordBatch:
        blocks = rows.column("offset").to_numpy() // BLOCK
        for block in np.unique(blocks).tolist():
            begin, end = np.searchsorted(blocks, [block, block + 1]).tolist()
            digests[block].add(rows.slice(begin, end - begin))
        if ordinal is None:
            return rows
        return rows.append_column(ORDINAL, pa.repeat(pa.scalar(ordinal, pa.int32()), rows.num_rows))


_SPLITS, _NOTES = packed_decoder(list[Split]), packed_decoder(_Note)


def parameters_for(splits: Sequence[Split]) -> bytes:
    """Return the parameters of a job whose task reads splits."""
    return msgspec.msgpack.encode(splits)


def _splits_of_job() -> list[Split]:
    splits: list[Split] = _SPLITS.decode(job_parameters().source)
    return splits


def _note(split: Split, digests: Collection[Digest]) -> None:
    """Write a note of a split's rows, under a name that is the same for every attempt."""
    each = split.range
    note = _Note(sum(digest.rows for digest in digests), sum(digest.value() for digest in digests) % 2**64)
    path = Path(split.folder) / f"{each.number}-{each.partition}-{each.start}"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{time.monotonic_ns()}")
    draft.write_bytes(msgspec.msgpack.encode(note))
    draft.replace(path)


def _together(splits: Sequence[Split]) -> Iterator[list[Split]]:
    """Yield splits in order: small ones of different partitions together, others alone."""
    group: list[Split] = []
    for split in splits:
        places = {(each.range.topic, each.range.partition) for each in group}
        size = size_of(each.range for each in (*group, split))
        if group and (size > SMALL or (split.range.topic, split.range.partition) in places):
            yield group
            group = []
        group.append(split)
    if group:
        yield group


def divided(steps: Sequence[tuple[Sequence[Range], int | None, str]], tasks: int) -> tuple[tuple[Split, ...], ...]:
    """Divide the ranges of steps evenly among tasks; ranges are cut only where blocks begin.

    Args:
        steps: The ranges, ordinal and folder of each step.
    """
    total = sum(size_of(ranges) for ranges, _, _ in steps)
    share = max(1, -(-total // max(1, tasks)))
    made: list[list[Split]] = [[]]
    left = share
    for ranges, ordinal, folder in steps:
        for each in ranges:
            start = each.start
            for _, end in blocks_of(each):
                if end - start < left and end < each.end:
                    continue
                made[-1].append(Split(replace(each, start=start, end=end), ordinal, folder))
                left -= end - start
                start = end
                if left <= 0 and len(made) < tasks:
                    made.append([])
                    left = share
    return tuple(tuple(each) for each in made if each)


def read_notes(folder: str) -> Reading | None:
    """Return the sum of the tasks' notes; None if no task has read anything."""
    notes = [_NOTES.decode(path.read_bytes()) for path in Path(folder).glob("[0-9]*")]
    if not notes:
        return None
    return Reading(sum(note.rows for note in notes), f"{sum(note.digest for note in notes) % 2**64:016x}")
