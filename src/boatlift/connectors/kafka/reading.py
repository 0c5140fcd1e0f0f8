"""What tasks do to read ranges of topics: read them whole, count them, digest them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from boatlift.connectors.kafka.access import PATIENCE, Access, Complaints
from boatlift.connectors.kafka.messages import Digest, Rows
from boatlift.connectors.kafka.offsets import BLOCK, Range, blocks_of
from boatlift.connectors.kafka.refusals import of_reading
from boatlift.dataflow.columns import ORDINAL
from boatlift.dataflow.contracts import Reading
from boatlift.engine.in_task import guarded

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["ReadRanges", "Share", "divided", "messages_in", "read_notes"]

ROWS_AT_ONCE = 1 << 14
"""Rows that are given to Spark at once, more or less."""

TAKE_AT_ONCE = 500
"""Messages that are taken from the client at once: so few stay in the processor's cache, which is faster than many."""

POLL_SECONDS = 0.005
"""So long is waited for that many: of markers and aborted rows nothing comes."""


class _Note(msgspec.Struct, frozen=True, array_like=True):
    rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a step's range that one task reads.

    Attributes:
        range: Which offsets; it begins where a block begins, or where the step does.
        ordinal: The index of the step, if several are read together; else None.
        folder: Where it is noted how many rows it had, and their digest; empty: nowhere.
    """

    range: Range
    ordinal: int | None
    folder: str


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """Reads the ranges of the task of each number that it is handed.

    Attributes:
        source: Where messages come from, for people.
        access: How to reach the cluster.
        committed: Whether rows of transactions that were aborted, or are open, are left out.
        headers: Whether rows have headers.
        tasks: What each task reads.
    """

    source: str
    access: Access
    committed: bool
    headers: bool
    tasks: tuple[tuple[Share, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads them."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for each in self.tasks[number]:
                    rows = self.read(each)
                    while (made := guarded(self.source, partial(next, rows, None))) is not None:
                        yield made

    def read(self, share: Share) -> Iterator[pa.RecordBatch]:
        """Reads a range to its end, and notes what it had.

        Raises:
            DataError: `[INPUT_MISSING]` offsets of it are gone.
            UnavailableError: `[INPUT_UNAVAILABLE]` the cluster does not answer.
        """
        each = share.range
        digests = {start // BLOCK: Digest() for start, _ in blocks_of(each)}
        gathered = Rows(each.topic, each.partition, headers=self.headers)
        for messages in messages_in(each, self.access, self.source, committed=self.committed):
            gathered.add(messages)
            if len(gathered) >= ROWS_AT_ONCE:
                yield self._digested(gathered.take(), digests, share.ordinal)
        if len(gathered):
            yield self._digested(gathered.take(), digests, share.ordinal)
        if share.folder:
            note = _Note(sum(d.rows for d in digests.values()), sum(d.value() for d in digests.values()) % 2**64)
            path = Path(share.folder) / f"{each.number}-{each.partition}-{each.start}"
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}-{time.monotonic_ns()}")
            draft.write_bytes(msgspec.msgpack.encode(note))
            draft.replace(path)  # another attempt has noted the same

    @staticmethod
    def _digested(rows: pa.RecordBatch, digests: dict[int, Digest], ordinal: int | None) -> pa.RecordBatch:
        blocks = rows.column("offset").to_numpy() // BLOCK
        for block in np.unique(blocks).tolist():
            begin, end = np.searchsorted(blocks, [block, block + 1]).tolist()
            digests[block].add(rows.slice(begin, end - begin))
        return rows if ordinal is None else _with_ordinal(rows, ordinal)


def messages_in(each: Range, access: Access, source: str, *, committed: bool) -> Iterator[list[Message]]:
    """Reads the messages of a range, some at a time, to its end.

    Args:
        each: Which.
        access: How to reach the cluster.
        source: Who reads, for people.
        committed: Whether messages of transactions that were aborted, or are open, are left out.

    Raises:
        DataError: `[INPUT_MISSING]` offsets of it are gone.
        UnavailableError: `[INPUT_UNAVAILABLE]` the cluster does not answer.
    """
    from confluent_kafka import KafkaException, Message, TopicPartition

    complaints = Complaints()
    consumer = access.consumer(
        {
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 1,  # else it sits out a second whenever its queue is full
            "check.crcs": True,
            "enable.partition.eof": True,
            "error_cb": complaints,
        }
    )
    here = TopicPartition(each.topic, each.partition, each.start)
    try:
        consumer.assign([here])
        heard, following = time.monotonic(), each.start
        while following < each.end:
            # No more than there can be, or the client would wait for what is never to come.
            some = consumer.consume(min(TAKE_AT_ONCE, each.end - following), POLL_SECONDS)
            if not some:
                # Markers move the position; where nothing is left but rows that were aborted, only the end of the partition is told.
                (position,) = consumer.position([here])
                if position.offset > following:
                    heard, following = time.monotonic(), position.offset
            else:
                following = max(following, (some[-1].offset() or 0) + (some[-1].error() is None))
                wanted = [m for m in some if m.offset() < each.end] if following > each.end else some
                if any(map(Message.error, some)):
                    wanted = [m for m in wanted if _is_row(m, source, each)]
                if wanted:
                    yield wanted
                heard = time.monotonic()  # what was done with them meanwhile is no silence
            if time.monotonic() - heard > PATIENCE:
                raise of_reading(complaints.last, source, each)
    except KafkaException as error:
        raise of_reading(error.args[0], source, each) from error
    finally:
        consumer.close()


def _is_row(message: Message, source: str, each: Range) -> bool:
    """Tells a row from the end of a partition.

    Raises:
        BoatliftError: it is an error.
    """
    from confluent_kafka import KafkaError

    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise of_reading(error, source, each)
    return error is None


def divided(steps: Sequence[tuple[Sequence[Range], int | None, str]], tasks: int) -> tuple[tuple[Share, ...], ...]:
    """Divides the ranges of steps among at most so many tasks, of about as many offsets each; cut only where blocks begin.

    Args:
        steps: Ranges, ordinal and folder of each.
        tasks: How many.
    """
    total = sum(each.end - each.start for ranges, _, _ in steps for each in ranges)
    share = max(1, -(-total // max(1, tasks)))
    made: list[list[Share]] = [[]]
    left = share
    for ranges, ordinal, folder in steps:
        for each in ranges:
            start = each.start
            for _, end in blocks_of(each):
                if end - start < left and end < each.end:
                    continue
                made[-1].append(Share(replace(each, start=start, end=end), ordinal, folder))
                left -= end - start
                start = end
                if left <= 0 and len(made) < tasks:
                    made.append([])
                    left = share
    return tuple(tuple(each) for each in made if each)


def _with_ordinal(rows: pa.RecordBatch, ordinal: int) -> pa.RecordBatch:
    return rows.append_column(ORDINAL, pa.repeat(pa.scalar(ordinal, pa.int32()), rows.num_rows))


def read_notes(folder: str) -> Reading | None:
    """Adds up what tasks have noted; None if nobody has read anything."""
    notes = [msgspec.msgpack.decode(path.read_bytes(), type=_Note) for path in Path(folder).glob("[0-9]*")]
    if not notes:
        return None
    return Reading(sum(note.rows for note in notes), f"{sum(note.digest for note in notes) % 2**64:016x}")
