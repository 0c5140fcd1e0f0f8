"""Reads ranges of partitions with librdkafka's consumer.

A client takes 15 ms to connect, five times as long as to fetch the messages of a small step. So a process keeps idle
clients for reuse. An old client may have outdated leaders of partitions and ids of topics, so a new client reads a
range that an old client cannot read at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from boatlift.connectors.kafka.access import KEEP, TIMEOUT, Access, Complaints, is_of_group, of_reading
from boatlift.connectors.kafka.offsets import Range
from boatlift.errors import BoatliftError

if TYPE_CHECKING:
    from confluent_kafka import Message

TAKE_AT_ONCE = 500
"""Messages taken from the client at once: these fit into the CPU's cache."""

POLL_SECONDS = 0.005
"""The longest wait for these messages: transaction markers and aborted rows yield none."""

IDLE_TIMEOUT = 1.0
"""Seconds without an answer after which an old client is replaced: its view of the cluster is outdated."""


class _Client:
    """A consumer without a group that reads assigned offsets."""

    def __init__(self, access: Access, *, committed: bool) -> None:
        self.access, self.committed = access, committed
        self.complaints = Complaints()
        self.consumer = access.consumer(
            {
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                # A later request, such as one for the end of a partition, waits until the broker has answered.
                "fetch.wait.max.ms": 1,
                "fetch.queue.backoff.ms": 1,  # by default a full queue pauses the client for a second
                "check.crcs": True,
                "enable.partition.eof": True,
                "error_cb": self.complaints,
            }
        )


class _IdleClients:
    """Idle clients by access and isolation level; beyond `KEEP` the oldest is closed."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._clients: list[_Client] = []

    def take(self, access: Access, *, committed: bool) -> _Client | None:
        with self._changing:
            for client in self._clients:
                if (client.access, client.committed) == (access, committed):
                    self._clients.remove(client)
                    return client
        return None

    def put(self, client: _Client) -> None:
        client.consumer.unassign()
        with self._changing:
            self._clients.append(client)
            left = [self._clients.pop(0) for _ in range(len(self._clients) - KEEP)]
        for each in left:
            each.consumer.close()


_IDLE = _IdleClients()


def messages_in(
    ranges: Sequence[Range], access: Access, source: str, *, committed: bool
) -> Iterator[tuple[int, list[Message]]]:
    """Read the messages of ranges, some at a time, to their ends; yield them with the index of their range.

    Args:
        ranges: The ranges, each of another partition. The messages of each come in order.
    """
    following = [each.start for each in ranges]
    while any(begin < each.end for begin, each in zip(following, ranges, strict=True)):
        idle = _IDLE.take(access, committed=committed)
        client = idle or _Client(access, committed=committed)
        timeout = TIMEOUT if idle is None else IDLE_TIMEOUT
        try:
            yield from _read(client, ranges, following, source, timeout)
            _IDLE.put(client)
        except BoatliftError:
            client.consumer.close()
            if idle is None:
                raise
        except BaseException:
            client.consumer.close()
            raise


def _read(
    client: _Client, ranges: Sequence[Range], following: list[int], source: str, timeout: float
) -> Iterator[tuple[int, list[Message]]]:
    from confluent_kafka import KafkaException, TopicPartition

    consumer = client.consumer
    index = {(each.topic, each.partition): i for i, each in enumerate(ranges)}
    left = {i: TopicPartition(r.topic, r.partition, following[i]) for i, r in enumerate(ranges) if following[i] < r.end}
    heard = time.monotonic()
    try:
        consumer.assign(list(left.values()))
        while left:
            # No more than are left: the client would wait in vain.
            most = sum(ranges[i].end - following[i] for i in left)
            some = consumer.consume(min(TAKE_AT_ONCE, most), POLL_SECONDS)
            if not some:
                # Markers move the position. If only aborted rows are left, only the end of the partition is reported.
                for position in consumer.position(list(left.values())):
                    i = index[position.topic, position.partition]
                    if position.offset > following[i]:
                        heard, following[i] = time.monotonic(), position.offset
            for i, messages in _by_range(some, index):
                wanted = _wanted(messages, source, ranges[i])
                following[i] = max(following[i], (messages[-1].offset() or 0) + (messages[-1].error() is None))
                if wanted:
                    yield i, wanted
                    heard = time.monotonic()  # the caller's time does not count
            over = [i for i in left if following[i] >= ranges[i].end]
            if over and len(over) < len(left):
                consumer.incremental_unassign([left[i] for i in over])
            for i in over:
                del left[i]
            if time.monotonic() - heard > timeout:
                raise of_reading(client.complaints.last, source, ranges[min(left)])
    except KafkaException as error:
        raise of_reading(error.args[0], source, ranges[min(left, default=0)]) from error


def _by_range(some: list[Message], index: dict[tuple[str, int], int]) -> list[tuple[int, list[Message]]]:
    if len(index) == 1:
        return [(0, some)] if some else []
    found: dict[int, list[Message]] = {}
    for message in some:
        # An error of the client itself has no partition.
        place = index.get((message.topic() or "", message.partition() or 0), 0)
        found.setdefault(place, []).append(message)
    return list(found.items())


def _wanted(messages: list[Message], source: str, each: Range) -> list[Message]:
    """Return the messages within a range, without reports of a partition's end."""
    from confluent_kafka import KafkaError, Message

    if any(map(Message.error, messages)):
        rows = []
        for message in messages:
            error = message.error()
            if error is None:
                rows.append(message)
            elif error.code() != KafkaError._PARTITION_EOF and not is_of_group(error):
                raise of_reading(error, source, each)
        messages = rows
    if messages and (messages[-1].offset() or 0) >= each.end:
        return [message for message in messages if (message.offset() or 0) < each.end]
    return messages
