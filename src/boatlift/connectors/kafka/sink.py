"""A Kafka topic as a sink, exactly once, with the user's own keys.

One or more *writers* write a step, each in a transaction of its own together with its record in the sink's ledger
(`ledger`). After a crash the ledger shows which steps are in the topic. If some writers have committed their parts of a
step, the others write theirs, unless the sink was read back in between: then the next step begins from what is there. A
row's key decides its writer, and the number of writers changes only between steps: so the order per key is kept.

**Fencing.** `open` takes over every transactional id that may write the sink, which ends the open transactions of an
older owner. Then it reads the ledger, stops if a newer owner has claimed the sink, and otherwise claims it. A fenced
owner takes the ids over again; it finds the newer claim, or continues if there is none. `joint` says how a sink comes
to be written under the id of another one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from boatlift.connectors.kafka.access import Access, access_to
from boatlift.connectors.kafka.fetching import messages_in
from boatlift.connectors.kafka.ledger import (
    FORMAT,
    Claimed,
    Ledger,
    LedgerTopic,
    Record,
    SettlingTopic,
    Shared,
    Written,
    decisions_of,
    refuse_another,
    refuse_stranger,
)
from boatlift.connectors.kafka.offsets import Range
from boatlift.connectors.kafka.topics import Topics
from boatlift.connectors.kit import Decision, SinkBase, StepLedger, checked_options, difference_of_rows, read_pieces
from boatlift.dataflow.contracts import Committed, Json, Outcome, SinkCapabilities, SinkContext, Staged, Stager
from boatlift.errors import DataError, Finding, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from boatlift.connectors.kafka.encoding import MessageStager
    from boatlift.connectors.kafka.joint import JointTransaction, TopicStep
    from boatlift.connectors.kafka.places import Part, WriterPlace
    from boatlift.connectors.kafka.writer import Writer

_T = TypeVar("_T")

logger = logging.getLogger(__name__)

_WRITTEN = msgspec.json.Decoder(Written)  # made at import: see `boatlift.decoders`


@checked_options("bl.kafka.sink")
def sink(
    servers: str,
    topic: str,
    *,
    key: str | Sequence[str] | None = None,
    format: Literal["json", "raw"] = "json",  # noqa: A002 - Spark's word
    rows: Literal["append", "upsert", "changelog"] = "append",
    key_format: Literal["text", "json"] = "text",
    writers: int = 1,
    atomic: Literal["writer", "step"] = "writer",
    ledger: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> KafkaSink:
    """Return a sink that writes a message a row into a topic; a `read_committed` consumer sees each exactly once.

    Args:
        servers: `host:port`, several separated by commas.
        topic: The topic; it must exist, and belongs to this sink alone.
        key: The column of the messages' keys, or several columns (then the key is a JSON object of them); None:
            messages have no key. Messages land in the partition in which Java's producer would put them.
        format: `json`: a value is an object of all columns. `raw`: rows have `value` and perhaps `key` and `headers`,
            which are sent as they are.
        rows: `append`: rows that never change. `upsert`: a row replaces the earlier row of its key, and a deletion is a
            message without a value (a tombstone), so that a compacted topic holds the newest rows. `changelog`: every
            change, with its weight (`1` or `-1`) in the header `weight`.
        key_format: `text`: the key column's text, or bytes; `json`.
        writers: The number of transactions of a step, which run at the same time.
        atomic: The unit that becomes visible at once. `writer`: each writer's part of a step; `step`: the whole step,
            which needs one writer.
        ledger: The topic of the sink's records of steps, made if it does not exist; None: the topic's name and
            `.ledger`.
        options: Settings of librdkafka, such as `security.protocol`; they are kept in memory only.

    Raises:
        InvalidError: `[BAD_OPTION]`, `[MISSING_EXTRA]`.

    Examples:
        >>> flights.sink("out", bl.kafka.sink("localhost:9092", "flights", key="origin"))
    """
    access = access_to(servers, options)
    names = () if key is None else ((key,) if isinstance(key, str) else tuple(key))
    if not topic:
        raise InvalidError("BAD_OPTION", f"topic is {topic!r}: give its name")
    known = rows in ("append", "upsert", "changelog") and key_format in ("text", "json")
    if format not in ("json", "raw") or not known:
        given = f"{format!r}, {rows!r}, {key_format!r}"
        raise InvalidError("BAD_OPTION", f"format, rows, key_format are {given}: see `kafka.sink`")
    if format == "raw" and names:
        own = "rows of format 'raw' have their key in the column key"
        raise InvalidError("BAD_OPTION", f"key is {key!r}, but {own}: leave it out")
    if rows == "upsert" and not names:
        raise InvalidError("BAD_OPTION", "upserts need a key, and format 'json': name the columns that tell rows apart")
    if key is not None and (not names or len(set(names)) != len(names)):
        raise InvalidError("BAD_OPTION", f"key is {key!r}: give different column names")
    if writers != int(writers) or not 1 <= writers <= MOST_WRITERS:
        raise InvalidError("BAD_OPTION", f"writers is {writers!r}: give a whole number from 1 to {MOST_WRITERS}")
    if atomic not in ("writer", "step"):
        raise InvalidError("BAD_OPTION", f"atomic is {atomic!r}: choose 'writer' or 'step'")
    if atomic == "step" and writers > 1:
        advice = "choose atomic='writer', or leave writers out"
        raise InvalidError("BAD_OPTION", f"a step of {writers} writers is not atomic: {advice}")
    shape = {"key": list(names), "format": format, "rows": rows, "key_format": key_format}
    return KafkaSink(access, topic, ledger or f"{topic}.ledger", shape, writers)


MOST_WRITERS = 256


class KafkaSink(SinkBase):
    """A topic and its ledger."""

    note_bytes = 1 << 16
    """As text it is a third longer, and a message has at most a megabyte by default."""

    def __init__(self, access: Access, topic: str, ledger: str, shape: Mapping[str, Any], writers: int) -> None:
        self.key: Sequence[str] | None = tuple(shape["key"]) if shape["rows"] == "upsert" else None
        self._access, self._topic, self._shape, self._count = access, topic, dict(shape), writers
        self._topics = Topics(access, (topic,), None, committed=False, written=True)
        self._ledger_topic = LedgerTopic(access, ledger)
        self._stager: MessageStager | None = None
        self._writers: list[Writer] = []
        self._ledger = Ledger()
        self._ledger_ends: dict[int, int] = {}
        self._ends: Callable[[], dict[int, int]] | None = None
        self._sure = False
        self._at: Callable[[str], None] = lambda _moment: None

    @property
    def capabilities(self) -> SinkCapabilities:
        topics = (self._topic, self._ledger_topic.name)
        places = tuple(f"topic {topic} at {server}" for topic in topics for server in self._access.brokers)
        return SinkCapabilities(
            self._count,
            runs_jobs=self._count > 1,
            crash_points=self,
            places=places,
            preflight=self._preflight,
            reads_back=self,
            begun=self._begun,
            keeps_note=self,
            shares_transaction=self if self._count == 1 else None,
        )

    @property
    def shared_place(self) -> str:
        """The cluster, as the servers name it: a cluster that has two names is two places."""
        return f"Kafka cluster {', '.join(self._access.brokers)}"

    def announce(self, moment: Callable[[str], None]) -> None:
        """Call a function when a writer's transaction is complete (`written`), and when it has ended (`committed`)."""
        self._at = moment

    def describe(self) -> Json:
        return {"kind": "kafka", "topic": self._topic, "ledger": self._ledger_topic.name, **self._shape}

    def open(self, context: SinkContext) -> Committed | None:
        from boatlift.connectors.kafka.encoding import message_stager
        from boatlift.connectors.kafka.writer import refuse_speculation
        from boatlift.connectors.kit.tasks import session_of_process

        if context.changes and self._shape["rows"] == "append":
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"sink {context.sink} gets changes, and topic {self._topic} is for rows that never change: choose "
                "rows='upsert' with a key, or rows='changelog'",
            )
        key = self._shape["key"]
        raw, json_key = self._shape["format"] == "raw", self._shape["key_format"] == "json"
        stager = message_stager(context, key, raw=raw, json_key=json_key, upserts=self.key is not None)
        self._context, self._sure, self._ends = context, False, None
        spark = session_of_process()
        if spark is not None and self._count > 1:
            refuse_speculation(spark)
        topic_id = self._topics.id_of(self._topic)
        self._ledger_topic.make(self._count)
        self._take_over(topic_id)
        self._stager = stager.grouped() if self._count > 1 else stager
        whole = self._ledger.whole()
        record = self._ledger.of_step(whole)
        if whole >= 0 and record is None:
            raise DataError(
                "SINK_DAMAGED", f"{self._ledger_topic} lacks step {whole}, the last that is whole: restore it"
            )
        return None if record is None else Committed(record.step, record.rows, record.digest)

    def stager(self) -> Stager:
        assert self._stager is not None, "open comes first"
        return self._stager

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        now, note = Committed(step, rows, digest), self._take_note()
        records = self.lacking(now, staged)
        if not records:
            return Outcome.DROPPED
        self._write(records, rows, staged, note)
        return Outcome.APPENDED

    def step_write(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> TopicStep:
        from boatlift.connectors.kafka.joint import TopicStep

        return TopicStep(self, Committed(step, rows, digest), staged, self._take_note())

    def transaction(self, act: Callable[[JointTransaction], _T]) -> _T:
        from boatlift.connectors.kafka.joint import JointTransaction

        self._refuse_unsure()
        transaction = JointTransaction(self._writers[0])
        result = act(transaction)
        transaction.deliver()
        return result

    def lacking(self, now: Committed, staged: Sequence[Staged]) -> list[Written]:
        """Return the records of a step that the ledger lacks; none if it holds the step, which is then compared."""
        self._refuse_unsure()
        step, decided, begun = now.step, self._decisions, self._ledger.begun()
        if decided.decide(step, begun if step > begun else self._ledger.whole()) is Decision.COMPARE:
            self._check_owner()
            self._compare(now, staged)
            logger.info("step %s is in %s already: compared and dropped", step, decided.place)
            return []
        self._compare(now, staged)  # some writers may have committed their parts
        known = self._ledger.of_step(step)
        count = self._count if known is None else known.writers
        records = [Written(n, count, step, now.rows, now.digest, self._opened.token) for n in range(count)]
        return [record for record in records if not self._ledger.holds(record)]

    def let_in(self, transactional_id: str, step: int) -> None:
        """Record that transactions of an id may write the sink, before the first one of another sink's id does."""
        self._refuse_unsure()
        own, ids = [writer.id for writer in self._writers], self._ledger.shared
        if transactional_id not in (*own, *ids) and step > self._ledger.whole():
            record = Shared((*ids, transactional_id))
            self._writers[0].put(record)
            self._ledger.apply(record)

    def parts(self, records: Sequence[Written], rows: int, staged: Sequence[Staged], note: bytes) -> list[Part]:
        """Return what transactions write of a step."""
        from boatlift.connectors.kafka.encoding import part_of
        from boatlift.connectors.kafka.places import Part

        pieces, upserts = read_pieces(rows, staged), self.key is not None
        divided = [part_of(pieces, record.writer, record.writers, upserts=upserts) for record in records]
        ends, self._ends = self._ends or self._topics.ends_asked(self._topic), None
        return [
            Part(self._writers[record.writer].place, part, partial(_beginning, record, ends), note)
            for record, part in zip(records, divided, strict=True)
        ]

    def writes(self) -> None:
        """Note that a step is being written: until `wrote` the content of the topic is unknown."""
        self._sure = False

    def wrote(self, records: Iterable[Record]) -> None:
        """Take the records of a step that was written."""
        for record in records:
            self._ledger.apply(record)
        self._sure = True
        self._ends = self._topics.ends_asked(self._topic)  # before the first row of the next step

    def _refuse_unsure(self) -> None:
        """Raise if only `open` can tell what the topic holds, or another owner has it."""
        if not self._sure:
            self._check_owner()
            raise self._decisions.failed_before()

    def notes(self) -> Sequence[bytes]:
        return [noted.note for noted in self._ledger.notes.values()]

    def _begun(self) -> int:
        return self._ledger.begun()

    def held(self, spark: SparkSession) -> DataFrame | None:
        from boatlift.connectors.kafka.reading_back import held_rows

        topic = SettlingTopic(self._access, self._topic, f"topic {self._topic}")
        return held_rows(spark, topic, self._opened, self._shape)

    def verify(self) -> Iterator[Finding]:
        yield from self._ledger_topic.verify(self._topics, self._topic)

    def close(self) -> None:
        for writer in self._writers:
            writer.end()
        self._writers, self._sure = [], False

    def _preflight(self, context: SinkContext) -> None:
        claim = self._ledger_topic.claim_if_there() if self._topics.refuse_missing() else None
        if claim is not None:
            ledger = decisions_of(context, self._topic)
            refuse_stranger(claim, ledger)
            ledger.refuse_other_store(claim.store)

    def _take_over(self, topic_id: str) -> None:
        """Take over every id that may write, read the ledger, and claim the sink, unless a newer owner has claimed it.

        Until the claim an older owner may take an id back, let further ids in, and write. From then on it finds the
        claim once it takes an id back. So the ids of other sinks are taken over before the claim, which ends open
        transactions, and after it.
        """
        from boatlift.connectors.kafka.places import WriterPlace
        from boatlift.connectors.kafka.writer import Writer

        context, name = self._opened, self._ledger_topic.name
        records = LedgerTopic(self._access, name, made=True, remembers=True)
        found = records.read(settled=False)
        self._refuse(found, topic_id)  # before any owner is fenced
        topic = (self._topic, topic_id)
        refuse = partial(refuse_another, context=context, topic=topic, shape=self._shape)
        # All writers that ever existed: an older owner may have an open transaction with any of their ids.
        places = [WriterPlace(self._access, self._topic, records, number, refuse) for number in records.partitions()]
        self._writers = [self._writer(place, place.id) for place in places]
        with ThreadPoolExecutor(len(places), "kafka-writers") as threads:
            list(threads.map(Writer.take_over, self._writers))
            others: set[str] = set()
            while new := {*records.read(settled=False).shared} - others:
                self._take_over_others(places[0], new)
                others |= new
            self._refuse(records.read(settled=True), topic_id)
            SettlingTopic(self._access, self._topic, f"topic {self._topic}").settled()
            claim = Claimed(FORMAT, context.dataflow, context.sink, context.store, context.token, topic, self._shape)
            list(threads.map(lambda writer: writer.put(claim), self._writers))
        if shared := records.read(settled=False).shared:
            self._take_over_others(places[0], shared)
            self._writers[0].put(Shared(()))
        self._ledger = records.read(settled=True)
        self._ledger_ends = {}
        self._sure = True

    def _take_over_others(self, place: WriterPlace, ids: Iterable[str]) -> None:
        """End the open transactions of other sinks' ids, and fence those who have them."""
        for writer in [self._writer(place, each) for each in ids]:
            writer.take_over()
            writer.end()

    def _writer(self, place: WriterPlace, transactional_id: str) -> Writer:
        from boatlift.connectors.kafka.places import turns_of
        from boatlift.connectors.kafka.writer import Writer

        turns = turns_of(self._access, transactional_id, (self._opened.store, self._opened.token))
        return Writer(place, self._at, id=transactional_id, turns=turns)

    def _refuse(self, ledger: Ledger, topic_id: str) -> None:
        """Raise if the topic is another sink's, or has a newer owner."""
        if ledger.claim is not None:
            refuse_another(ledger.claim, self._opened, (self._topic, topic_id), self._shape)
        elif self._topics.has_rows(self._topic):
            raise self._decisions.foreign("has rows that this sink did not write")

    def _check_owner(self) -> None:
        """Make sure that no other owner has claimed the sink: this owner knows every record of the ledger."""
        ends = self._ledger_topic.ends()
        if ends != self._ledger_ends:
            self._refuse(self._ledger_topic.read(settled=False), self._topics.id_of(self._topic))
            self._ledger_ends = ends

    @property
    def _decisions(self) -> StepLedger:
        return decisions_of(self._opened, self._topic)

    def _compare(self, now: Committed, staged: Sequence[Staged]) -> None:
        """Compare a step with its record, if there is one: the ledger forgets old steps."""
        record = self._ledger.of_step(now.step)
        if record is not None:
            held = Committed(record.step, record.rows, record.digest)
            self._decisions.compare(now, held, partial(self._difference, record, now.rows, staged))
        elif now.step <= self._ledger.whole():
            self._decisions.too_old(now.step)

    def _difference(self, held: Written, rows: int, staged: Sequence[Staged]) -> str:
        """Return the first message, by key and value, that only the topic or the newest step has; empty for others."""
        if held.step != self._ledger.whole():
            return ""
        parts = [steps[held.step] for steps in self._ledger.written.values() if held.step in steps]
        begins = {n: min(part.begins.get(n, 0) for part in parts) for part in parts for n in part.begins}
        ends = self._topics.ends_asked(self._topic)()
        ranges = [Range(self._topic, "", 0, number, begins.get(number, 0), end) for number, end in ends.items()]
        before = [
            _shown(message.key(), message.value())
            for _, some in messages_in(ranges, self._access, self._topic, committed=True)
            for message in some
        ]
        again = [
            _shown(key, value)
            for piece in read_pieces(rows, staged)
            for key, value in zip(piece.column("key").to_pylist(), piece.column("value").to_pylist(), strict=True)
        ]
        only_before, only_now = _without(before, again), _without(again, before)
        return difference_of_rows(next(iter(only_before), None), next(iter(only_now), None))

    def _write(self, records: Sequence[Written], rows: int, staged: Sequence[Staged], note: bytes) -> None:
        from boatlift.connectors.kafka.writer import WriteTask, worth_tasks
        from boatlift.connectors.kit.tasks import run_in_tasks, session_of_process

        self.writes()
        if worth_tasks(rows, len(records)) and (spark := session_of_process()) is not None:
            ends, self._ends = self._ends or self._topics.ends_asked(self._topic), None
            begun = tuple(_beginning(record, ends) for record in records)
            upserts = self.key is not None
            task = WriteTask(
                self._access, self._topic, self._ledger_topic.name, begun, rows, tuple(staged), upserts, note
            )
            results = run_in_tasks(spark, len(begun), task, f"the sink of topic {self._topic}")
            written: list[Record] = [_WRITTEN.decode(each) for each in results]
            for writer in self._writers:
                writer.end()  # a task has taken its id over
        else:
            parts = self.parts(records, rows, staged, note)

            def deliver(part: Part) -> list[Record]:
                return self._writers[part.place.number].deliver([part])

            if len(parts) == 1:
                written = deliver(*parts)
            else:
                with ThreadPoolExecutor(len(parts)) as pool:
                    written = [record for some in pool.map(deliver, parts) for record in some]
        self.wrote(written)


def _beginning(record: Written, ends: Callable[[], dict[int, int]]) -> Written:
    return msgspec.structs.replace(record, begins=ends())


def _shown(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    return {"key": _text(key), "value": _text(value)}


def _text(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return content.decode(errors="backslashreplace")


def _without(some: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    left = Counter(map(repr, others))
    lacking = []
    for one in sorted(some, key=repr):
        left[repr(one)] -= 1
        if left[repr(one)] < 0:
            lacking.append(one)
    return lacking
