"""Messages as Arrow rows, with the names and types of Spark's own Kafka source; their count and digest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash
from confluent_kafka import Message

from boatlift.errors import DataError

_LARGEST_MS = (2**63 - 1) // 1000
"""The largest time in milliseconds that fits into microseconds."""

_NO_TIME = -(2**63)
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


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
        topic, partition: The place of the messages.
        headers: Whether rows have headers.
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
        """Add the next messages."""
        self._keys += map(Message.key, messages)
        self._values += map(Message.value, messages)
        self._offsets += map(Message.offset, messages)
        self._stamps += map(Message.timestamp, messages)
        if self._with_headers:
            headers = (message.headers() or () for message in messages)
            self._headers += [[{"key": key, "value": value} for key, value in each] for each in headers]

    def take(self) -> pa.RecordBatch:
        """Return the rows of all messages so far, and start over.

        Raises:
            DataError: `[BAD_ROW]` a time is out of range, and `timed` forbids it.
        """
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
        """Add the next rows."""
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
