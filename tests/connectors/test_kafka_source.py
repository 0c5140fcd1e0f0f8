"""The Kafka source against a real broker: the laws of sources; transactions, holes, lost and remade topics."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from concurrent.futures import Future
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ListOffsetsResultInfo,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

import boatlift as bl
from boatlift.connectors.kafka import source
from boatlift.connectors.kafka.access import access_to
from boatlift.connectors.kafka.topics import Topics
from boatlift.dataflow import Reading
from boatlift.spark.jobs.inputs import Readings
from boatlift.testing.kafka_broker import KafkaBroker
from connectors.kafka_cases import KafkaCase
from connectors.source_laws import SourceLaws, drain
from support.crash.dying import DiesError, dying_at
from support.kafka import (
    PATIENCE,
    USERS,
    AccessControl,
    delete_before,
    make_topic,
    new_topic,
    plain,
    secured,
    send,
    transactional,
)
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


class TestKafka(SourceLaws):
    case = KafkaCase

    @pytest.fixture(autouse=True)
    def _broker(self, kafka_broker: KafkaBroker) -> None:
        KafkaCase.broker = kafka_broker


def test_a_source_that_commits_at_a_group_can_be_copied(kafka_broker: KafkaBroker) -> None:
    made = source(kafka_broker.bootstrap, topic=new_topic(kafka_broker, 1), group="mine")
    assert deepcopy(made).next(made.start()) is None


def rows(spark: SparkSession, made: Any, position: Any) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(row) for row in made.load(spark, position).select("partition", "offset", "key", "value").collect()
    )


def test_rows_have_what_sparks_own_source_gives(kafka_broker: KafkaBroker, spark: SparkSession) -> None:
    topic = new_topic(kafka_broker, 2)
    producer = Producer(plain(kafka_broker))
    producer.produce(topic, b"v", b"k", partition=1, timestamp=1_700_000_000_123, headers=[("h", b"1"), ("h", None)])
    producer.produce(topic, None, None, partition=0, timestamp=1_700_000_000_456)
    assert producer.flush(PATIENCE) == 0
    made = source(kafka_broker.bootstrap, topic=topic, include_headers=True)
    position = made.next(made.start())
    assert position is not None
    found = made.load(spark, position).orderBy("partition")
    first, second = found.collect()
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (None, None, topic, 0, 0)
    assert (bytes(second.key), bytes(second.value), second.timestampType) == (b"k", b"v", 0)
    assert [(header.key, header.value) for header in second.headers] == [("h", b"1"), ("h", None)]
    assert first.headers in (None, [])
    stamps = found.selectExpr("unix_millis(timestamp) AS at").collect()
    assert [row["at"] for row in stamps] == [1_700_000_000_456, 1_700_000_000_123]
    assert found.drop("_position").schema.simpleString() == made.schema(spark).simpleString()


def test_of_transactions_only_what_was_committed_is_read_and_counted(
    kafka_broker: KafkaBroker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = new_topic(kafka_broker)
    for number, commit in enumerate([True, False, True, False]):
        producer = transactional(kafka_broker, f"{topic}-other")
        producer.begin_transaction()
        for row in range(5):
            producer.produce(topic, b"%d %d" % (number, row))
        assert producer.flush(PATIENCE) == 0  # or an abort would leave nothing behind
        producer.commit_transaction() if commit else producer.abort_transaction()
    made = source(kafka_broker.bootstrap, topic=topic)
    position = made.next(made.start())
    assert position is not None
    expected = [b"%d %d" % (number, row) for number in (0, 2) for row in range(5)]
    assert [bytes(value) for _, _, _, value in rows(spark, made, position)] == expected
    assert made.load_digested(spark, [position], [str(tmp_path)], ordinals=False).count() == 10
    reading = made.reading(str(tmp_path))
    assert reading is not None
    assert reading.rows == 10
    everything = source(kafka_broker.bootstrap, topic=topic, read_committed=False)
    whole = everything.next(everything.start())
    assert whole is not None
    assert len(rows(spark, everything, whole)) == 20


def test_a_transaction_that_is_open_holds_back_what_comes_after_it(kafka_broker: KafkaBroker) -> None:
    topic = new_topic(kafka_broker)
    producer = transactional(kafka_broker, f"{topic}-open")
    send(kafka_broker, topic, [b"before"])
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(PATIENCE) == 0
    send(kafka_broker, topic, [b"after"])
    made = source(kafka_broker.bootstrap, topic=topic)
    (position,), cursor = drain(made, made.start())
    assert [(r["start"], r["end"]) for r in position["ranges"]] == [(0, 1)]
    producer.commit_transaction()
    # Until the marker is written the end may stay where it was.
    following = until(lambda: made.next(cursor))
    assert [(r["start"], r["end"]) for r in following["ranges"]] == [(1, 4)]


def test_a_range_that_ends_with_rows_that_were_aborted_comes_to_its_end(
    kafka_broker: KafkaBroker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last row and the first open transaction there is nothing that a client would hand out."""
    topic = new_topic(kafka_broker)
    aborted, open_still = (transactional(kafka_broker, f"{topic}-{name}") for name in ("aborted", "open"))
    send(kafka_broker, topic, [b"before"])
    for producer, value in ((aborted, b"aborted"), (open_still, b"open")):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(PATIENCE) == 0
    aborted.abort_transaction()
    admin, whole = AdminClient(plain(kafka_broker)), TopicPartition(topic, 0)
    committed = {"isolation_level": IsolationLevel.READ_COMMITTED}
    # The call returns before the broker has written the marker of the end.
    until(lambda: admin.list_offsets({whole: OffsetSpec.latest()}, **committed)[whole].result(PATIENCE).offset == 2)
    made = source(kafka_broker.bootstrap, topic=topic)
    (position,), _ = drain(made, made.start())
    assert [(r["start"], r["end"]) for r in position["ranges"]] == [(0, 2)]
    assert [value for *_, value in rows(spark, made, position)] == [b"before"]
    open_still.abort_transaction()


def test_a_partition_that_is_added_is_taken_whole(kafka_broker: KafkaBroker) -> None:
    topic = new_topic(kafka_broker)
    send(kafka_broker, topic, [b"1", b"2"])
    made = source(kafka_broker.bootstrap, topic=topic, starting_offsets="latest")
    positions, cursor = drain(made, made.start())
    assert [(r["start"], r["end"]) for p in positions for r in p["ranges"]] == [(2, 2)], (
        "where it begins is on the record"
    )
    admin = AdminClient(plain(kafka_broker))
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(PATIENCE)
    producer = Producer(plain(kafka_broker) | {"topic.metadata.refresh.interval.ms": 100})
    producer.produce(topic, b"3", partition=1)
    assert producer.flush(PATIENCE) == 0
    position = until(lambda: made.next(cursor))
    assert [(r["partition"], r["start"], r["end"]) for r in position["ranges"]] == [(1, 0, 1)]


def test_a_message_is_announced_once_it_can_be_taken(kafka_broker: KafkaBroker) -> None:
    topic = new_topic(kafka_broker, 2)
    made = source(kafka_broker.bootstrap, topic=topic)
    told: list[float] = []
    end = made.announce_input(lambda: told.append(time.monotonic()))
    cursor = made.start()
    writer = transactional(kafka_broker, "announced")
    for turn in range(3):
        assert made.next(cursor) is None
        writer.begin_transaction()
        writer.produce(topic, b"row", partition=turn % 2)
        writer.flush(PATIENCE)
        assert made.next(cursor) is None, "the transaction is open"
        assert len(told) == turn
        writer.commit_transaction(PATIENCE)
        until(lambda turn=turn: len(told) == turn + 1)
        position = made.next(cursor)
        assert position is not None
        cursor = made.advance(cursor, position)
    end()
    assert made.next(cursor) is None
    send(kafka_broker, topic, [b"row"])
    assert len(told) == 3


def test_a_user_that_may_read_a_topic_needs_no_group(kafka_broker: KafkaBroker, spark: SparkSession) -> None:
    topic = new_topic(kafka_broker)
    access = AccessControl(kafka_broker)
    access.allow(ResourceType.TOPIC, topic, AclOperation.READ)
    settings = secured(kafka_broker, "writer", USERS["writer"])
    made = source(settings.pop("bootstrap.servers"), topic=topic, options=settings)
    told: list[None] = []
    end = made.announce_input(lambda: told.append(None))
    cursor = made.start()
    for turn in range(4):  # a reader is used again
        assert made.next(cursor) is None
        send(kafka_broker, topic, [b"row"])
        until(lambda turn=turn: len(told) > turn)
        position = made.next(cursor)
        assert position is not None
        assert rows(spark, made, position) == [(0, turn, None, b"row")]
        cursor = made.advance(cursor, position)
    end()
    access.deny(ResourceType.TOPIC, topic, AclOperation.ALL)
    with pytest.raises(bl.InvalidError, match=r"\[NOT_PERMITTED\]"):
        until(lambda: made.next(cursor))


def numbers_in(broker: KafkaBroker, count: int) -> str:
    """Make a topic of numbers, as `flow_of` takes them."""
    topic = new_topic(broker, 3)
    producer = Producer(plain(broker))
    for number in range(count):
        producer.produce(topic, b'{"k": "%d", "v": %d}' % (number % 7, number), b"%d" % number)
    assert producer.flush(PATIENCE) == 0
    return topic


def flow_of(broker: KafkaBroker, topic: str) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("from_kafka")
    made = source(broker.bootstrap, topic=topic, max_offsets_per_step=50, format="json", schema="k STRING, v BIGINT")
    numbers = flow.source("numbers", made)
    sums = numbers.group_by("k").agg("sums", F.sum("v").alias("total"), policy=bl.Lazy(every=3))
    sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    numbers.sink("copy", bl.parquet("copy"))
    return flow


def test_a_crash_reads_the_same_again_and_proves_it(
    kafka_broker: KafkaBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = numbers_in(kafka_broker, 500)
    with pytest.raises(DiesError):
        bl.run(
            flow_of(kafka_broker, topic),
            "store",
            available_now=True,
            spark=spark,
            on_progress=dying_at("commit", "out", time=5),
        )
    bl.run(flow_of(kafka_broker, topic), "store", available_now=True, spark=spark)
    copied = [row for path in Path("copy").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted(row["v"] for row in copied) == list(range(500))


def make_again(broker: KafkaBroker, topic: str) -> None:
    admin = AdminClient(plain(broker))
    admin.delete_topics([topic])[topic].result(PATIENCE)
    until(lambda: topic not in admin.list_topics(timeout=PATIENCE).topics)
    make_topic(broker, topic)


def test_offsets_deleted_before_they_were_taken_are_an_error_or_recorded_as_skipped(
    kafka_broker: KafkaBroker, spark: SparkSession
) -> None:
    topic = new_topic(kafka_broker)
    send(kafka_broker, topic, [b"%d" % row for row in range(4)])
    made = source(kafka_broker.bootstrap, topic=topic, max_offsets_per_step=2)
    position = made.next(made.start())
    assert position is not None
    cursor = made.advance(made.start(), position)
    delete_before(kafka_broker, topic, 3)
    strict = source(kafka_broker.bootstrap, topic=topic)
    with pytest.raises(bl.DataError, match=r"\[INPUT_MISSING\] offsets 2 to 2 of topic .*fail_on_data_loss=False"):
        strict.next(cursor)
    with pytest.raises(bl.DataError, match=r"\[INPUT_MISSING\] offsets 0 to 1"):
        source(kafka_broker.bootstrap, topic=topic).verify(position)
    lenient = source(kafka_broker.bootstrap, topic=topic, fail_on_data_loss=False)
    following = lenient.next(cursor)
    assert following is not None
    assert [(r["start"], r["end"], r["skipped"]) for r in following["ranges"]] == [(3, 4, 1)]
    assert [value for *_, value in rows(spark, lenient, following)] == [b"3"]


def test_offsets_deleted_while_they_are_read_are_an_error(kafka_broker: KafkaBroker, spark: SparkSession) -> None:
    topic = new_topic(kafka_broker)
    send(kafka_broker, topic, [b"%d" % row for row in range(4)])
    made = source(kafka_broker.bootstrap, topic=topic)
    position = made.next(made.start())
    assert position is not None
    delete_before(kafka_broker, topic, 2)
    with pytest.raises(Exception, match=r"\[INPUT_MISSING\] offsets 0 to 3 of topic"):
        made.load(spark, position).collect()


def test_a_topic_that_was_made_again_is_not_taken_for_the_one_that_it_was(kafka_broker: KafkaBroker) -> None:
    topic = new_topic(kafka_broker)
    send(kafka_broker, topic, [b"1", b"2"])
    made = source(kafka_broker.bootstrap, topic=topic)
    (position,), cursor = drain(made, made.start())
    make_again(kafka_broker, topic)
    send(kafka_broker, topic, [b"3", b"4", b"5"])
    successor = source(kafka_broker.bootstrap, topic=topic)
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\] topic .* was deleted and made again"):
        successor.next(cursor)
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\] topic .* was deleted and made again"):
        successor.verify(position)


def test_rows_that_were_compacted_away_are_missed_on_replay(
    kafka_broker: KafkaBroker, spark: SparkSession, tmp_path: Path
) -> None:
    """As after compaction: only counts and digests show it."""
    topic = new_topic(kafka_broker)
    send(kafka_broker, topic, [b"%d" % row for row in range(100)])
    made = source(kafka_broker.bootstrap, topic=topic)
    (position,), _ = drain(made, made.start())
    readings = Readings(tmp_path, {("rows", 0): Reading(101, "what it was before one was compacted away")})
    folder = readings.folder("unit", "rows", 0)
    assert made.load_digested(spark, [position], [folder], ordinals=False).count() == 100
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\] step 0 of rows had 101 rows .* and has 100 "):
        readings.compare("unit", "rows", 0, made)


def test_the_same_rows_have_the_same_digest_however_they_are_read(
    kafka_broker: KafkaBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka_broker)
    producer = Producer(plain(kafka_broker) | {"queue.buffering.max.messages": 1_000_000})
    for row in range(200_000):
        producer.produce(topic, b"%d" % row)
    assert producer.flush(PATIENCE) == 0
    made = source(kafka_broker.bootstrap, topic=topic)
    (position,), _ = drain(made, made.start())
    found = []
    for number, task_offsets in enumerate([10**9, 1000]):
        monkeypatch.setitem(inspect.unwrap(source).__globals__, "TASK_OFFSETS", task_offsets)
        folder = tmp_path / str(number)
        assert made.load_digested(spark, [position], [str(folder)], ordinals=False).count() == 200_000
        assert len(list(folder.iterdir())) == number + 1, "so many tasks read it"
        found.append(made.reading(str(folder)))
    assert found[0] == found[1] is not None


def test_a_broker_that_is_killed_while_it_is_read_loses_nothing(
    kafka_broker: KafkaBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = numbers_in(kafka_broker, 400)
    killed = []

    def kill(progress: bl.Progress) -> None:
        if progress.what == "commit" and progress.processor == "copy" and progress.time in (1, 4):
            kafka_broker.kill()
            kafka_broker.restart()
            killed.append(progress.time)

    bl.run(flow_of(kafka_broker, topic), "store", available_now=True, spark=spark, on_progress=kill)
    assert killed == [1, 4]
    copied = [row for path in Path("copy").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted(row["v"] for row in copied) == list(range(400))


QUESTIONS: dict[str, Callable[[Topics, str], Any]] = {
    "partitions": lambda topics, topic: topics.found(anew=True),
    "ends": lambda topics, topic: topics.ends([(topic, 0), (topic, 1)]),
    "ends asked before": lambda topics, topic: topics.ends_asked(topic)(),
    "begins": lambda topics, topic: topics.begins([(topic, 0), (topic, 1)]),
    "first at a time": lambda topics, topic: topics.at([(topic, 0), (topic, 1)], datetime(2000, 1, 1, tzinfo=UTC)),
    "none so late": lambda topics, topic: topics.at([(topic, 0), (topic, 1)], datetime(2100, 1, 1, tzinfo=UTC)),
    "any row": lambda topics, topic: topics.has_rows(topic),
}


@pytest.mark.parametrize(
    ("question", "offset", "rows"),
    [
        *((question, -1001, 1) for question in QUESTIONS),
        *((question, -1, 1) for question in ("partitions", "ends", "ends asked before", "begins")),
        ("any row", -1001, 0),
    ],
)
def test_a_negative_offset_without_an_error_is_no_answer(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, question: str, offset: int, rows: int
) -> None:
    """librdkafka gives -1001 if the request to a partition's leader failed; -1 says that no row is so late."""
    topic = new_topic(kafka_broker, 2)
    producer = Producer(plain(kafka_broker))
    for partition in [0, 0, 1] * rows:
        producer.produce(topic, b"row", partition=partition)
    assert producer.flush(PATIENCE) == 0
    topics = Topics(access_to(kafka_broker.bootstrap, None), (topic,), None, committed=True)
    expected = QUESTIONS[question](topics, topic)
    ask, unanswered = AdminClient.list_offsets, []

    def no_answer_at_first(admin: AdminClient, asked: Any, **options: Any) -> Any:
        answers = dict(ask(admin, asked, **options))
        if not unanswered:
            lost = next(here for here in answers if here.partition == 1)
            unanswered.append(answers[lost])
            answers[lost] = Future()
            answers[lost].set_result(ListOffsetsResultInfo(offset, -1, -1))
        return answers

    monkeypatch.setattr(AdminClient, "list_offsets", no_answer_at_first)
    assert QUESTIONS[question](topics, topic) == expected
    assert len(unanswered) == 1


def test_what_no_recovery_can_need_is_committed_at_the_group(
    kafka_broker: KafkaBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = new_topic(kafka_broker)
    send(kafka_broker, topic, [b"%d" % row for row in range(50)])
    flow = bl.Dataflow("lagging")
    made = source(kafka_broker.bootstrap, topic=topic, max_offsets_per_step=10, group=f"{topic}-group")
    flow.source("rows", made).sink("out", bl.parquet("out"))
    bl.run(flow, "store", available_now=True, spark=spark)
    admin = AdminClient(plain(kafka_broker))
    asked = [ConsumerGroupTopicPartitions(f"{topic}-group", [TopicPartition(topic, 0)])]
    (answer,) = admin.list_consumer_group_offsets(asked).values()
    deadline = time.monotonic() + PATIENCE  # it is committed in the background
    while (committed := answer.result(PATIENCE).topic_partitions)[0].offset != 50:
        assert time.monotonic() < deadline, committed
        (answer,) = admin.list_consumer_group_offsets(asked).values()


def test_a_value_that_does_not_fit_is_refused_by_name(
    kafka_broker: KafkaBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = new_topic(kafka_broker)
    send(kafka_broker, topic, [b'{"k": "a", "v": 1}', b"poison"])
    with pytest.raises(
        bl.DataError, match=rf"\[BAD_ROW\] partition 0 of topic {topic} has at offset 1 a value that does not fit"
    ):
        bl.run(flow_of(kafka_broker, topic), "store", available_now=True, spark=spark)


def test_where_to_begin_and_to_end_can_be_chosen(kafka_broker: KafkaBroker) -> None:
    topic = new_topic(kafka_broker)
    producer = Producer(plain(kafka_broker))
    for row in range(10):
        producer.produce(topic, b"%d" % row, timestamp=1_700_000_000_000 + row * 1000)
    assert producer.flush(PATIENCE) == 0

    def taken(**options: Any) -> list[tuple[int, int]]:
        made = source(kafka_broker.bootstrap, topic=topic, **options)
        positions, _ = drain(made, made.start())
        return [(each["start"], each["end"]) for position in positions for each in position["ranges"]]

    at = datetime.fromtimestamp(1_700_000_004, UTC)
    assert taken() == [(0, 10)]
    assert taken(max_offsets_per_step=4) == [(0, 4), (4, 8), (8, 10)]
    assert taken(starting_offsets="latest") == [(10, 10)]
    assert taken(starting_offsets=at) == [(4, 10)]
    assert taken(ending_offsets=at) == [(0, 4)]
    assert taken(starting_offsets={topic: {0: 7}}) == [(7, 10)]
    assert taken(starting_offsets={topic: {0: 7}}, ending_offsets={topic: {0: 9}}) == [(7, 9)]


def test_topics_that_match_are_found_as_they_come(kafka_broker: KafkaBroker) -> None:
    first = new_topic(kafka_broker)
    send(kafka_broker, first, [b"1"])
    made = source(kafka_broker.bootstrap, pattern=f"{first}.*", starting_offsets="latest")
    positions, cursor = drain(made, made.start())
    assert [(r["topic"], r["start"], r["end"]) for p in positions for r in p["ranges"]] == [(first, 1, 1)]
    make_topic(kafka_broker, f"{first}-2")
    send(kafka_broker, f"{first}-2", [b"2"])
    position = until(lambda: made.next(cursor))
    assert [(r["topic"], r["number"], r["start"], r["end"]) for r in position["ranges"]] == [(f"{first}-2", 1, 0, 1)]


def test_missing_topics_and_permissions_are_errors(kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    from boatlift.connectors.kafka import topics

    monkeypatch.setattr(topics, "TIMEOUT", 3.0)
    made = source(kafka_broker.bootstrap, topic="never-made")
    with pytest.raises(bl.InvalidError, match=r"\[NO_INPUT\].*never-made"):
        made.next(made.start())
    with pytest.raises(bl.InvalidError, match=r"\[NO_INPUT\].*never-made"):
        made.capabilities.preflight()
    made = source("127.0.0.1:9", topic="t")
    monkeypatch.setattr(topics, "SOON", 0.5)
    made.capabilities.preflight()  # the run waits for a cluster that does not answer
    with pytest.raises(bl.UnavailableError, match=r"\[INPUT_UNAVAILABLE\].*127\.0\.0\.1:9"):
        made.next(made.start())
    settings = secured(kafka_broker, "writer", "wrong horse")
    servers = settings.pop("bootstrap.servers")
    made = source(servers, topic="t", options=settings)
    with pytest.raises(bl.InvalidError, match=r"\[NOT_ADMITTED\]") as refused:
        made.next(made.start())
    assert "wrong horse" not in str(refused.value) + repr(made._access)
    for wrong in (
        {},
        {"topic": "t", "pattern": "t"},
        {"topic": ""},
        {"pattern": "("},
        {"topic": "t", "format": "avro"},
        {"topic": "t", "format": "json"},
        {"topic": "t", "schema": "a INT"},
        {"topic": "t", "max_offsets_per_step": 0},
        {"topic": "t", "starting_offsets": "lastest"},
        {"topic": "t", "ending_offsets": "latest"},
        {"topic": "t", "options": {"sasl.pasword": "secret"}},
        {"topic": "t", "options": {"kafka.group.id": "mine"}},
    ):
        with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
            source(kafka_broker.bootstrap, **wrong)  # type: ignore[arg-type]
