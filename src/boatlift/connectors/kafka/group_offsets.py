"""Offsets that are committed at a consumer group, so that ordinary tools show the lag. Boatlift never reads them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from boatlift.connectors.kafka.access import PATIENCE, Access, logger
from boatlift.connectors.kafka.offsets import Range


class GroupOffsets:
    """Commits the newest offsets in the background; the process commits the last ones before it ends.

    Args:
        access: How to reach the cluster.
        group: The consumer group.
    """

    def __init__(self, access: Access, group: str) -> None:
        self._access, self._group = access, group
        self._ends: dict[tuple[str, int], int] = {}
        self._changing = threading.Lock()
        self._background = ThreadPoolExecutor(1, thread_name_prefix="group-offsets")

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
            admin = self._access.admin()
            asked = [ConsumerGroupTopicPartitions(self._group, places)]
            (answer,) = admin.alter_consumer_group_offsets(asked, request_timeout=PATIENCE).values()
            answer.result(PATIENCE + 5)
        except Exception as error:  # noqa: BLE001 - a later commit may succeed, and no result depends on it
            logger.warning("offsets could not be committed at group %s: %s", self._group, error)
