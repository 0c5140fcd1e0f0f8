"""A topic of a sink's, once no transaction in it is open.

A transaction that ended a moment ago may still look open: its coordinator tells each partition of the end. One that
stays open has lost its end. Kafka 4.3.0 and 4.3.1 lose it if the partition has no leader when the coordinator comes
back (KAFKA-20734). The next end of a transaction of the same writer would then decide about both, so that rows that
were never committed would be seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from boatlift.connectors.kafka.access import Access
from boatlift.connectors.kafka.topics import Partition, Topics
from boatlift.errors import UnavailableError

SETTLE_PAUSE = 0.002

SETTLE_PATIENCE = 90.0
"""Seconds until a transaction that is still open is an error, while the cluster answers.

A committed transaction ends when its coordinator, or the successor of one that died (by default found after 9 s), has
sent a marker to each partition; a marker whose request is lost is sent again after 30 s. One that nobody commits is
aborted after 60 s, which is noticed within 10 s; those of the sink's own ids are aborted at once by the next owner.
"""

AWAY = 5.0
"""A cluster that takes so many seconds for an answer was away: it ended no transaction meanwhile."""


class SettlingTopic:
    """The ends of a topic's partitions.

    Args:
        access: How to reach the cluster.
        name: The topic's name.
        called: The topic in words, for errors.

    Attributes:
        committed: The topic up to the first open transaction.
        written: The topic up to the last message.
    """

    def __init__(self, access: Access, name: str, called: str) -> None:
        self.name, self._called = name, called
        self.committed = Topics(access, (name,), None, committed=True, written=True)
        self.written = Topics(access, (name,), None, committed=False, written=True)

    def settled(self, partitions: Iterable[int] | None = None) -> dict[Partition, int]:
        """Return the ends of partitions, once no transaction is open in them.

        Args:
            partitions: Which; None: all.

        Raises:
            UnavailableError: `[SINK_FAILED]` a transaction does not end.
        """
        numbers = self.written.partitions_of(self.name) if partitions is None else partitions
        here = [(self.name, number) for number in numbers]
        until = time.monotonic() + SETTLE_PATIENCE
        while True:
            asked = time.monotonic()
            ends, written = self.committed.ends(here), self.written.ends(here)
            if ends == written:
                return ends
            now = time.monotonic()
            if now - asked >= AWAY:
                until = now + SETTLE_PATIENCE
            if now > until:
                open_in = ", ".join(
                    str(number) for _, number in here if ends[self.name, number] != written[self.name, number]
                )
                raise UnavailableError(
                    "SINK_FAILED",
                    f"{self._called} has a transaction that does not end, in partition {open_in}: find the program "
                    "that writes to it, then run again. If there is none, a broker of Kafka 4.3.0 or 4.3.1 has lost "
                    "its end (KAFKA-20734): upgrade it, and end the transaction with kafka-transactions.sh",
                )
            time.sleep(SETTLE_PAUSE)
