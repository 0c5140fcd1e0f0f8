"""The ledger of a sink: its records (the owner, and the steps of each writer), its topic, and which owner may write.

The ledger is a compacted topic of its own, with a partition for each writer. A writer's record of a step is in the
transaction of the step's rows, so both become visible or neither does. Records are JSON. A record's key is `claim`,
`note`, `shared` or the step modulo `SLOTS`. Every partition has a claim, so that each writer finds the owner in its own
partition. Compaction keeps the last `SLOTS` steps of each writer.

A transaction that ended a moment ago may still look open: its coordinator tells each partition of the end. One that
stays open has lost its end. Kafka 4.3.0 and 4.3.1 lose it if the partition has no leader when the coordinator comes
back (KAFKA-20734). The next end of a transaction of the same writer would then decide about both, so that readers would
see rows that were never committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import msgspec

from boatlift.connectors.kafka.access import TIMEOUT, Access, Admin, of_asking
from boatlift.connectors.kafka.offsets import Range
from boatlift.connectors.kafka.topics import Partition, Topics
from boatlift.connectors.kit import StepLedger, fenced
from boatlift.dataflow.contracts import SinkContext
from boatlift.errors import DataError, Finding, InvalidError, UnavailableError
from boatlift.storage.records.well_formed import fault_of_value

SLOTS = 1024

FORMAT = 3
"""Format 2 has notes, format 3 the transactional ids of other sinks."""

_Count = Annotated[int, msgspec.Meta(ge=0)]

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


class Claimed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record that an owner took the sink over.

    Attributes:
        topic: The name and id of the topic of the rows.
        shape: The options that make messages of rows; a sink with other options is another sink.
    """

    format: int
    dataflow: str
    sink: str
    store: str
    token: int
    topic: tuple[str, str]
    shape: dict[str, Any]
    key: ClassVar[bytes] = b"claim"
    """The record's key: it replaces earlier records with the same key."""


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record that a writer's rows of a step are in the topic.

    Attributes:
        writer, writers: The writer's number, and the number of writers that divide the step by key.
        step, rows, digest: The whole step's.
        begins: Partition to an offset at or before the first row of the step.
    """

    writer: _Count
    writers: Annotated[int, msgspec.Meta(ge=1)]
    step: _Count
    rows: _Count
    digest: str
    token: _Count
    begins: dict[_Count, _Count] = {}

    @property
    def key(self) -> bytes:
        return b"%d" % (self.step % SLOTS)


class Noted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The note of the owner in a writer's newest transaction that has one."""

    writer: _Count
    note: bytes
    key: ClassVar[bytes] = b"note"


class Shared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record that transactions of other sinks' ids may write the sink too, from now on; in partition 0.

    Only the sink's own id writes it, so that an owner whose id is taken over lets no other id in.

    Attributes:
        ids: All of these ids; none once a later owner has taken each of them over.
    """

    ids: tuple[str, ...]
    key: ClassVar[bytes] = b"shared"


Record = Claimed | Written | Noted | Shared

# Made at import: see `boatlift.decoders`.
_CLAIMS, _STEPS = msgspec.json.Decoder(Claimed), msgspec.json.Decoder(Written)
_NOTES, _SHARED = msgspec.json.Decoder(Noted), msgspec.json.Decoder(Shared)


@dataclass(slots=True)
class Ledger:
    """The content of a ledger.

    Attributes:
        claim: The newest claim; None: no owner has claimed the sink.
        written: Writer to step to record, after compaction.
        notes: Writer to its newest note.
        shared: The transactional ids of other sinks that may write this one.
    """

    claim: Claimed | None = None
    written: dict[int, dict[int, Written]] = field(default_factory=dict)
    notes: dict[int, Noted] = field(default_factory=dict)
    shared: tuple[str, ...] = ()

    def take(self, key: bytes, value: bytes) -> None:
        record: Record
        try:
            match key:
                case Claimed.key:
                    record = _CLAIMS.decode(value)
                case Noted.key:
                    record = _NOTES.decode(value)
                case Shared.key:
                    record = _SHARED.decode(value)
                case _:
                    record = _STEPS.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(str(error)) from error
        fault = fault_of_value(record.shape) if isinstance(record, Claimed) else None
        if fault is not None:
            raise ValueError(fault)
        self.apply(record)

    def apply(self, record: Record) -> None:
        if isinstance(record, Noted):
            self.notes[record.writer] = record
            return
        if isinstance(record, Shared):
            self.shared = record.ids
            return
        if isinstance(record, Claimed):
            if self.claim is None or record.token >= self.claim.token:
                self.claim = record
            return
        steps = self.written.setdefault(record.writer, {})
        steps[record.step] = record
        steps.pop(record.step - SLOTS, None)

    def add(self, part: Ledger) -> None:
        """Apply all records of another part of the same ledger."""
        if part.claim is not None:
            self.apply(part.claim)
        for steps in part.written.values():
            for record in steps.values():
                self.apply(record)
        self.notes.update(part.notes)
        self.shared = part.shared or self.shared

    def holds(self, record: Claimed | Written | Shared) -> bool:
        """Return whether the ledger has a record, or a later record of the same writer."""
        if isinstance(record, Claimed):
            return self.claim == record
        if isinstance(record, Shared):
            return self.shared == record.ids
        return record.step <= max(self.written.get(record.writer, {}), default=-1)

    def begun(self) -> int:
        """Return the last step that a writer has written; −1 if there is none."""
        return max((step for steps in self.written.values() for step in steps), default=-1)

    def whole(self) -> int:
        """Return the last step that all its writers have written; −1 if there is none."""
        records = (record for steps in self.written.values() for record in steps.values())
        newest = max(records, key=lambda record: record.step, default=None)
        if newest is None:
            return -1
        complete = all(newest.step in self.written.get(writer, {}) for writer in range(newest.writers))
        return newest.step if complete else newest.step - 1

    def of_step(self, step: int) -> Written | None:
        return next((steps[step] for steps in self.written.values() if step in steps), None)


def decisions_of(context: SinkContext, topic: str) -> StepLedger:
    """Return the decisions of an owner about the steps of a topic."""
    return StepLedger(context, f"topic {topic}", "topic", "restore the topic")


def refuse_another(claim: Claimed, context: SinkContext, topic: tuple[str, str], shape: Mapping[str, Any]) -> None:
    """Raise if the claim on a topic does not let an owner write."""
    name, topic_id = topic
    ledger = decisions_of(context, name)
    if claim.format > FORMAT:
        raise DataError(
            "NEWER_FORMAT",
            f"the ledger of topic {name} has format {claim.format}, this version writes {FORMAT}: upgrade Boatlift",
        )
    refuse_stranger(claim, ledger)
    if claim.topic[0] != name:
        raise ledger.foreign(f"has the ledger of topic {claim.topic[0]}")
    different = [
        f"{option} {claim.shape.get(option)!r}, not {now!r}"
        for option, now in shape.items()
        if claim.shape.get(option) != now
    ]
    if different:
        raise ledger.foreign(f"was written with {'; '.join(different)}")
    ledger.refuse_other_store(claim.store)
    if claim.topic[1] != topic_id:
        raise DataError(
            "SINK_DAMAGED",
            f"topic {name} was deleted and made again after steps were written to it: begin with a new store and "
            "another topic",
        )
    ledger.refuse_newer_owner(claim.token)


def refuse_stranger(claim: Claimed, ledger: StepLedger) -> None:
    """Raise if the claim on a topic is another sink's."""
    if (claim.dataflow, claim.sink) != (ledger.context.dataflow, ledger.context.sink):
        raise ledger.foreign(f"belongs to sink {claim.sink!r} of dataflow {claim.dataflow!r}")


def refuse_newer(topic: str, token: int, claim: Claimed) -> None:
    """Raise if a newer owner has claimed a topic; for tasks, which only know the token of their owner."""
    if claim.token > token:
        raise fenced(f"topic {topic}", claim.token, token)


class SettlingTopic:
    """The ends of a topic's partitions, while transactions settle.

    Attributes:
        committed: The topic up to the first open transaction.
        written: The topic up to the last message.
    """

    def __init__(self, access: Access, name: str, called: str) -> None:
        self.name, self._called = name, called
        self.committed = Topics(access, (name,), None, committed=True, written=True)
        self.written = Topics(access, (name,), None, committed=False, written=True)

    def settled(self, partitions: Iterable[int] | None = None) -> dict[Partition, int]:
        """Wait until no transaction is open in partitions, and return their ends."""
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
                open_in = ", ".join(str(number) for name, number in here if ends[name, number] != written[name, number])
                raise UnavailableError(
                    "SINK_FAILED",
                    f"{self._called} has a transaction that does not end, in partition {open_in}: find the program "
                    "that writes to it, then run again. If there is none, a broker of Kafka 4.3.0 or 4.3.1 has lost "
                    "its end (KAFKA-20734): upgrade it, and end the transaction with kafka-transactions.sh",
                )
            time.sleep(SETTLE_PAUSE)


class LedgerTopic:
    """Makes the topic of a ledger, and reads it.

    Args:
        made: Whether the topic and its partitions are known to exist (`Topics.made`).
        remembers: Each call of `read` takes only what is new since the last one.
    """

    def __init__(self, access: Access, name: str, *, made: bool = False, remembers: bool = False) -> None:
        self._remembers = remembers
        self._parts: dict[int, tuple[int, Ledger]] = {}  # writer to its part, and where that ends
        self._access, self.name = access, name
        self._settling = SettlingTopic(access, name, str(self))
        self._committed, self._written = self._settling.committed, self._settling.written
        self._committed.made = self._written.made = made

    def __str__(self) -> str:
        return f"ledger {self.name}"

    def make(self, writers: int) -> None:
        """Make the topic if it does not exist: compacted, with a partition for each writer."""
        from confluent_kafka import KafkaError
        from confluent_kafka.admin import NewPartitions, NewTopic

        wanted = NewTopic(self.name, writers, -1, config=_SETTINGS)
        admin = self._access.admin()
        made = admin.client.create_topics([wanted], request_timeout=TIMEOUT)[self.name]
        new = self._done(admin, made, unless=KafkaError.TOPIC_ALREADY_EXISTS)
        self._committed.made = self._written.made = True
        if not new and len(self.partitions()) < writers:
            more = admin.client.create_partitions([NewPartitions(self.name, writers)], request_timeout=TIMEOUT)
            self._done(admin, more[self.name], unless=KafkaError.INVALID_PARTITIONS)

    def partitions(self) -> list[int]:
        return self._written.partitions_of(self.name)

    def read(self, *, settled: bool, writers: Sequence[int] | None = None) -> Ledger:
        """Read the ledger.

        Args:
            writers: The writers whose parts to read; None: all.
        """
        here = [(self.name, writer) for writer in (self.partitions() if writers is None else writers)]
        ends = self._settling.settled(n for _, n in here) if settled else self._committed.ends(here)
        parts = {
            writer: self._parts.get(writer, (0, Ledger())) if self._remembers else (0, Ledger()) for _, writer in here
        }
        for writer, key, value in self._records(ends, {writer: begin for writer, (begin, _) in parts.items()}):
            try:
                parts[writer][1].take(key, value)
            except ValueError as error:
                raise DataError(
                    "SINK_DAMAGED", f"{self} has a record that cannot be read ({error}): restore it"
                ) from error
        ledger = Ledger()
        for (_, writer), end in ends.items():
            if self._remembers:
                self._parts[writer] = (end, parts[writer][1])
            ledger.add(parts[writer][1])
        return ledger

    def claim_if_there(self) -> Claimed | None:
        try:
            there = self._written.refuse_missing(timeout=0)
        except InvalidError:
            return None
        return self.read(settled=False).claim if there else None

    def ends(self) -> dict[int, int]:
        ends = self._written.ends([(self.name, writer) for writer in self.partitions()])
        return {writer: end for (_, writer), end in ends.items()}

    def verify(self, topics: Topics, topic: str) -> Iterator[Finding]:
        """Check the ledger, and that it belongs to the topic; yield each fault."""
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

    def _records(self, ends: Mapping[Partition, int], known: Mapping[int, int]) -> Iterator[tuple[int, bytes, bytes]]:
        from boatlift.connectors.kafka.fetching import messages_in

        begins = self._committed.begins(ends)
        parts = [
            Range(self.name, "", 0, writer, max(known[writer], begins[self.name, writer]), end)
            for (_, writer), end in ends.items()
        ]
        for index, some in messages_in(parts, self._access, str(self), committed=True):
            for message in some:
                yield parts[index].partition, message.key() or b"", message.value() or b""

    def _done(self, admin: Admin, answer: Future[None], *, unless: int) -> bool:
        """Wait until a topic or its partitions are made; return False if they existed."""
        from confluent_kafka import KafkaException

        try:
            answer.result(TIMEOUT + 5)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == unless:
                return False
            raise of_asking(admin.complaints.or_else(error, admin.client), str(self), sink=True) from error
        return True
