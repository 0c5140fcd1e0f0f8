"""A source that is Kafka topics: a step's determinants are the offsets that it takes of each partition."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from boatlift.connectors.kafka.access import Access, access_to
from boatlift.connectors.kafka.group_offsets import GroupOffsets
from boatlift.connectors.kafka.offsets import Found, advanced, ranges_of, taken_next
from boatlift.connectors.kafka.payload import Payload, payload_of
from boatlift.connectors.kafka.topics import Partition, Topics
from boatlift.dataflow.contracts import Delivery, Json, Reading, SourceCapabilities
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from boatlift.connectors.kafka.reading import Share

__all__ = ["KafkaSource", "source"]

LARGEST_STEP = 1_000_000
"""A step takes no more offsets than this, unless it is said."""

TASK_OFFSETS = 10_000
"""A task reads at least so many, if there are: it takes longer to begin one than to read less."""

MESSAGE_BYTES = 100
"""A guess, for the choice of how many tasks execute a step."""

Offsets = Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[int, int]]
"""Where partitions begin or end: at what is there, at a time, or at offsets, by topic and partition."""


def source(
    servers: str,
    *,
    topic: str | Sequence[str] | None = None,
    pattern: str | None = None,
    format: Literal["raw", "json"] = "raw",  # noqa: A002 - Spark's word
    schema: str | StructType | None = None,
    dead_letters: Literal["refuse", "drop", "keep"] = "refuse",
    starting_offsets: Offsets = "earliest",
    ending_offsets: datetime | Mapping[str, Mapping[int, int]] | None = None,
    max_offsets_per_step: int = LARGEST_STEP,
    read_committed: bool = True,
    include_headers: bool = False,
    fail_on_data_loss: bool = True,
    group: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> KafkaSource:
    """Makes a source of the messages of topics; partitions that are added are found as they come.

    Rows of format `raw` are those of Spark's Kafka source: `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `timestampType`.

    Args:
        servers: `host:port`, several separated by commas.
        topic: The topic, or several.
        pattern: Instead of topics: what the whole name of a topic has to match; those that come later are found too.
        format: `raw`, or `json`: each value is an object with the columns of the schema.
        schema: The columns of format `json`.
        dead_letters: What becomes of a value that does not parse: `refuse` stops, `drop` leaves it out, `keep` keeps it, with NULL in
            all columns, as the text of a column `_dead_letter` (NULL in all other rows).
        starting_offsets: Where to begin with the partitions that are there when the dataflow begins; those that come later are taken whole.
        ending_offsets: Where to end; None: nowhere.
        max_offsets_per_step: How many offsets a step takes at most.
        read_committed: Whether rows of transactions that were aborted, or are open, are left out.
        include_headers: Whether rows of format `raw` have `headers`.
        fail_on_data_loss: Whether offsets that were deleted before they were taken stop the dataflow; else they are recorded as skipped.
        group: A consumer group, at which the offsets are committed that no recovery can need again, so that tools tell the lag.
        options: Settings of librdkafka, such as `security.protocol`; they are kept in memory only.

    Raises:
        InvalidError: `[BAD_OPTION]`, `[MISSING_EXTRA]`.
    """
    access = access_to(servers, options)
    if (topic is None) == (pattern is None):
        raise InvalidError("BAD_OPTION", "give either a topic, or several, or a pattern")
    names = None if topic is None else ((topic,) if isinstance(topic, str) else tuple(topic))
    if names is not None and not all(names):
        raise InvalidError("BAD_OPTION", f"topic is {topic!r}: give names")
    if max_offsets_per_step != int(max_offsets_per_step) or max_offsets_per_step < 1:
        raise InvalidError(
            "BAD_OPTION", f"max_offsets_per_step is {max_offsets_per_step!r}: give a whole number from 1"
        )
    if isinstance(starting_offsets, str) and starting_offsets not in ("earliest", "latest"):
        raise InvalidError(
            "BAD_OPTION", f"starting_offsets is {starting_offsets!r}: choose 'earliest', 'latest', a time, or offsets"
        )
    if isinstance(ending_offsets, str):
        raise InvalidError("BAD_OPTION", f"ending_offsets is {ending_offsets!r}: give a time, or offsets")
    try:
        matching = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise InvalidError("BAD_OPTION", f"pattern is {pattern!r}, which is none ({error}): correct it") from error
    payload = payload_of(format, schema, dead_letters, headers=include_headers)
    topics = Topics(access, names, matching, committed=read_committed)
    return KafkaSource(
        access, topics, payload, starting_offsets, ending_offsets, max_offsets_per_step, fail_on_data_loss, group
    )


class KafkaSource:
    """Topics, read in the tasks. `offsets` says what a position and a cursor are.

    Args:
        access, topics, payload: How to reach the cluster; which topics; what rows are made of messages.
        starting, ending, limit, fail_on_data_loss, group: As `source` takes them, checked.
    """

    delivery = Delivery.EXACTLY_ONCE
    positioned = True

    def __init__(
        self,
        access: Access,
        topics: Topics,
        payload: Payload,
        starting: Offsets,
        ending: datetime | Mapping[str, Mapping[int, int]] | None,
        limit: int,
        fail_on_data_loss: bool,
        group: str | None,
    ) -> None:
        self._access, self._topics, self._payload = access, topics, payload
        self._starting, self._ending, self._limit = starting, ending, limit
        self._fail_on_data_loss = fail_on_data_loss
        self._committing = None if group is None else GroupOffsets(access, group)
        self._ends: Mapping[Partition, int] | None = None

    @property
    def capabilities(self) -> SourceCapabilities:
        """Messages may be deleted or compacted, so tasks digest them, and there is no reading of everything again."""
        return SourceCapabilities(
            reads_many_steps=self,
            coalesces_backlog=self,
            digests_on_read=self,
            parameterized_read=self,
            names_input=self,
        )

    def describe(self) -> Json:
        """Tells topics and what rows are made of messages; where the cluster is may change."""
        return {
            "kind": "kafka",
            "topics": self._topics.told,
            "committed": self._topics.committed,
            **self._payload.describe(),
        }

    def schema(self, spark: SparkSession) -> StructType:
        """Gives the schema of rows: Spark's, or the declared one."""
        return self._payload.schema(spark)

    def start(self) -> Json:
        """Gives the cursor that has taken nothing."""
        return {"topics": {}, "began": False}

    def next(self, cursor: Json) -> Json | None:
        """Takes of every partition what may be read and was not taken yet, up to the limit of a step."""
        # What is gone by now would be missed when the step reads it, and cannot be skipped any more.
        found = self._topics.found(anew=not self._fail_on_data_loss)
        first = None if cursor.get("began") else self._first(found)
        return taken_next(
            cursor, found, first, self._ends_of(found), self._limit, fail_on_data_loss=self._fail_on_data_loss
        )

    def is_full(self, position: Json) -> bool:
        """Tells whether a position reached the limit of a step."""
        return sum(each.end - each.start for each in ranges_of(position)) >= self._limit

    def advance(self, cursor: Json, position: Json) -> Json:
        """Gives the cursor after the ends of a position's ranges."""
        return advanced(cursor, position)

    def verify(self, position: Json) -> None:
        """Proves that the topics are the same and the offsets still there; that the rows are is proved by who reads them."""
        self._topics.verify(ranges_of(position))

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        """Reads the rows of a position."""
        return self.load_digested(spark, [position], [""], ordinals=False)

    def load_together(self, spark: SparkSession, positions: Sequence[Json]) -> DataFrame:
        """Reads the rows of several positions."""
        return self.load_digested(spark, positions, [""] * len(positions), ordinals=True)

    def load_digested(
        self, spark: SparkSession, positions: Sequence[Json], folders: Sequence[str], *, ordinals: bool
    ) -> DataFrame:
        """Reads the rows of positions in tasks of about as many offsets each."""
        from boatlift.connectors.kafka.reading import divided

        steps = [
            (ranges_of(position), ordinal if ordinals else None, folder)
            for ordinal, (position, folder) in enumerate(zip(positions, folders, strict=True))
        ]
        offsets = sum(each.end - each.start for ranges, _, _ in steps for each in ranges)
        most = spark.sparkContext.defaultParallelism
        tasks = divided(steps, max(1, min(most, offsets // TASK_OFFSETS)))
        return self._read(spark, tasks, ordinals=ordinals)

    def load_parameterized(self, spark: SparkSession) -> DataFrame:
        """Reads the ranges that a task is told."""
        return self._read(spark, None, ordinals=False)

    def parameters_for(self, position: Json, folder: str) -> bytes | None:
        """Tells the ranges of a position, if they are small."""
        from boatlift.connectors.kafka.reading import Share, parameters_for

        ranges = ranges_of(position)
        if sum(each.end - each.start for each in ranges) >= 2 * TASK_OFFSETS:
            return None
        return parameters_for([Share(each, None, folder) for each in ranges])

    def _read(self, spark: SparkSession, tasks: tuple[tuple[Share, ...], ...] | None, *, ordinals: bool) -> DataFrame:
        from boatlift.connectors.kafka.reading import ReadRanges

        read = ReadRanges(
            f"topic {self._topics.told}", self._access, self._topics.committed, self._payload.headers, tasks
        )
        count = 1 if tasks is None else len(tasks)
        messages = spark.range(0, count, 1, max(1, count)).mapInArrow(read, self._payload.raw(ordinals=ordinals))
        return self._payload.rows(messages, ordinals=ordinals)

    def reading(self, folder: str) -> Reading | None:
        """Adds up what the tasks have read."""
        from boatlift.connectors.kafka.reading import read_notes

        return read_notes(folder)

    def size_bytes(self, position: Json) -> int:
        """Guesses some bytes an offset."""
        return sum(each.end - each.start for each in ranges_of(position)) * MESSAGE_BYTES

    def names(self, position: Json) -> str:
        """Return the offsets of a position, partition by partition."""
        return ", ".join(
            f"offsets {each.start} to {each.end - 1} of {each.topic}, partition {each.partition}"
            for each in ranges_of(position)
        )

    def diagnose(self, position: Json, text: str) -> Exception | None:  # noqa: ARG002
        """Knows rows that do not parse; other failures of reading come as errors of ours."""
        return self._payload.diagnose(text)

    def acknowledge(self, position: Json) -> None:
        """Commits the ends of a position's ranges at the consumer group, if there is one."""
        if self._committing is not None:
            self._committing.add(ranges_of(position))

    # -- where partitions begin and end -------------------------------------------------------------------------------

    def _first(self, found: Sequence[Found]) -> dict[Partition, int] | None:
        partitions = {(each.topic, each.partition): each for each in found}
        match self._starting:
            case "earliest":
                return None
            case "latest":
                return {partition: each.high for partition, each in partitions.items()}
            case datetime():
                return self._topics.at(partitions, self._starting)
            case _:
                given = _flat(self._starting)
                for (topic, number), offset in given.items():
                    here = partitions.get((topic, number))
                    if here is None or not here.low <= offset <= here.high:
                        there = (
                            "which is not there" if here is None else f"which has offsets {here.low} to {here.high - 1}"
                        )
                        raise InvalidError(
                            "BAD_OPTION",
                            f"starting_offsets has {offset} for topic {topic}, partition {number}, {there}: correct it",
                        )
                return given

    def _ends_of(self, found: Sequence[Found]) -> Mapping[Partition, int]:
        if self._ends is None and isinstance(self._ending, Mapping):
            self._ends = _flat(self._ending)
        if isinstance(self._ending, datetime):  # also of partitions that come later
            return self._topics.at([(each.topic, each.partition) for each in found], self._ending)
        return self._ends or {}


def _flat(offsets: Mapping[str, Mapping[int, int]]) -> dict[Partition, int]:
    return {
        (topic, int(number)): int(offset) for topic, numbers in offsets.items() for number, offset in numbers.items()
    }
