"""What a topic holds is read back: committed messages, the newest of each key, and what is there of a step in part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

import boatlift as bl
from boatlift.connectors.kafka import reading_back, sink
from boatlift.connectors.kafka.writer import Writer
from boatlift.dataflow.contracts import Committed, Outcome, SinkContext
from boatlift.errors import BoatliftError
from boatlift.tasks.sealed_errors import TaskFailedError, unsealing
from boatlift.testing.kafka_broker import KafkaBroker
from connectors.conformance import SCHEMA, STORE, Row, batch_of, context, ordered, rows_of, stage, visible
from support.kafka import PATIENCE, delete_before, make_topic, new_topic, plain, transactional

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SINKS: dict[str, dict[str, Any]] = {
    "upsert": {"rows": "upsert", "key": "k", "key_format": "json"},
    "changelog": {"rows": "changelog", "key": "k", "key_format": "json"},
}
NEW_ROWS = pa.schema(list(SCHEMA)[:3])


def made(broker: KafkaBroker, topic: str, kind: str, **options: Any) -> Any:
    return sink(broker.bootstrap, topic, **SINKS[kind], **options)


def held(made: Any, spark: SparkSession) -> list[Row]:
    rows = made.capabilities.reads_back.held(spark)
    return [] if rows is None else ordered(map(tuple, rows.select("k", "name", "value", "_weight").collect()))


def expected(made: Any, steps: int) -> list[Row]:
    return ordered((*row[:3], row[3] if len(row) > 3 else 1) for row in visible(made, steps))


def put(made: Any, folder: Path, step: int) -> Any:
    return made.commit(step, len(rows_of(step)), f"digest {step}", stage(made, folder, step))


def refused(made: Any, spark: SparkSession) -> BoatliftError:
    with pytest.raises((BoatliftError, TaskFailedError)) as raised, unsealing(spark.sparkContext):
        held(made, spark)
    error = raised.value
    found = error.error if isinstance(error, TaskFailedError) else error
    assert isinstance(found, BoatliftError)
    assert found.condition == "SINK_NOT_READABLE"
    return found


@pytest.mark.parametrize("kind", SINKS)
@pytest.mark.parametrize("writers", [1, 3])
def test_what_readers_see_is_held(
    kafka_broker: KafkaBroker, topic: str, kind: str, writers: int, tmp_path: Path, spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(reading_back, "OFFSETS_OF_A_TASK", 20)
    one = made(kafka_broker, topic, kind, writers=writers)
    one.open(context())
    assert one.capabilities.reads_back.held(spark) is None
    for step in range(4):
        put(one, tmp_path, step)
    other = transactional(kafka_broker, f"other-{topic}")
    other.begin_transaction()
    other.produce(topic, b'{"k":1,"name":"never committed","value":1.0}', b"1", headers=[("weight", b"1")])
    other.flush(PATIENCE)
    other.abort_transaction(PATIENCE)
    assert held(one, spark) == expected(one, 4)
    later = made(kafka_broker, topic, kind)
    assert later.open(context(2)) == Committed(3, len(rows_of(3)), "digest 3")
    assert held(later, spark) == expected(later, 4)
    later.close()


def test_rows_that_never_change_are_held_each(
    kafka_broker: KafkaBroker, topic: str, tmp_path: Path, spark: SparkSession
) -> None:
    appended = sink(kafka_broker.bootstrap, topic)
    appended.open(SinkContext("flow", "out", STORE, 1, NEW_ROWS, changes=False))
    rows: list[Row] = [(1, "x", 0.5), (1, "x", 0.5), (None, None, None), (2, "é", float("inf"))]
    staged = appended.stager().stage(str(tmp_path), "rows", 0, iter([batch_of(rows, NEW_ROWS)]))
    appended.commit(0, len(rows), "digest", [staged])
    assert held(appended, spark) == ordered((*row, 1) for row in rows)


def test_of_a_compacted_topic_the_upserts_are_enough_and_changes_are_not(
    kafka_broker: KafkaBroker, tmp_path: Path, spark: SparkSession
) -> None:
    compacts = {"cleanup.policy": "compact"}
    for kind in SINKS:
        topic = make_topic(kafka_broker, new_topic(kafka_broker) + "-compacted", 2, compacts)
        one = made(kafka_broker, topic, kind)
        one.open(context())
        put(one, tmp_path, 0)
        if kind == "upsert":
            assert held(one, spark) == expected(one, 1)
        else:
            assert f"topic {topic} is compacted" in refused(one, spark).message


@pytest.mark.parametrize("kind", SINKS)
def test_a_topic_whose_beginning_is_gone_is_refused_with_its_offsets(
    kafka_broker: KafkaBroker, kind: str, tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic(kafka_broker)
    one = made(kafka_broker, topic, kind)
    one.open(context())
    for step in range(2):
        put(one, tmp_path, step)
    delete_before(kafka_broker, topic, 10)
    assert f"offsets 0 to 9 of topic {topic}, partition 0, were deleted" in refused(one, spark).message


def test_a_key_in_two_partitions_is_refused(kafka_broker: KafkaBroker, tmp_path: Path, spark: SparkSession) -> None:
    topic = new_topic(kafka_broker)
    one = made(kafka_broker, topic, "upsert")
    one.open(context())
    put(one, tmp_path, 0)
    admin = AdminClient(plain(kafka_broker))
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(PATIENCE)
    later = made(kafka_broker, topic, "upsert")
    later.open(context(2))
    assert held(later, spark) == expected(later, 1)
    rows: list[Row] = [(key, "newer", 1.0, 1) for key in range(40)]
    later.commit(1, len(rows), "digest", stage(later, tmp_path, 1, rows))
    assert "because partitions were added" in refused(later, spark).message


def test_a_message_of_another_program_is_refused(
    kafka_broker: KafkaBroker, topic: str, tmp_path: Path, spark: SparkSession
) -> None:
    one = made(kafka_broker, topic, "changelog")
    one.open(context())
    put(one, tmp_path, 0)
    producer = Producer(plain(kafka_broker))
    producer.produce(topic, b"no JSON", b"mine")
    assert producer.flush(PATIENCE) == 0
    assert "has a message, with key b'mine'," in refused(one, spark).message


@pytest.mark.parametrize("kind", SINKS)
@pytest.mark.parametrize("first", [0, 1])
def test_what_is_there_of_a_step_counts_and_the_step_after_it_comes_next(
    kafka_broker: KafkaBroker, topic: str, kind: str, first: int, tmp_path: Path, spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    one = made(kafka_broker, topic, kind, writers=3)
    one.open(context())
    for step in range(first):
        put(one, tmp_path, step)
    deliver = Writer.deliver

    def dies(writer: Writer, *given: Any) -> Any:
        if writer.place.number == 1:
            raise KeyboardInterrupt
        return deliver(writer, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "deliver", dies)
        with pytest.raises(KeyboardInterrupt):
            put(one, tmp_path, first)
    two = made(kafka_broker, topic, kind, writers=2)
    newest = two.open(context(2))
    assert (-1 if newest is None else newest.step) == first - 1
    assert two.capabilities.begun() == first
    part = held(two, spark)
    assert part not in (expected(two, first), expected(two, first + 1))
    with pytest.raises(bl.DataError, match=r"\[SINK_GAP\]"):
        two.commit(first + 2, 0, "none", [])
    with pytest.raises(bl.DivergedError, match=r"\[DIVERGED\]"):
        two.commit(first, 0, "none", [])
    assert two.commit(first + 1, 0, "none", []) is Outcome.APPENDED
    assert held(two, spark) == part
    three = made(kafka_broker, topic, kind)
    assert three.open(context(3)) == Committed(first + 1, 0, "none")
    assert three.capabilities.begun() == first + 1
    assert three.commit(first + 1, 0, "none", []) is Outcome.DROPPED
    assert put(three, tmp_path, first + 2) is Outcome.APPENDED
    assert [*three.verify()] == []
    three.close()
