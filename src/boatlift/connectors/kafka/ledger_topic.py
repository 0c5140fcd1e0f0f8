"""The topic that holds a sink's ledger; and the ends of a sink's topics once no transaction in them is open.

A transaction that ended a moment ago may still look open: its coordinator tells each partition of the end. One that
stays open has lost its end. Kafka 4.3.0 and 4.3.1 lose it if the partition has no leader when the coordinator comes
back (KAFKA-20734). The next end of a transaction of the same writer would then decide about both, so that readers would
see rows that were never committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from boatlift.connectors.kafka.access import TIMEOUT, Access, Complaints, of_asking
from boatlift.connectors.kafka.ledger import Claimed, Ledger
from boatlift.connectors.kafka.offsets import Range
from boatlift.connectors.kafka.topics import Partition, Topics
from boatlift.errors import DataError, Finding, InvalidError, UnavailableError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 24), "segment.ms": str(3_600_000)}
"""Segments are small, because every new owner reads the newest one, which is not compacted."""

SETTLE_PAUSE = 0.002

SETTLE_TIMEOUT = 90.0
"""Seconds after which an open transaction is an error, while the cluster answers.

A committed transaction ends once its coordinator has sent a marker to each partition. A coordinator that died has a
successor after 9 s by default, and a lost marker is sent again after 30 s. An abandoned transaction is aborted after 60
to 70 s; the next owner aborts those of the sink's own ids at once.
"""

AWAY = 5.0
"""A cluster that takes this many seconds for an answer was unavailable, and ended no transaction meanwhile."""


class SettlingTopic:
    """The ends of a topic's partitions, while transactions settle.

    Args:
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
        """Wait until no transaction is open in partitions, and return their ends.

        Args:
            partitions: The partitions; None: all.

        Raises:
            UnavailableError: `[SINK_FAILED]` a transaction does not end.
        """
        numbers = self.written.partitions_of(self.name) if partitions is None else partitions
        here = [(self.name, number) for number in numbers]
        until = time.monotonic() + SETTLE_TIMEOUT
        while True:
            asked = time.monotonic()
            ends, written = self.committed.ends(here), self.written.ends(here)
            if ends == written:
                return ends
            now = time.monotonic()
            if now - asked >= AWAY:
                until = now + SETTLE_TIMEOUT
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


class LedgerTopic:
    """Makes the topic of a ledger, and reads it."""

    def __init__(self, access: Access, name: str) -> None:
        self._access, self.name = access, name
        self._complaints = Complaints()
        self._settling = SettlingTopic(access, name, str(self))
        self._committed, self._written = self._settling.committed, self._settling.written

    def __str__(self) -> str:
        return f"ledger {self.name}"

    def make(self, writers: int) -> None:
        """Make the topic if it does not exist: compacted, with a partition for each writer.

        Raises:
            InvalidError: `[NOT_PERMITTED]`, `[NOT_ADMITTED]`.
            UnavailableError: `[SINK_FAILED]`.
        """
        from confluent_kafka import KafkaError
        from confluent_kafka.admin import NewPartitions, NewTopic

        wanted = NewTopic(self.name, writers, -1, config=_SETTINGS)
        made = self._admin.create_topics([wanted], request_timeout=TIMEOUT)[self.name]
        new = self._done(made, unless=KafkaError.TOPIC_ALREADY_EXISTS)
        self._committed.made = self._written.made = True
        if not new and len(self.partitions()) < writers:
            more = self._admin.create_partitions([NewPartitions(self.name, writers)], request_timeout=TIMEOUT)[
                self.name
            ]
            self._done(more, unless=KafkaError.INVALID_PARTITIONS)

    def partitions(self) -> list[int]:
        """Return the partitions, each a writer's.

        Raises:
            InvalidError: `[NO_TOPIC]`.
        """
        return self._written.partitions_of(self.name)

    def read(self, *, settled: bool, writers: Sequence[int] | None = None) -> Ledger:
        """Read the ledger.

        Args:
            settled: Whether to wait until no transaction in it is open.
            writers: The writers whose parts to read; None: all.

        Raises:
            DataError: `[SINK_DAMAGED]`.
            UnavailableError: `[SINK_FAILED]`.
        """
        here = [(self.name, writer) for writer in (self.partitions() if writers is None else writers)]
        ends = self._settling.settled(n for _, n in here) if settled else self._committed.ends(here)
        ledger = Ledger()
        for key, value in self._records(ends):
            try:
                ledger.take(key, value)
            except ValueError as error:
                raise DataError(
                    "SINK_DAMAGED", f"{self} has a record that cannot be read ({error}): restore it"
                ) from error
        return ledger

    def claim_if_there(self) -> Claimed | None:
        """Return the newest claim on the sink; None if there is none.

        Raises:
            DataError: `[SINK_DAMAGED]`.
            UnavailableError: `[SINK_FAILED]`.
        """
        try:
            there = self._written.refuse_missing(timeout=0)
        except InvalidError:
            return None
        return self.read(settled=False).claim if there else None

    def ends(self) -> dict[int, int]:
        ends = self._written.ends([(self.name, writer) for writer in self.partitions()])
        return {writer: end for (_, writer), end in ends.items()}

    def verify(self, topics: Topics, topic: str) -> Iterator[Finding]:
        """Check the ledger, and that it belongs to the topic; yield each fault.

        Raises:
            UnavailableError: `[SINK_FAILED]`.
        """
        try:
            ledger = self.read(settled=False)
        except InvalidError as error:
            if error.condition != "NO_TOPIC":
                raise
            return  # never written
        except DataError as error:
            yield Finding(str(self), error.condition, error.message)
            return
        claim = ledger.claim
        if claim is None:
            if ledger.written:
                yield Finding(str(self), "SINK_DAMAGED", "has steps, but no owner has claimed it: restore it")
            return
        try:
            now = topics.id_of(topic)
        except InvalidError:
            now = ""
        if now != claim.topic[1]:
            yield Finding(f"topic {topic}", "SINK_DAMAGED", "is not the topic that the ledger is of: restore it")
        steps = sorted({step for written in ledger.written.values() for step in written})
        for before, after in pairwise(steps):
            if after != before + 1:
                yield Finding(
                    str(self), "SINK_GAP", f"has no record of the steps between {before} and {after}: restore it"
                )

    def _records(self, ends: Mapping[Partition, int]) -> Iterator[tuple[bytes, bytes]]:
        from boatlift.connectors.kafka.fetching import messages_in

        begins = self._committed.begins(ends)
        parts = [Range(self.name, "", 0, writer, begins[self.name, writer], end) for (_, writer), end in ends.items()]
        for _, some in messages_in(parts, self._access, str(self), committed=True):
            for message in some:
                yield message.key() or b"", message.value() or b""

    @cached_property
    def _admin(self) -> AdminClient:
        return self._access.admin(self._complaints)

    def _done(self, answer: Future[None], *, unless: int) -> bool:
        """Wait until a topic or its partitions are made; return False if they existed."""
        from confluent_kafka import KafkaException

        try:
            answer.result(TIMEOUT + 5)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == unless:
                return False
            raise of_asking(self._complaints.or_else(error, self._admin), str(self), sink=True) from error
        return True
