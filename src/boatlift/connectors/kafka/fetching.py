"""Reading ranges of partitions with librdkafka's consumer.

A client takes 15 ms to be made and to connect, five times as long as a small step's messages take to come. So a process keeps those that have read what they
were to read, and takes them again. What a client remembers of a cluster may be over by then (who leads a partition, a topic that was made anew): what a
kept one cannot read at once, a new one reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from boatlift.connectors.kafka.access import PATIENCE, Access, Complaints
from boatlift.connectors.kafka.offsets import Range
from boatlift.connectors.kafka.refusals import of_reading
from boatlift.errors import BoatliftError

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["messages_in"]

TAKE_AT_ONCE = 500
"""Messages that are taken from the client at once: so few stay in the processor's cache, which is faster than many."""

POLL_SECONDS = 0.005
"""So long is waited for that many: of markers and aborted rows nothing comes."""

KEPT_PATIENCE = 1.0
"""Seconds of silence after which a client that was kept is taken for one that does not know the cluster any more."""

KEEP = 4
"""So many clients are kept that nobody uses."""


class _Client:
    """A consumer that reads what it is told to, from where it is told to."""

    def __init__(self, access: Access, *, committed: bool) -> None:
        self.complaints = Complaints()
        self.consumer = access.consumer(
            {
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                # What is asked next waits until this is over: where a partition ends, or was read to its end.
                "fetch.wait.max.ms": 1,
                "fetch.queue.backoff.ms": 1,  # else it sits out a second whenever its queue is full
                "check.crcs": True,
                "enable.partition.eof": True,
                "error_cb": self.complaints,
            }
        )


class _Kept:
    """Clients that nobody uses, by how they reach their cluster; of those there are too many, the oldest go."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._clients: list[tuple[Any, _Client]] = []

    def take(self, access: Access, *, committed: bool) -> _Client | None:
        """Gives one, if there is one."""
        wanted = _key(access, committed=committed)
        with self._changing:
            for place, (key, client) in enumerate(self._clients):
                if key == wanted:
                    del self._clients[place]
                    return client
        return None

    def put(self, access: Access, client: _Client, *, committed: bool) -> None:
        """Keeps one that has nothing to read any more."""
        client.consumer.unassign()
        with self._changing:
            self._clients.append((_key(access, committed=committed), client))
            left = [self._clients.pop(0)[1] for _ in range(len(self._clients) - KEEP)]
        for each in left:
            each.consumer.close()


def _key(access: Access, *, committed: bool) -> Any:
    return access.servers, dict(access.settings), committed


_KEPT = _Kept()


def messages_in(
    ranges: Sequence[Range], access: Access, source: str, *, committed: bool
) -> Iterator[tuple[int, list[Message]]]:
    """Reads the messages of ranges, some at a time, to their ends; gives with them the index of their range.

    Args:
        ranges: Which, each of another partition. Messages of each come in order.
        access: How to reach the cluster.
        source: Who reads, for people.
        committed: Whether messages of transactions that were aborted, or are open, are left out.

    Raises:
        DataError: `[INPUT_MISSING]` offsets of them are gone.
        UnavailableError: `[INPUT_UNAVAILABLE]` the cluster does not answer.
    """
    following = [each.start for each in ranges]
    while any(begin < each.end for begin, each in zip(following, ranges, strict=True)):
        kept = _KEPT.take(access, committed=committed)
        client = kept or _Client(access, committed=committed)
        patience = PATIENCE if kept is None else KEPT_PATIENCE
        try:
            yield from _read(client, ranges, following, source, patience)
            _KEPT.put(access, client, committed=committed)
        except BoatliftError:
            client.consumer.close()
            if kept is None:
                raise
        except BaseException:
            client.consumer.close()
            raise


def _read(
    client: _Client, ranges: Sequence[Range], following: list[int], source: str, patience: float
) -> Iterator[tuple[int, list[Message]]]:
    """Reads on from what follows, and keeps count of that."""
    from confluent_kafka import KafkaException, TopicPartition

    consumer = client.consumer
    index = {(each.topic, each.partition): i for i, each in enumerate(ranges)}
    left = {i: TopicPartition(r.topic, r.partition, following[i]) for i, r in enumerate(ranges) if following[i] < r.end}
    heard = time.monotonic()
    try:
        consumer.assign(list(left.values()))
        while left:
            # No more than there can be, or the client would wait for what is never to come.
            most = sum(ranges[i].end - following[i] for i in left)
            some = consumer.consume(min(TAKE_AT_ONCE, most), POLL_SECONDS)
            if not some:
                # Markers move the position; where nothing is left but rows that were aborted, only the end of the partition is told.
                for position in consumer.position(list(left.values())):
                    i = index[position.topic, position.partition]
                    if position.offset > following[i]:
                        heard, following[i] = time.monotonic(), position.offset
            for i, messages in _by_range(some, index):
                wanted = _wanted(messages, source, ranges[i])
                following[i] = max(following[i], (messages[-1].offset() or 0) + (messages[-1].error() is None))
                if wanted:
                    yield i, wanted
                heard = time.monotonic()  # what was done with them meanwhile is no silence
            over = [i for i in left if following[i] >= ranges[i].end]
            if over and len(over) < len(left):
                consumer.incremental_unassign([left[i] for i in over])
            for i in over:
                del left[i]
            if time.monotonic() - heard > patience:
                raise of_reading(client.complaints.last, source, ranges[min(left)])
    except KafkaException as error:
        raise of_reading(error.args[0], source, ranges[min(left, default=0)]) from error


def _by_range(some: list[Message], index: dict[tuple[str, int], int]) -> list[tuple[int, list[Message]]]:
    """Tells apart what belongs to which range, in order."""
    if len(index) == 1:
        return [(0, some)] if some else []
    found: dict[int, list[Message]] = {}
    for message in some:
        # What is said of the client itself is said of no partition.
        place = index.get((message.topic() or "", message.partition() or 0), 0)
        found.setdefault(place, []).append(message)
    return list(found.items())


def _wanted(messages: list[Message], source: str, each: Range) -> list[Message]:
    """Leaves out what tells the end of a partition, and what is behind the range.

    Raises:
        BoatliftError: one of them is an error.
    """
    from confluent_kafka import KafkaError, Message

    if any(map(Message.error, messages)):
        rows = []
        for message in messages:
            error = message.error()
            if error is None:
                rows.append(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise of_reading(error, source, each)
        messages = rows
    if messages and (messages[-1].offset() or 0) >= each.end:
        return [message for message in messages if (message.offset() or 0) < each.end]
    return messages
