"""Hazards of a real broker and of tasks: slow transactions end, topics are compacted, tasks die between two commits."""

from __future__ import annotations

import gc
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

import boatlift as bl
from boatlift.connectors.kafka import sink, source, writer
from boatlift.connectors.kafka.access import ADMINS, Access
from boatlift.connectors.kafka.topics import Topics
from boatlift.connectors.kafka.writer import WriteTask
from boatlift.dataflow.contracts import Outcome
from boatlift.spark.jobs.inputs import Readings
from boatlift.testing.kafka_broker import KafkaBroker
from connectors.conformance import context, put, rows_of
from connectors.source_laws import drain
from support.kafka import PATIENCE, make_topic, messages_of, new_topic, plain, values_of
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.connectors.kafka.ledger import Written

pytestmark = pytest.mark.kafka


def test_a_transaction_that_took_too_long_is_written_again(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    topic = new_topic(kafka_broker, 3)
    made = sink(kafka_broker.bootstrap, topic, rows="changelog", key="k", options={"transaction.timeout.ms": 2000})
    slept = []

    def sleeps(moment: str) -> None:
        if moment == "written" and not slept and (there := values_of(kafka_broker, topic, committed=False)):
            slept.append(len(there))
            assert messages_of(kafka_broker, topic) == [], "which waits as long as it is open"

    made.announce(sleeps)
    made.open(context())
    for step in range(3):
        assert put(made, tmp_path / "out", step) is Outcome.APPENDED
    made.close()
    assert slept == [len(rows_of(0))]
    found = Counter(json.loads(value or b"")["name"] for value in values_of(kafka_broker, topic))
    assert found == Counter(row[1] for step in range(3) for row in rows_of(step))
    assert len(values_of(kafka_broker, topic, committed=False)) >= found.total() + slept[0], "aborted by the broker"


@pytest.fixture
def compacted(kafka_broker: KafkaBroker) -> str:
    """A topic of which the broker keeps the newest row a key, as soon as it comes to it."""
    topic = f"{new_topic(kafka_broker)}-compacted"
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "200",
    }
    return make_topic(kafka_broker, topic, config=config)


def keep_sending(broker: KafkaBroker, topic: str, first: int) -> None:
    """Sends a hundred rows under ten keys."""
    producer = Producer(plain(broker) | {"linger.ms": 100})  # all in one request, before anything is compacted
    for row in range(first, first + 100):
        producer.produce(topic, b"%d" % row, b"%d" % (row % 10))
    assert producer.flush(PATIENCE) == 0


def test_of_a_compacted_topic_what_is_left_is_read_and_what_a_step_had_is_missed(
    kafka_broker: KafkaBroker, compacted: str, spark: SparkSession, tmp_path: Path
) -> None:
    keep_sending(kafka_broker, compacted, 0)
    made = source(kafka_broker.bootstrap, topic=compacted)
    (position,), _ = drain(made, made.start())
    readings = Readings(tmp_path, {})
    folder = readings.folder("unit", "rows", 0)
    count = made.load_digested(spark, [position], [folder], ordinals=False).count()
    readings.compare("unit", "rows", 0, made)
    assert count == 100

    def left() -> bool:
        keep_sending(kafka_broker, compacted, 100)  # a segment that is written to is not compacted
        return len([m for m in messages_of(kafka_broker, compacted) if (m.offset() or 0) < 100]) < 100

    until(left)
    folder = readings.folder("unit", "rows", 0)
    again = made.load_digested(spark, [position], [folder], ordinals=False).count()
    assert again < 100, "a range whose end is gone comes to its end"
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\] step 0 of rows had 100 rows .* and has \d+ "):
        readings.compare("unit", "rows", 0, made)

    late = source(kafka_broker.bootstrap, topic=compacted)
    positions, _ = drain(late, late.start())
    rows = [row.value for each in positions for row in late.load(spark, each).select("value").collect()]
    newest = {int(value) % 10: int(value) for value in rows}
    assert newest == {int(value or 0) % 10: int(value or 0) for value in values_of(kafka_broker, compacted)}
    assert len(newest) == 10


@pytest.mark.parametrize("moment", ["written", "committed"])
def test_a_task_that_is_killed_beside_a_commit_writes_its_part_once(
    kafka_broker: KafkaBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    topic = new_topic(kafka_broker, 3)
    mark = tmp_path / "killed"

    class Dying(WriteTask):
        """The first to come to the moment dies there."""

        def run(self, record: Written) -> Written:
            from boatlift.connectors.kafka.writer import Writer

            def dies(told: str) -> None:
                if told == moment and not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

            write = Writer.write

            def watched(writer: Any, *given: Any) -> Any:
                writer._at = dies
                return write(writer, *given)

            Writer.write = watched  # type: ignore[method-assign]
            try:
                return WriteTask.run(self, record)
            finally:
                Writer.write = write  # type: ignore[method-assign]

    monkeypatch.setattr(writer, "ROWS_FOR_TASKS", 1)
    monkeypatch.setattr(writer, "WriteTask", Dying)
    made = sink(kafka_broker.bootstrap, topic, rows="changelog", key="k", writers=2)
    made.open(context())
    for step in range(2):
        assert put(made, tmp_path / "out", step) is Outcome.APPENDED
    made.close()
    assert mark.exists()
    found = Counter(json.loads(value or b"")["name"] for value in values_of(kafka_broker, topic))
    assert found == Counter(row[1] for step in range(2) for row in rows_of(step))


def test_a_request_is_answered_although_another_thread_replaces_the_client(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka_broker, 2)
    topics = Topics(Access(kafka_broker.bootstrap, {"log_level": 0}), (topic,), None, committed=False)
    topics.found()
    kafka_broker.pause()
    try:
        ends = topics.ends_asked(topic)  # on its way when its client is replaced
        ADMINS.drop(topics.access.admin())
        gc.collect()
    finally:
        kafka_broker.resume()
    monkeypatch.setattr(topics, "ends", lambda _: pytest.fail("the request was lost, and made again after 35 seconds"))
    assert ends() == {0: 0, 1: 0}


def test_a_client_is_replaced_once_though_several_threads_hear_that_its_knowledge_is_old(
    kafka_broker: KafkaBroker,
) -> None:
    access = Access(kafka_broker.bootstrap, {"log_level": 0})
    old = access.admin()
    ADMINS.drop(old)
    new = access.admin()
    ADMINS.drop(old)
    assert old is not new is access.admin()
