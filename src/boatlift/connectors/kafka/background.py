"""The background work of a source: a watch for new messages, and offsets committed at a consumer group.

A source that polls for the ends of partitions notices a message late. A consumer that waits at the ends gets the
broker's answer when a message comes. It only triggers a poll, which asks for the ends as always.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from boatlift.connectors.kafka.access import TIMEOUT, Access, Complaints, is_of_group, logger
from boatlift.connectors.kafka.offsets import Range
from boatlift.connectors.kafka.topics import Partition

if TYPE_CHECKING:
    from confluent_kafka import Consumer

LOOK_SECONDS = 0.1
"""The longest wait for a message, after which the end of a watch is noticed."""

FAR = 1000
"""A consumer that is further behind than this many messages jumps to the ends."""

_LITTLE = {
    "fetch.wait.max.ms": 500,
    # While no poll watches, the client fetches only so much ahead.
    "queued.min.messages": 100,
    "queued.max.messages.kbytes": 64,
    "fetch.queue.backoff.ms": 10,  # by default a full queue pauses the client for a second
    "max.partition.fetch.bytes": 1 << 16,
}


class Arrivals:
    """Watches the ends of partitions on a thread of its own.

    Args:
        committed: Whether messages of open transactions do not count.
        notify: Called once in a watch, after a message has come that did not exist when the watch began.
    """

    def __init__(self, access: Access, notify: Callable[[], None], *, committed: bool) -> None:
        self._access, self._notify, self._committed = access, notify, committed
        self._changed = threading.Condition()
        self._ends: Mapping[Partition, int] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="boatlift-kafka-arrivals", daemon=True)
        self._thread.start()

    def watch(self, ends: Mapping[Partition, int]) -> None:
        """Begin to watch for messages behind these ends, in place of an earlier watch."""
        with self._changed:
            self._ends = ends
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        consumer: Consumer | None = None
        following: dict[Partition, int] = {}
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or self._ends is not None)
                    ends = self._ends
                if self._closed or ends is None:
                    return
                if consumer is None:
                    level = "read_committed" if self._committed else "read_uncommitted"
                    settings = {**_LITTLE, "isolation.level": level, "error_cb": Complaints()}
                    consumer = self._access.consumer(settings)
                self._wait(consumer, ends, following)
        except Exception as error:  # noqa: BLE001 - the source is polled all the same
            logger.warning("new messages are noticed only now and then: %s", error)
        finally:
            if consumer is not None:
                consumer.close()

    def _wait(self, consumer: Consumer, ends: Mapping[Partition, int], following: dict[Partition, int]) -> None:
        """Wait until a message comes behind the ends, or another watch begins; advance `following`."""
        from confluent_kafka import TopicPartition

        if following.keys() != ends.keys() or any(following[each] < end - FAR for each, end in ends.items()):
            consumer.assign([TopicPartition(topic, number, end) for (topic, number), end in ends.items()])
            following.clear()
            following.update(ends)
        while self._ends is ends and not self._closed:
            if any(following[each] > end for each, end in ends.items()):
                with self._changed:
                    if self._ends is not ends:  # another watch has begun
                        return
                    self._ends = None
                self._notify()
                return
            first = consumer.poll(LOOK_SECONDS)  # `consume` would wait for as many messages as it may return
            for message in () if first is None else (first, *consumer.consume(100, 0)):
                if is_of_group(message.error()):
                    continue
                if message.error() is not None:
                    following.clear()  # after any error the next watch begins at its own ends
                    with self._changed:
                        self._changed.wait_for(lambda: self._closed or self._ends is not ends, LOOK_SECONDS)
                    return
                place = message.topic() or "", message.partition() or 0
                if place in following:
                    following[place] = (message.offset() or 0) + 1


class GroupOffsets:
    """Commits the newest offsets at a consumer group, so that tools show the lag; Boatlift never reads them.

    The process commits the last offsets before it ends.
    """

    def __init__(self, access: Access, group: str) -> None:
        self._access, self._group = access, group
        self._ends: dict[tuple[str, int], int] = {}
        self._changing = threading.Lock()
        self._background = ThreadPoolExecutor(1, thread_name_prefix="group-offsets")

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has offsets, and a thread, of its own."""
        return GroupOffsets, (self._access, self._group)

    def add(self, ranges: Sequence[Range]) -> None:
        """Commit the ends of ranges soon: no recovery reads what lies before them."""
        with self._changing:
            waits = bool(self._ends)
            self._ends.update({(each.topic, each.partition): each.end for each in ranges})
        if not waits and ranges:
            self._background.submit(self._commit)

    def _commit(self) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        with self._changing:
            ends, self._ends = self._ends, {}
        places = [TopicPartition(topic, number, end) for (topic, number), end in ends.items()]
        try:
            asked = [ConsumerGroupTopicPartitions(self._group, places)]
            admin = self._access.admin()  # a request of a client without references is never answered
            (answer,) = admin.client.alter_consumer_group_offsets(asked, request_timeout=TIMEOUT).values()
            answer.result(TIMEOUT + 5)
        except Exception as error:  # noqa: BLE001 - a later commit may succeed, and no result depends on it
            logger.warning("offsets could not be committed at group %s: %s", self._group, error)
