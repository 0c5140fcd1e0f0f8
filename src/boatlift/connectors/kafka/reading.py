"""Tasks that read ranges of topics: messages as rows, with the columns of Spark's own Kafka source; and a digest."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash
from confluent_kafka import Message

from boatlift.connectors.kafka.access import Access
from boatlift.connectors.kafka.fetching import messages_in
from boatlift.connectors.kafka.offsets import BLOCK, Range, blocks_of, size_of
from boatlift.connectors.kit.tasks import guarded_rows, parts_of_tasks
from boatlift.dataflow.columns import ORDINAL
from boatlift.dataflow.contracts import Reading
from boatlift.decoders import packed_decoder
from boatlift.errors import DataError
from boatlift.storage.remote_files import fetched_folder, writing

_LARGEST_MS = (2**63 - 1) // 1000
"""The largest time in milliseconds that fits into microseconds."""

_NO_TIME = -(2**63)
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

ROWS_AT_ONCE = 1 << 14
"""The approximate rows of a batch for Spark."""

SMALL = 1 << 14
"""One client reads ranges with at most this many offsets together, because requests take most of the time."""


def schema_of(*, headers: bool) -> pa.Schema:
    """Return the schema of rows; `_position` is a hash of a row's topic, partition and offset."""
    fields: list[tuple[str, pa.DataType]] = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, *([("headers", pa.list_(_HEADER))] if headers else []), ("_position", pa.int64())])


class RecordBatchBuilder:
    """Collects the fields of messages of one partition, a few hundred messages at a time, which fit the CPU's cache.

    Args:
        timed: Whether a time that a row cannot hold is an error; otherwise it becomes NULL.
    """

    def __init__(self, topic: str, partition: int, *, headers: bool, timed: bool) -> None:
        self._topic, self._partition, self._with_headers, self._timed = topic, partition, headers, timed
        self._begin()

    def _begin(self) -> None:
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[int] = []
        self._stamps: list[tuple[int, int]] = []
        self._headers: list[list[dict[str, Any]]] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, messages: Sequence[Message]) -> None:
        self._keys += map(Message.key, messages)
        self._values += map(Message.value, messages)
        self._offsets += map(Message.offset, messages)
        self._stamps += map(Message.timestamp, messages)
        if self._with_headers:
            headers = (message.headers() or () for message in messages)
            self._headers += [[{"key": key, "value": value} for key, value in each] for each in headers]

    def take(self) -> pa.RecordBatch:
        count = len(self)
        stamps = np.array(self._stamps, np.int64).reshape(count, 2)
        offsets = np.array(self._offsets, np.int64)
        beyond = (stamps[:, 1] > _LARGEST_MS) | (stamps[:, 1] < -_LARGEST_MS)
        if self._timed and beyond.any():
            first = int(np.flatnonzero(beyond)[0])
            raise DataError(
                "BAD_ROW",
                f"partition {self._partition} of topic {self._topic} has at offset {offsets[first]} the time "
                f"{stamps[first, 1]} ms, which no TIMESTAMP holds: let the producer give milliseconds since 1970",
            )
        columns = [
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            pa.repeat(pa.scalar(self._topic, pa.string()), count),
            pa.repeat(pa.scalar(self._partition, pa.int32()), count),
            pa.array(offsets),
            pa.array(np.where(beyond, 0, stamps[:, 1]) * 1000, mask=beyond).cast(pa.timestamp("us", "UTC")),
            pa.array((stamps[:, 0] - 1).astype(np.int32)),  # librdkafka counts kinds of timestamps from 1, Spark from 0
        ]
        if self._with_headers:
            columns.append(pa.array(self._headers, pa.list_(_HEADER)))
        columns.append(pa.array(_positions(self._topic, self._partition, offsets)))
        made = pa.RecordBatch.from_arrays(columns, schema=schema_of(headers=self._with_headers))
        self._begin()
        return made


def _positions(topic: str, partition: int, offsets: np.ndarray) -> np.ndarray:
    """Hash the places of rows by the finaliser of SplitMix64: one to one in a partition, and almost surely overall."""
    begin = xxhash.xxh3_64_intdigest(f"{partition}/{topic}".encode())
    mixed = offsets.astype(np.uint64) + np.uint64(begin)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


@dataclass(slots=True)
class Digest:
    """Counts and digests the rows of one block of offsets, in any batches.

    Law: sequences of rows that differ in an offset, a key, a value, a timestamp or a header have different digests, up
    to chance.
    """

    rows: int = 0
    _streams: dict[str, Any] = field(default_factory=lambda: defaultdict(xxhash.xxh3_64))

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        for name in ("key", "value"):
            lengths, data = _contents(rows.column(name))
            self._streams[f"{name} lengths"].update(lengths)
            self._streams[name].update(data)
        for name in ("offset", "timestamp"):
            numbers = rows.column(name).cast(pa.int64()).fill_null(_NO_TIME)
            self._streams[name].update(np.ascontiguousarray(numbers.to_numpy()))
        if "headers" in rows.schema.names:
            headers = map(msgspec.msgpack.encode, rows.column("headers").to_pylist())
            self._streams["headers"].update(b"".join(headers))

    def value(self) -> int:
        digests = [(name, stream.intdigest()) for name, stream in sorted(self._streams.items())]
        return xxhash.xxh3_64_intdigest(msgspec.msgpack.encode((self.rows, digests)))


def _contents(column: pa.BinaryArray) -> tuple[bytes, memoryview | bytes]:
    """Return the lengths of values (-1 for NULL), and their bytes, one after the other."""
    count = len(column)
    ends = np.frombuffer(column.buffers()[1], np.int32, count + 1, column.offset * 4)
    lengths = np.diff(ends)
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, np.int32(-1))
    data = column.buffers()[2]
    return lengths.tobytes(), b"" if data is None else memoryview(data)[int(ends[0]) : int(ends[-1])]


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
        tasks: The splits of each task; None: the job's parameters name them.
    """

    source: str
    access: Access
    committed: bool
    headers: bool
    timed: bool
    tasks: tuple[tuple[Split, ...], ...] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for mine in parts_of_tasks(batches, self.source, self.tasks, _SPLITS.decode):
            for splits in _together(mine):
                yield from guarded_rows(self.source, self.read(splits))

    def read(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        """Read ranges of several partitions to their ends, and note the number and digest of their rows."""
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


def _note(split: Split, digests: Collection[Digest]) -> None:
    """Write a note of a split's rows, under a name that is the same for every attempt."""
    each = split.range
    note = _Note(sum(digest.rows for digest in digests), sum(digest.value() for digest in digests) % 2**64)
    path = Path(split.folder) / f"{each.number}-{each.partition}-{each.start}"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{time.monotonic_ns()}")
    with writing(path):
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
    """Divide the ranges of steps evenly among tasks; ranges are cut only where blocks begin."""
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
    files = fetched_folder(Path(folder))
    notes = [_NOTES.decode(path.read_bytes()) for path in files if path.name[0].isdecimal()]
    if not notes:
        return None
    return Reading(sum(note.rows for note in notes), f"{sum(note.digest for note in notes) % 2**64:016x}")
