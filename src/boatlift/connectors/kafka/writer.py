"""One transactional writer of a sink, on the driver or in a task.

A writer's rows of a step become visible together with its ledger record, or not at all. Kafka fences the *earlier
initialisation* of a transactional id, not the older owner of a dataflow. So a fenced writer may still own the dataflow.
It initialises again, which ends open transactions of its id. Then it reads the owner and the steps in the ledger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from boatlift.connectors.kafka.access import TIMEOUT, Access, Complaints, is_of_fencing, logger, of_asking
from boatlift.connectors.kafka.encoding import HEADERS, KEY, VALUE, part_of
from boatlift.connectors.kafka.ledger import Claimed, Ledger, LedgerTopic, Noted, SettlingTopic, Written, refuse_newer
from boatlift.connectors.kit import read_pieces
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import Staged
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Record = TypeVar("Record", Claimed, Written)

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
    """A producer with a transactional id, and its part of the ledger.

    Args:
        number: The writer's partition of the ledger.
        at: Called when a transaction is complete (`written`), and when it has ended (`committed`).
        again: Whether an earlier writer of this owner may have left a transaction open.
    """

    def __init__(
        self,
        access: Access,
        topic: str,
        ledger: str,
        number: int,
        refuse: Callable[[Claimed], None],
        at: Callable[[str], None] = lambda _moment: None,
        *,
        again: bool = False,
    ) -> None:
        self._access, self._topic, self._ledger, self._number, self._refuse = access, topic, ledger, number, refuse
        self._at = at
        self._again = again
        self._rows = SettlingTopic(access, topic, f"topic {topic}")
        self._records = LedgerTopic(access, ledger, made=True)  # the sink made it
        self._complaints = Complaints()
        self._producer: Producer | None = None
        self._id = f"{ledger}.{number}"

    def begin(self, records: LedgerTopic | None = None) -> Ledger:
        """Take the id over: fence earlier producers, and end their open transactions.

        Args:
            records: The ledger, if the caller has read it just now.

        Returns:
            This writer's part of the ledger.
        """
        records = records or self._records
        self._check(records.read(settled=False, writers=[self._number]))  # a refused owner has fenced no other
        producer = self._initialised()
        if self._again:
            self._rows.settled()
        part = records.read(settled=True, writers=[self._number])
        self._check(part)
        self._producer = producer
        return part

    def _initialised(self) -> Producer:
        """Return a producer that has taken the id over.

        A client that is not connected, or finds a transaction open, asks again after half a second or more, though the
        broker ends the transaction within milliseconds. So the first clients get little time. A late request of one of
        them may fence the next: then that begins again, as after any fencing.
        """
        for timeout in QUICK:
            producer = self._new_producer()
            try:
                producer.list_topics(self._topic, timeout=CONNECT)
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
        return self._access.producer({**_TUNED, "transactional.id": self._id, "error_cb": self._complaints})

    def deliver(self, rows: Sequence[pa.Table], make_record: Callable[[], Record], note: bytes = b"") -> Record:
        """Write rows and a record, unless the ledger has the record, with a bounded number of retries.

        Args:
            make_record: Makes the record, once the rows are on their way.
            note: Goes with it, unless it is empty.
        """
        for tries_left in reversed(range(TRIES)):
            try:
                if self._producer is None:
                    record = make_record()
                    if self.begin().holds(record):
                        return record
                return self.write(rows, make_record, note)
            except (KafkaException, SystemError) as raised:
                error = raised if isinstance(raised, KafkaException) else _fatal(raised)
                cause = error.args[0]
                if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # the cluster does not say which
                    raise too_large(self._topic, "one of the messages") from error
                if not tries_left:
                    raise self.heard(error) from error
                self._producer, self._again = None, True
                message = "writer %s of topic %s begins again, and reads its ledger first: %s"
                logger.warning(message, self._number, self._topic, cause)
        raise AssertionError

    def heard(self, error: KafkaException) -> BoatliftError:
        if is_of_fencing(error.args[0]):
            return UnavailableError(
                "SINK_FAILED",
                f"the transactional id {self._id} of topic {self._topic} is taken over again and again, and not by "
                "this dataflow: find the program that uses it, or give the sink another ledger",
            )
        return of_asking(self._complaints.or_else(error, self._producer), f"topic {self._topic}", sink=True)

    def _check(self, part: Ledger) -> None:
        if part.claim is not None:
            self._refuse(part.claim)

    def write(self, rows: Sequence[pa.Table], make_record: Callable[[], Record], note: bytes = b"") -> Record:
        producer = self._producer
        assert producer is not None, "begin comes first"
        producer.begin_transaction()
        try:
            for piece in rows:
                for batch in piece.to_batches(ROWS_AT_ONCE):
                    self._produce(producer, batch)
            record = make_record()
            for each in (record, *((Noted(self._number, note),) if note else ())):
                producer.produce(self._ledger, msgspec.json.encode(each), each.key, partition=self._number)
        except BaseException:
            with suppress(KafkaException):  # the next initialisation aborts it
                producer.abort_transaction(TIMEOUT)
            raise
        with suppress(SystemError):  # a fatal error inside a callback; the commit reports it too
            producer.flush(TIMEOUT)
        self._at("written")
        producer.commit_transaction(TIMEOUT)
        self._at("committed")
        return record

    def _produce(self, producer: Producer, batch: pa.RecordBatch) -> None:
        keys, values = batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist()
        headers = _headers(batch)
        with suppress(SystemError):  # as at the flush
            while len(producer) > QUEUE - len(batch):  # so that no message finds the queue full
                producer.poll(0.005)
        try:
            # A loop in C: one in Python takes a third longer.
            if headers is None:
                deque(map(producer.produce, repeat(self._topic), values, keys), maxlen=0)
            else:
                for value, key, header in zip(values, keys, headers, strict=True):
                    producer.produce(self._topic, value, key, headers=header)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            size, key = max((len(key or b"") + len(value or b""), key) for key, value in zip(keys, values, strict=True))
            raise too_large(self._topic, f"a message of {size} bytes with key {(key or b'')[:60]!r}") from error

    def end(self) -> None:
        self._producer = None


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
        writer = Writer(
            self.access,
            self.topic,
            self.ledger,
            record.writer,
            partial(refuse_newer, self.topic, record.token),
            again=context is not None and context.attemptNumber() > 0,
        )
        rows = part_of(read_pieces(self.rows, self.staged), record.writer, record.writers, upserts=self.upserts)
        return writer.deliver(rows, lambda: record, self.note)


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
