"""One transactional writer, on the driver or in a task.

A writer's rows of a step become visible together with its ledger record, or not at all. Kafka fences the *earlier
initialisation* of a transactional id, not the older owner of a dataflow. So a fenced writer may still own the dataflow.
It initialises again, which ends open transactions of its id. Then it reads the owner and the steps in the ledger of
each place that it writes in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from boatlift.connectors.kafka.access import (
    TIMEOUT,
    Access,
    Complaints,
    is_of_fencing,
    is_of_permission,
    logger,
    of_asking,
)
from boatlift.connectors.kafka.encoding import HEADERS, KEY, VALUE, part_of
from boatlift.connectors.kafka.ledger import Claimed, LedgerTopic, Noted, Record, Shared, Written, refuse_newer
from boatlift.connectors.kafka.places import Part, Turns, WriterPlace
from boatlift.connectors.kit import read_pieces
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import Staged
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_AT_ONCE = 1 << 14

TRIES = 5
"""The most attempts at a transaction that the cluster aborted, or whose outcome is unknown."""

ROWS_FOR_TASKS = 100_000
"""The least rows of a step that tasks write: a job must take over the transactional ids."""

WEIGHT_HEADER = "weight"
"""The header with the weight of a change, if rows are kept as changes."""

QUICK = (0.1, 0.1, 0.2)
"""Seconds for each of the first clients to take an id over."""

CONNECT = 2.0
"""Seconds in which one of them must be connected; else the last client, which waits longer, is made at once."""

QUEUE = 200_000
"""The most messages that wait in a producer."""

_TUNED = {
    "delivery.report.only.error": True,  # the commit reports that all were delivered
    "linger.ms": 5,
    "batch.num.messages": 100_000,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": QUEUE,
    "queue.buffering.max.kbytes": 1 << 18,
    # By default an initialisation that finds the coordinator busy waits half a second.
    "retry.backoff.ms": 5,
    "topic.metadata.refresh.fast.interval.ms": 10,
}


class Writer:
    """A producer with a transactional id, which writes in one place or in several at once.

    Before it writes in a place, it reads the place's ledger: after it has taken its id over, so that a newer owner
    either is found there, or takes the id over later.

    Args:
        place: Where it writes, and whose id it has unless it has another one.
        at: Called when a transaction is complete (`written`), and when it has ended (`committed`).
        id: Its transactional id, of another sink's writer.
        turns: What it shares with the other writers of its owner that have the id.
        again: Whether an earlier writer of this owner may have left a transaction open.
    """

    def __init__(
        self,
        place: WriterPlace,
        at: Callable[[str], None] = lambda _moment: None,
        *,
        id: str = "",  # noqa: A002 - Kafka's word
        turns: Turns | None = None,
        again: bool = False,
    ) -> None:
        self.place, self.id = place, id or place.id
        self._at, self._again, self._turns = at, again, turns or Turns()
        self._complaints = Complaints()
        self._producer: Producer | None = None
        self._read: set[WriterPlace] = set()  # by this producer

    def take_over(self) -> None:
        """Take the id over: fence earlier producers, and end their open transactions."""
        try:
            self._initialise()
        except KafkaException as error:
            raise self.heard(error) from error

    def _initialise(self) -> None:
        with self._turns.taken():
            self._producer = None
            self._read.clear()
            self._turns.take_over(self)
            self._producer = self._initialised()

    def _initialised(self) -> Producer:
        """Return a producer that has taken the id over.

        A client that is not connected, or finds a transaction open, asks again after half a second or more, though the
        broker ends the transaction within milliseconds. So the first clients get little time. A late request of one of
        them may fence the next: then that begins again, as after any fencing.
        """
        for timeout in QUICK:
            producer = self._new_producer()
            try:
                producer.list_topics(self.place.topic, timeout=CONNECT)
            except KafkaException:
                break
            try:
                producer.init_transactions(timeout)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                del producer  # before the next one is made
            else:
                return producer
        producer = self._new_producer()
        producer.init_transactions(TIMEOUT)
        return producer

    def _new_producer(self) -> Producer:
        return self.place.access.producer({**_TUNED, "transactional.id": self.id, "error_cb": self._complaints})

    def deliver(self, parts: Sequence[Part]) -> list[Record]:
        """Write parts in one transaction, unless their ledgers have the records, with a bounded number of retries."""
        with self._turns.taken():
            for tries_left in reversed(range(TRIES)):
                try:
                    return self._held(parts) or self.write(parts)
                except (KafkaException, SystemError) as raised:
                    error = raised if isinstance(raised, KafkaException) else _fatal(raised)
                    cause = error.args[0]
                    if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # the cluster does not say which
                        raise too_large(_topics_of(parts), "one of the messages") from error
                    if not tries_left or is_of_permission(cause):
                        raise self.heard(error, parts) from error
                    self._producer, self._again = None, True
                    message = "writer %s of topic %s begins again, and reads its ledger first: %s"
                    logger.warning(message, self.id, _topics_of(parts), cause)
            raise AssertionError

    def put(self, record: Claimed | Shared) -> None:
        """Write a record without rows in the writer's own place, whose ledger the caller has read since `take_over`."""
        self._read.add(self.place)
        self.deliver([Part(self.place, (), lambda: record)])

    def _held(self, parts: Sequence[Part]) -> list[Record]:
        """Read the ledgers that this producer has not read; return the records of all parts if these are there."""
        if self._producer is None or not self._turns.has(self):
            for part in parts:
                part.place.check()  # a refused owner has fenced no other
            self._initialise()
        unread = [part for part in parts if part.place not in self._read]
        if not unread:
            return []
        ledgers = [part.place.read(rows=self._again) for part in unread]
        self._read.update(part.place for part in unread)
        there = all(ledger.holds(part.make_record()) for part, ledger in zip(unread, ledgers, strict=True))
        return [part.make_record() for part in parts] if there else []

    def heard(self, error: KafkaException, parts: Sequence[Part] = ()) -> BoatliftError:
        """Return an error of the cluster, of which the client does not say what it is of.

        Args:
            parts: What was to be written; () while the id is taken over.
        """
        if is_of_fencing(error.args[0]):
            return UnavailableError(
                "SINK_FAILED",
                f"the transactional id {self.id} of topic {self.place.topic} is taken over again and again, and not by "
                "this dataflow: find the program that uses it, or give the sink another ledger",
            )
        heard, what = self._complaints.or_else(error, self._producer), f"topic {self.place.topic}"
        if heard.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            what = (
                f"the transactional id {self.id} of {what}"
                if self.id == self.place.id
                else (f"the transactional id {self.id}, of a sink that wrote {what} together with others,")
            )
        elif heard.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and parts:
            what = f"topic {' or '.join(f'{part.place.topic} or {part.place.ledger}' for part in parts)}"
        return of_asking(heard, what, sink=True)

    def write(self, parts: Sequence[Part]) -> list[Record]:
        producer = self._producer
        assert producer is not None, "take_over comes first"
        producer.begin_transaction()
        try:
            for part in parts:
                for piece in part.rows:
                    for batch in piece.to_batches(ROWS_AT_ONCE):
                        self._produce(producer, part.place.topic, batch)
            records: list[Record] = [part.make_record() for part in parts]
            for part, record in zip(parts, records, strict=True):
                to = part.place
                for each in (record, *((Noted(to.number, part.note),) if part.note else ())):
                    producer.produce(to.ledger, msgspec.json.encode(each), each.key, partition=to.number)
        except BaseException:
            with suppress(KafkaException):  # the next initialisation aborts it
                producer.abort_transaction(TIMEOUT)
            raise
        with suppress(SystemError):  # a fatal error inside a callback; the commit reports it too
            producer.flush(TIMEOUT)
        self._at("written")
        producer.commit_transaction(TIMEOUT)
        self._at("committed")
        return records

    def _produce(self, producer: Producer, topic: str, batch: pa.RecordBatch) -> None:
        keys, values = batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist()
        headers = _headers(batch)
        with suppress(SystemError):  # as at the flush
            while len(producer) > QUEUE - len(batch):  # so that no message finds the queue full
                producer.poll(0.005)
        try:
            # A loop in C: one in Python takes a third longer.
            if headers is None:
                deque(map(producer.produce, repeat(topic), values, keys), maxlen=0)
            else:
                for value, key, header in zip(values, keys, headers, strict=True):
                    producer.produce(topic, value, key, headers=header)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            size, key = max((len(key or b"") + len(value or b""), key) for key, value in zip(keys, values, strict=True))
            raise too_large(topic, f"a message of {size} bytes with key {(key or b'')[:60]!r}") from error

    def end(self) -> None:
        self._producer = None


def _topics_of(parts: Sequence[Part]) -> str:
    return " or ".join(dict.fromkeys(part.place.topic for part in parts))


def _fatal(error: SystemError) -> KafkaException:
    """Return a fatal error of a callback as a Kafka error."""
    return KafkaException(KafkaError(KafkaError._FATAL, str(error.__cause__ or error)))


def too_large(topic: str, which: str) -> DataError:
    """Return the error for a message that is larger than the client sends or the cluster takes."""
    return DataError(
        "MESSAGE_TOO_LARGE",
        f"{which} is too large for topic {topic}: raise message.max.bytes of the client (options) and of the cluster "
        "or topic, or make rows smaller",
    )


def _headers(batch: pa.RecordBatch) -> list[list[tuple[str, bytes | None]]] | None:
    """Return the headers of each row: the user's, then the weight; None if there are none."""
    names = batch.schema.names
    headers: list[list[tuple[str, bytes | None]]] | None = None
    if HEADERS in names:
        headers = [[(each["key"], each["value"]) for each in row or ()] for row in batch.column(HEADERS).to_pylist()]
    if WEIGHT in names:
        weights = batch.column(WEIGHT).to_pylist()
        before = headers or [[] for _ in weights]
        headers = [[*row, (WEIGHT_HEADER, b"%d" % weight)] for row, weight in zip(before, weights, strict=True)]
    return headers


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes a part of a step, by its number; returns the record as it was written.

    Attributes:
        upserts: Whether a message without a value deletes its key.
    """

    access: Access
    topic: str
    ledger: str
    records: tuple[Written, ...]
    rows: int
    staged: tuple[Staged, ...]
    upserts: bool
    note: bytes

    def __call__(self, number: int) -> bytes:
        return msgspec.json.encode(self.run(self.records[number]))

    def run(self, record: Written) -> Written:
        """Write a part, unless an earlier attempt has written it; fence that attempt."""
        from pyspark import TaskContext

        context = TaskContext.get()
        records = LedgerTopic(self.access, self.ledger, made=True)  # the sink made it
        refuse = partial(refuse_newer, self.topic, record.token)
        place = WriterPlace(self.access, self.topic, records, record.writer, refuse)
        writer = Writer(place, again=context is not None and context.attemptNumber() > 0)
        rows = part_of(read_pieces(self.rows, self.staged), record.writer, record.writers, upserts=self.upserts)
        writer.deliver([Part(place, rows, lambda: record, self.note)])
        return record


def refuse_speculation(spark: SparkSession) -> None:
    """Raise if Spark runs tasks speculatively: two attempts of a task would fence each other."""
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise InvalidError(
            "BAD_OPTION",
            "spark.speculation is true, and tasks that write to Kafka would fence their doubles: set it to false, or "
            "writers=1",
        )


def worth_tasks(rows: int, writers: int) -> bool:
    """Return whether tasks write a step faster than the driver."""
    return writers > 1 and rows >= ROWS_FOR_TASKS
