"""Kafka topics as a source: the determinants of a step are its offsets of each partition."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from boatlift.connectors.kafka.access import Access, access_to
from boatlift.connectors.kafka.background import Arrivals, GroupOffsets
from boatlift.connectors.kafka.offsets import (
    Found,
    Range,
    advanced,
    divided_into,
    ranges_of,
    size_of,
    taken_next,
    taken_up_to,
)
from boatlift.connectors.kafka.topics import Partition, Topics
from boatlift.connectors.kafka.value_format import JsonFormat, ValueFormat, messages_schema, value_format_of
from boatlift.connectors.kit import SourceBase, checked_options
from boatlift.connectors.kit.text_forms import set_options
from boatlift.dataflow.contracts import FrameOfTask, Json, Reading, SourceCapabilities, WaitingInput
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from boatlift.connectors.kafka.reading import Split

LARGEST_STEP = 1_000_000
"""The default of the most offsets of a step."""

TASK_OFFSETS = 10_000
"""A task reads at least this many offsets, if there are so many: starting a task takes longer than reading less."""

_MESSAGE = re.compile(r"(.+)/(\d+):(\d+)")

MESSAGE_BYTES = 100
"""A guess, for the choice of how many tasks execute a step."""

Offsets = Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[int, int]]
"""Where partitions begin or end: at the first or last offset, at a time, or at offsets by topic and partition."""


@checked_options("bl.kafka.source")
def source(
    servers: str,
    *,
    topic: str | Sequence[str] | None = None,
    pattern: str | None = None,
    format: Literal["raw", "json"] = "raw",  # noqa: A002 - Spark's word
    schema: str | StructType | None = None,
    date_format: str | None = None,
    timestamp_format: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
    true_values: Sequence[str] = (),
    false_values: Sequence[str] = (),
    columns: Mapping[str, Mapping[str, Any]] | None = None,
    starting_offsets: Offsets = "earliest",
    ending_offsets: datetime | Mapping[str, Mapping[int, int]] | None = None,
    max_offsets_per_step: int = LARGEST_STEP,
    read_committed: bool = True,
    include_headers: bool = False,
    fail_on_data_loss: bool = True,
    group: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> KafkaSource:
    """Return a source of the messages of topics; it finds new partitions by itself.

    Rows of format `raw` are those of Spark's Kafka source: `key`, `value`, `topic`, `partition`, `offset`, `timestamp`,
    `timestampType`.

    Args:
        servers: `host:port`, several separated by commas.
        topic: The topic, or several.
        pattern: Instead of topics: a regular expression for whole names; topics that are made later are found too.
        format: `raw`, or `json`: each value is an object with the columns of the schema.
        schema: The columns of format `json`.
        date_format, timestamp_format, decimal, thousands, true_values, false_values, columns: The forms of values in
            format `json`, as `bl.files` takes them.
        starting_offsets: Where to begin with the partitions that exist when the dataflow begins; later ones are taken
            whole.
        ending_offsets: Where to end; None: never.
        max_offsets_per_step: The most offsets of a step.
        read_committed: Whether rows of aborted and open transactions are left out.
        include_headers: Whether rows of format `raw` have `headers`.
        fail_on_data_loss: Whether offsets that were deleted before a step took them stop the dataflow; otherwise they
            are recorded as skipped.
        group: A consumer group. Offsets that no recovery needs are committed there, so that tools show the lag.
        options: Settings of librdkafka, such as `security.protocol`; they are kept in memory only.

    Raises:
        InvalidError: `[BAD_OPTION]`, `[MISSING_EXTRA]`.

    Examples:
        >>> source = bl.kafka.source("localhost:9092", topic="orders", format="json", schema="id LONG")
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
        raise InvalidError(
            "BAD_OPTION", f"pattern is {pattern!r}, which is no regular expression ({error}): correct it"
        ) from error
    value_format = value_format_of(
        format,
        schema,
        set_options(
            date_format=date_format,
            timestamp_format=timestamp_format,
            decimal=decimal,
            thousands=thousands,
            true_values=true_values,
            false_values=false_values,
        ),
        columns,
        headers=include_headers,
    )
    topics = Topics(access, names, matching, committed=read_committed)
    return KafkaSource(
        access, topics, value_format, starting_offsets, ending_offsets, max_offsets_per_step, fail_on_data_loss, group
    )


class KafkaSource(SourceBase):
    """Topics, read in the tasks. `offsets` describes positions and cursors."""

    positioned = True

    def __init__(
        self,
        access: Access,
        topics: Topics,
        value_format: ValueFormat,
        starting: Offsets,
        ending: datetime | Mapping[str, Mapping[int, int]] | None,
        limit: int,
        fail_on_data_loss: bool,
        group: str | None,
    ) -> None:
        self._access, self._topics, self._format = access, topics, value_format
        self._starting, self._ending, self._limit = starting, ending, limit
        self._fail_on_data_loss = fail_on_data_loss
        self._committing = None if group is None else GroupOffsets(access, group)
        self._ends: Mapping[Partition, int] | None = None
        self._arrivals: Arrivals | None = None
        self._is_bounded = False

    @property
    def capabilities(self) -> SourceCapabilities:
        """Messages may be deleted or compacted: tasks digest them, and all of them can be read again for a time."""
        return SourceCapabilities(
            announces_input=self,
            reads_many_steps=self,
            coalesces_backlog=self,
            digests_on_read=self,
            parameterized_read=self,
            names_input=self,
            ordered_within="partition",
            bad_rows=self if isinstance(self._format, JsonFormat) else None,
            preflight=self._preflight,
            waiting=self.waiting,
            gone=self.gone,
            rescannable=self,
            bytes_up_to=_bytes_up_to,
            divided_anew=self.divided_anew,
            contains=_contains,
            bounded=self,
        )

    def _preflight(self) -> None:
        self._topics.refuse_missing()

    def describe(self) -> Json:
        return {
            "kind": "kafka",
            "topics": self._topics.named,
            "committed": self._topics.committed,
            **self._format.describe(),
        }

    def schema(self, spark: SparkSession) -> StructType:
        return self._format.schema(spark)

    def start(self) -> Json:
        return {"topics": {}, "began": False}

    def next(self, cursor: Json) -> Json | None:
        # Lost offsets must be skipped here: a step whose position has them could not read them.
        found = self._topics.found(anew=not self._fail_on_data_loss)
        first = None if cursor.get("began") else self._first(found)
        taken = taken_next(
            cursor, found, first, self._ends_of(found), self._limit, fail_on_data_loss=self._fail_on_data_loss
        )
        if taken is None and self._arrivals is not None:
            self._arrivals.watch({(each.topic, each.partition): each.high for each in found})
        return taken

    def waiting(self, cursor: Json) -> WaitingInput:
        found = self._topics.found(anew=False)
        first = None if cursor.get("began") else self._first(found)
        all_there = sum(max(0, each.high - each.low) for each in found)
        position = taken_next(cursor, found, first, self._ends_of(found), max(1, all_there), fail_on_data_loss=False)
        return WaitingInput(0 if position is None else size_of(ranges_of(position)), "offsets")

    def gone(self, since: Json, upto: Json) -> str:
        if upto["began"] and not since["began"] and self._starting != "earliest":
            return "it has not begun there, and starting_offsets means another place now"
        lows = {(each.topic, each.partition): each.low for each in self._topics.found(anew=True)}
        for topic, known in upto["topics"].items():
            before = since["topics"].get(topic, {"next": {}})["next"]
            for partition, end in known["next"].items():
                first = known.get("first", {}).get(partition, 0)
                begin, low = before.get(partition, first), lows.get((topic, int(partition)))
                if begin < end and (low is None or begin < low):
                    return f"offsets from {begin} of {topic}, partition {partition}, are deleted"
        return ""

    def bounds(self, _folder: Path, steps: int | None, given: Path | None) -> Json:
        if given is not None:
            raise InvalidError("NO_TWIN", "reads topics and no folder: leave --input out")
        found = self._topics.found(anew=True)
        first, ends = self._first(found), self._ends_of(found)
        here = {(each.topic, each.partition): each for each in found}
        starts = {partition: (first or {}).get(partition, each.low) for partition, each in here.items()}
        cursor = self.start()
        for _ in range(steps or 0):
            taken = taken_next(cursor, found, first, ends, self._limit, fail_on_data_loss=self._fail_on_data_loss)
            cursor = cursor if taken is None else advanced(cursor, taken)
        last = {partition: min(each.high, ends.get(partition, each.high)) for partition, each in here.items()}
        if steps is not None:
            taken_up = {name: topic["next"] for name, topic in cursor["topics"].items()}
            last = {(t, n): taken_up.get(t, {}).get(str(n), starts[t, n]) for t, n in here}
        return {"starts": _by_topic(starts), "ends": _by_topic(last)}

    def within(self, bounds: Json) -> KafkaSource:
        """Return a source that commits to no consumer group, and takes nothing of later partitions."""
        bounded = KafkaSource(
            self._access, self._topics, self._format, bounds["starts"], bounds["ends"], self._limit,
            self._fail_on_data_loss, None,
        )  # fmt: skip
        bounded._is_bounded = True
        return bounded

    def announce_input(self, told: Callable[[], None]) -> Callable[[], None]:
        self._arrivals = arrivals = Arrivals(self._access, told, committed=self._topics.committed)
        return arrivals.close

    def is_full(self, position: Json) -> bool:
        return size_of(ranges_of(position)) >= self._limit

    def advance(self, cursor: Json, position: Json) -> Json:
        return advanced(cursor, position)

    def verify(self, position: Json) -> None:
        """Prove that topics are the same and offsets available; the tasks that read the rows prove the rows."""
        self._topics.verify(ranges_of(position))

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        return self.load_digested(spark, [position], [""], ordinals=False)

    def load_together(self, spark: SparkSession, positions: Sequence[Json]) -> DataFrame:
        return self.load_digested(spark, positions, [""] * len(positions), ordinals=True)

    def load_digested(
        self, spark: SparkSession, positions: Sequence[Json], folders: Sequence[str], *, ordinals: bool
    ) -> DataFrame:
        steps = [
            (ranges_of(position), ordinal if ordinals else None, folder)
            for ordinal, (position, folder) in enumerate(zip(positions, folders, strict=True))
        ]
        return self._read(spark, _divided(spark, steps), ordinals=ordinals)

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        """Read all offsets from the first to a cursor.

        Raises:
            DataError: as `verify_everything`, so that no job begins that cannot end.
        """
        ranges = taken_up_to(cursor)
        self._topics.verify_past(ranges)
        return self._read(spark, _divided(spark, [(ranges, None, "")]), ordinals=False)

    def verify_everything(self, cursor: Json) -> None:
        """Prove that topics are the same, that they have all offsets from the first on, and are not compacted.

        Raises:
            DataError: `[HISTORY_GONE]`; `[INPUT_CHANGED]`, `[INPUT_MISSING]` for a topic.
        """
        self._topics.verify_past(taken_up_to(cursor))

    def divided_anew(self, cursor: Json, most: int) -> list[Json]:
        ranges = taken_up_to(cursor)
        return divided_into(ranges, max(self._limit, -(-size_of(ranges) // most)))

    def load_parameterized(self, spark: SparkSession, frame_of: FrameOfTask | None = None) -> DataFrame:
        return self._read(spark, None, ordinals=False, frame_of=frame_of)

    def parameters_for(self, position: Json, folder: str) -> bytes | None:
        from boatlift.connectors.kafka.reading import Split

        ranges = ranges_of(position)
        if size_of(ranges) >= 2 * TASK_OFFSETS:
            return None
        return msgspec.msgpack.encode([Split(each, None, folder) for each in ranges])

    def _read(
        self,
        spark: SparkSession,
        tasks: tuple[tuple[Split, ...], ...] | None,
        *,
        ordinals: bool,
        frame_of: FrameOfTask | None = None,
    ) -> DataFrame:
        from boatlift.connectors.kafka.reading import ReadRanges

        topics, headers, timed = self._topics, self._format.headers, self._format.timed
        read = ReadRanges(f"topic {topics.named}", self._access, topics.committed, headers, timed, tasks)
        columns = messages_schema(headers, ordinals)
        count = 1 if tasks is None else len(tasks)
        if frame_of is None:
            messages = spark.range(0, count, 1, max(1, count)).mapInArrow(read, columns)
        else:
            messages = frame_of(read, columns)
        return self._format.rows(messages, ordinals=ordinals)

    def reading(self, folder: str) -> Reading | None:
        from boatlift.connectors.kafka.reading import read_notes

        return read_notes(folder)

    def sorting_out(self) -> KafkaSource:
        assert isinstance(self._format, JsonFormat)
        other = copy(self)
        other._format = replace(self._format, sorts=True)
        return other

    def dead_letters(self, rows: DataFrame) -> DataFrame:
        assert isinstance(self._format, JsonFormat)
        return self._format.dead_letters(rows)

    def places(self, dead_letters: Sequence[Row]) -> list[str]:
        return [
            f"{dead_letter['topic']}/{dead_letter['partition']}:{dead_letter['offset']}" for dead_letter in dead_letters
        ]

    def size_bytes(self, position: Json) -> int:
        return size_of(ranges_of(position)) * MESSAGE_BYTES

    def names(self, position: Json) -> str:
        return ", ".join(
            f"offsets {each.start} to {each.end - 1} of {each.topic}, partition {each.partition}"
            for each in ranges_of(position)
        )

    def diagnose(self, position: Json, text: str) -> Exception | None:  # noqa: ARG002
        """Return the error of a row that does not parse; other failed reads raise their own error."""
        return self._format.diagnose(text)

    def acknowledge(self, position: Json) -> None:
        if self._committing is not None:
            self._committing.add(ranges_of(position))

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
                offsets = _flat(self._starting)
                for (topic, number), offset in offsets.items():
                    here = partitions.get((topic, number))
                    if here is None or not here.low <= offset <= here.high:
                        has = "does not exist" if here is None else f"has offsets {here.low} to {here.high - 1}"
                        place = f"topic {topic}, partition {number}, which {has}"
                        raise InvalidError("BAD_OPTION", f"starting_offsets has {offset} for {place}: correct it")
                return offsets

    def _ends_of(self, found: Sequence[Found]) -> Mapping[Partition, int]:
        if self._ends is None and isinstance(self._ending, Mapping):
            self._ends = _flat(self._ending)
        if isinstance(self._ending, datetime):  # also of partitions that come later
            return self._topics.at([(each.topic, each.partition) for each in found], self._ending)
        if self._is_bounded:
            return {(each.topic, each.partition): each.low for each in found} | dict(self._ends or {})
        return self._ends or {}


def _divided(
    spark: SparkSession, steps: Sequence[tuple[Sequence[Range], int | None, str]]
) -> tuple[tuple[Split, ...], ...]:
    from boatlift.connectors.kafka.reading import divided

    offsets = sum(size_of(ranges) for ranges, _, _ in steps)
    return divided(steps, max(1, min(spark.sparkContext.defaultParallelism, offsets // TASK_OFFSETS)))


def _by_topic(offsets: Mapping[Partition, int]) -> dict[str, dict[int, int]]:
    topics: dict[str, dict[int, int]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, {})[number] = offset
    return topics


def _flat(offsets: Mapping[str, Mapping[int, int]]) -> dict[Partition, int]:
    return {
        (topic, int(number)): int(offset) for topic, numbers in offsets.items() for number, offset in numbers.items()
    }


def _bytes_up_to(cursor: Json) -> int:
    return size_of(taken_up_to(cursor)) * MESSAGE_BYTES


def _contains(taken: Json, item: str) -> bool:
    """Return whether a position, or a cursor, has the offset of a message: `topic/partition:offset`."""
    found = _MESSAGE.fullmatch(item)
    if found is None:
        raise InvalidError("BAD_OPTION", f"{item!r} is no message: write topic/partition:offset, such as orders/0:511")
    topic, partition, offset = found[1], int(found[2]), int(found[3])
    ranges = ranges_of(taken) if "ranges" in taken else taken_up_to(taken)
    mine = (each for each in ranges if (each.topic, each.partition) == (topic, partition))
    return any(each.start <= offset < each.end for each in mine)
