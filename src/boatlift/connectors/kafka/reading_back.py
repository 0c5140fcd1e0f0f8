"""The rows that a sink's topic holds, read in the tasks from the topic's own messages.

Of upserts the newest message of a key counts, so a compacted topic is enough. Of other rows every message counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from boatlift.connectors.kafka.decoding import refuse_unreadable, rows_of_messages
from boatlift.connectors.kafka.ledger import SettlingTopic
from boatlift.connectors.kafka.offsets import Range, size_of
from boatlift.connectors.kafka.reading import ReadRanges, divided
from boatlift.connectors.kafka.topics import Partition
from boatlift.connectors.kafka.value_format import messages_schema
from boatlift.connectors.kafka.writer import WEIGHT_HEADER
from boatlift.connectors.kit import user_columns
from boatlift.connectors.kit.tasks import guarded_rows
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_OF_A_TASK = 50_000
"""A task reads at least this many offsets, if there are so many."""


@dataclass(frozen=True, slots=True)
class _MessagesToRows:
    """Turns messages into the rows that were sent as them.

    Attributes:
        read: Reads the messages; None: they come as batches, the newest of each key.
    """

    topic: str
    fields: tuple[pa.Field, ...]
    raw: bool
    read: ReadRanges | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        messages = batches if self.read is None else self.read(batches)
        yield from guarded_rows(f"the sink of topic {self.topic}", map(self._rows, messages))

    def _rows(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        if self.read is None:
            self._refuse_several_partitions(messages)
            messages = messages.filter(pc.is_valid(messages.column("value")))
        keys, values = messages.column("key"), messages.column("value")
        weights = self._weights(messages)
        columns = rows_of_messages(self.topic, self.fields, keys, values, raw=self.raw)
        names = [*(field.name for field in self.fields), WEIGHT]
        return pa.RecordBatch.from_arrays([*columns, pa.array(weights, pa.int64())], names)

    def _refuse_several_partitions(self, messages: pa.RecordBatch) -> None:
        moved = messages.filter(pc.not_equal(messages.column("least"), messages.column("most")))
        for each in moved.slice(0, 1).to_pylist():
            raise InvalidError(
                "SINK_NOT_READABLE",
                f"topic {self.topic} has messages of key {each['key']!r} in the partitions {each['least']} and "
                f"{each['most']}, because partitions were added, so nothing tells which is newer: choose --change "
                "SINK=now, or give the sink another name and topic",
            )

    def _weights(self, messages: pa.RecordBatch) -> list[int]:
        if "headers" not in messages.schema.names:
            return [1] * len(messages)
        weights = [
            next((each["value"] for each in reversed(headers) if each["key"] == WEIGHT_HEADER), b"1")
            for headers in messages.column("headers").to_pylist()
        ]
        for weight in set(weights) - {b"1", b"-1"}:
            raise InvalidError(
                "SINK_NOT_READABLE",
                f"topic {self.topic} has a message with the weight {weight!r}, and not 1 or -1: choose --change "
                "SINK=now, or give the sink another name and topic",
            )
        return [int(weight) for weight in weights]


def held_rows(
    spark: SparkSession, topic: SettlingTopic, context: SinkContext, shape: Mapping[str, Any]
) -> DataFrame | None:
    """Return the rows of a sink's topic, lazily; None if it has none.

    Raises:
        InvalidError: `[SINK_NOT_READABLE]`; also from the tasks.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    raw, upserts = shape["format"] == "raw", shape["rows"] == "upsert"
    fields = tuple(field.with_nullable(True) for field in user_columns(context, shape["key"]))
    refuse_unreadable(topic.name, fields, raw=raw)
    ends = topic.settled()
    if not any(ends.values()):
        return None
    _refuse_gone(topic, ends, upserts=upserts)
    ranges = [Range(topic.name, "", 0, number, 0, end) for (_, number), end in ends.items() if end]
    most = spark.sparkContext.defaultParallelism
    tasks = divided([(ranges, None, "")], max(1, min(most, size_of(ranges) // OFFSETS_OF_A_TASK)))
    changes = shape["rows"] == "changelog" and context.changes
    read = ReadRanges(f"topic {topic.name}", topic.committed.access, True, changes, False, tasks)
    parts = spark.range(0, len(tasks), 1, len(tasks))
    columns = from_arrow_schema(pa.schema([*fields, pa.field(WEIGHT, pa.int64())]), prefer_timestamp_ntz=True)
    if not upserts:
        return parts.mapInArrow(_MessagesToRows(topic.name, fields, raw, read), columns)
    messages = parts.mapInArrow(read, messages_schema(False, False))
    newest = messages.groupBy("key").agg(
        F.max_by("value", "offset").alias("value"),
        F.min("partition").alias("least"),
        F.max("partition").alias("most"),
    )
    return newest.mapInArrow(_MessagesToRows(topic.name, fields, raw, None), columns)


def _refuse_gone(topic: SettlingTopic, ends: Mapping[Partition, int], *, upserts: bool) -> None:
    """Raise if the topic lacks messages of the sink, the only one that ever wrote to it."""
    for (name, number), begin in topic.committed.begins(ends).items():
        if begin:
            raise InvalidError(
                "SINK_NOT_READABLE",
                f"offsets 0 to {begin - 1} of topic {name}, partition {number}, were deleted, and with them rows of "
                "this sink: choose --change SINK=now, or give the sink another name and topic, which keeps its rows",
            )
    if not upserts and topic.committed.compacted([topic.name]):
        raise InvalidError(
            "SINK_NOT_READABLE",
            f"topic {topic.name} is compacted, and may lack rows of this sink, which are no upserts: choose --change "
            "SINK=now, or give the sink another name and a topic that is not compacted",
        )
