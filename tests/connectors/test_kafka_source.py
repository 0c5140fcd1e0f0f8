"""The Kafka source against a real broker: the laws of sources; transactions, holes, lost and remade topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

import boatlift as bl
from boatlift.connectors.kafka import source
from boatlift.testing.kafka_broker import KafkaBroker
from connectors.kafka_cases import KafkaCase
from connectors.source_laws import SourceLaws, drain
from support.dying import DiesError, dying_at
from support.kafka import PATIENCE, new_topic, plain, send, transactional

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


class TestKafka(SourceLaws):
    case = KafkaCase

    @pytest.fixture(autouse=True)
    def _broker(self, kafka_broker: KafkaBroker) -> None:
        KafkaCase.broker = kafka_broker


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
    assert made.load_counted(spark, [position], [str(tmp_path)], ordinals=False).count() == 10
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
    while (following := made.next(cursor)) is None:
        pass
    assert [(r["start"], r["end"]) for r in following["ranges"]] == [(1, 4)]


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
    while (position := made.next(cursor)) is None:
        pass
    assert [(r["partition"], r["start"], r["end"]) for r in position["ranges"]] == [(1, 0, 1)]


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
    topic = new_topic(kafka_broker, 3)
    producer = Producer(plain(kafka_broker))
    for number in range(500):
        producer.produce(topic, b'{"k": "%d", "v": %d}' % (number % 7, number), b"%d" % number)
    assert producer.flush(PATIENCE) == 0
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
