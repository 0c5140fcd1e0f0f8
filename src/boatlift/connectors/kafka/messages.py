"""Messages as Arrow rows, with the names and types that Spark's own Kafka source gives them; their count and digest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["Digest", "rows_of", "schema_of"]

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


def schema_of(*, headers: bool) -> pa.Schema:
    """Gives the schema of rows."""
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, *([("headers", pa.list_(_HEADER))] if headers else [])])


def rows_of(messages: Sequence[Message], *, headers: bool) -> pa.RecordBatch:
    """Makes rows of messages of one partition.

    Args:
        messages: At least one, in the order of their offsets.
        headers: Whether rows have the headers too.
    """
    first = messages[0]
    count, topic, partition = len(messages), first.topic(), first.partition()
    offsets = np.fromiter((message.offset() for message in messages), np.int64, count)
    stamps = [message.timestamp() for message in messages]
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array(offsets),
        pa.array(np.fromiter((stamp for _, stamp in stamps), np.int64, count) * 1000).cast(pa.timestamp("us", "UTC")),
        # librdkafka counts kinds of timestamps from 1, Spark from 0.
        pa.array(np.fromiter((kind for kind, _ in stamps), np.int32, count) - np.int32(1)),
    ]
    if headers:
        told = [[{"key": key, "value": value} for key, value in message.headers() or ()] for message in messages]
        columns.append(pa.array(told, pa.list_(_HEADER)))
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(headers=headers))


@dataclass(slots=True)
class Digest:
    """Counts and digests the rows of one block of offsets, whatever the batches that they come in.

    Law: two sequences of rows that differ in an offset, a key, a value, a timestamp or a header differ in their digest (but for chance).
    """

    rows: int = 0
    _streams: dict[str, Any] = field(default_factory=lambda: defaultdict(xxhash.xxh3_64))

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes the next rows in."""
        self.rows += rows.num_rows
        for name in ("key", "value"):
            lengths, data = _contents(rows.column(name))
            self._streams[f"{name} lengths"].update(lengths)
            self._streams[name].update(data)
        for name in ("offset", "timestamp"):
            self._streams[name].update(np.ascontiguousarray(rows.column(name).cast(pa.int64()).to_numpy()))
        if "headers" in rows.schema.names:
            told = map(msgspec.msgpack.encode, rows.column("headers").to_pylist())
            self._streams["headers"].update(b"".join(told))

    def value(self) -> int:
        """Gives the digest of all."""
        told = [(name, stream.intdigest()) for name, stream in sorted(self._streams.items())]
        return xxhash.xxh3_64_intdigest(msgspec.msgpack.encode((self.rows, told)))


def _contents(column: pa.BinaryArray) -> tuple[bytes, memoryview | bytes]:
    """Gives the lengths of values (-1 for NULL) and their bytes, one after the other."""
    count = len(column)
    ends = np.frombuffer(column.buffers()[1], np.int32, count + 1, column.offset * 4)
    lengths = np.diff(ends)
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, np.int32(-1))
    data = column.buffers()[2]
    return lengths.tobytes(), b"" if data is None else memoryview(data)[int(ends[0]) : int(ends[-1])]
