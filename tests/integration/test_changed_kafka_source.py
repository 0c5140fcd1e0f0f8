"""A program behind a Kafka source changes: its past is read again, from Kafka to Kafka; or is refused if it is gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boatlift as bl
from boatlift.connectors.kafka.topics import Topics
from support.changes import changes, evolve, run
from support.kafka import delete_before, make_topic, messages_of, new_topic, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark


@pytest.fixture
def given(kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic with rows from offset 10 on, in three partitions."""
    monkeypatch.chdir(tmp_path)
    topic = new_topic(kafka_broker, 3)
    send_rows(kafka_broker, topic, 0, 60)
    delete_before(kafka_broker, topic, 10)
    return topic


def send_rows(broker: KafkaBroker, topic: str, begin: int, end: int) -> None:
    send(broker, topic, (json.dumps({"k": n % 5, "v": n}).encode() for n in range(begin, end)))


def sums(broker: KafkaBroker, given: str, out: str, *, factor: int = 1) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    source = bl.kafka.source(
        broker.bootstrap, topic=given, format="json", schema="k INT, v LONG", max_offsets_per_step=20
    )
    scaled = flow.source("rows", source).transform("scaled", lambda df: df.withColumn("v", F.col("v") * factor))
    totals = scaled.group_by("k").agg("totals", F.sum("v").alias("total"), F.count("*").alias("n"))
    totals.sink("answers", bl.kafka.sink(broker.bootstrap, out, key="k", rows="upsert"))
    totals.sink("history", bl.parquet("history"))
    return flow


def answers(broker: KafkaBroker, topic: str) -> dict[bytes | None, bytes | None]:
    return {message.key(): message.value() for message in messages_of(broker, topic)}


def test_a_changed_aggregate_from_kafka_to_kafka(
    kafka_broker: KafkaBroker, given: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out, fresh = new_topic(kafka_broker), new_topic(kafka_broker)
    run(sums(kafka_broker, given, out), spark)
    send_rows(kafka_broker, given, 60, 100)
    run(sums(kafka_broker, given, out), spark)
    evolve(sums(kafka_broker, given, out), spark, all="fill")
    assert len(answers(kafka_broker, out)) == 5
    before = len(messages_of(kafka_broker, out))
    evolve(sums(kafka_broker, given, out, factor=3), spark)
    assert len(messages_of(kafka_broker, out)) == before + 5
    send_rows(kafka_broker, given, 100, 130)
    run(sums(kafka_broker, given, out, factor=3), spark)
    history = changes("history")
    (tmp_path / "fresh").mkdir()
    monkeypatch.chdir(tmp_path / "fresh")
    run(sums(kafka_broker, given, fresh, factor=3), spark)
    assert answers(kafka_broker, out) == answers(kafka_broker, fresh)
    assert history == changes("history")


def test_a_past_that_retention_has_removed_is_refused_and_the_old_program_goes_on(
    kafka_broker: KafkaBroker, given: str, spark: SparkSession
) -> None:
    out = new_topic(kafka_broker)
    run(sums(kafka_broker, given, out), spark)
    before = answers(kafka_broker, out)
    delete_before(kafka_broker, given, 12)
    with pytest.raises(
        bl.DataError,
        match=rf"\[HISTORY_GONE\] offsets 10 to 11 of topic {given}, partition 0, were deleted, and all rows since",
    ):
        evolve(sums(kafka_broker, given, out, factor=3), spark)
    run(sums(kafka_broker, given, out), spark)
    assert answers(kafka_broker, out) == before
    evolve(sums(kafka_broker, given, out, factor=3), spark, scaled="now")


def test_a_past_that_goes_while_it_is_read_is_refused(
    kafka_broker: KafkaBroker, given: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = new_topic(kafka_broker)
    run(sums(kafka_broker, given, out), spark)
    verify, calls = Topics.verify_past, list[int]()

    def then_it_goes(topics: Topics, ranges: object) -> None:
        verify(topics, ranges)  # type: ignore[arg-type]
        calls.append(1)
        if len(calls) == 1:
            delete_before(kafka_broker, given, 12)

    monkeypatch.setattr(Topics, "verify_past", then_it_goes)
    with pytest.raises(bl.DataError, match=rf"\[HISTORY_GONE\] offsets 10 to 11 of topic {given}, partition 0"):
        evolve(sums(kafka_broker, given, out, factor=3), spark)


def test_the_past_of_a_compacted_topic_is_refused(
    kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.chdir(tmp_path)
    given = make_topic(kafka_broker, new_topic(kafka_broker) + "-late", config={"cleanup.policy": "delete"})
    send_rows(kafka_broker, given, 0, 10)
    out = new_topic(kafka_broker)
    run(sums(kafka_broker, given, out), spark)
    compact(kafka_broker, given)
    with pytest.raises(bl.DataError, match=rf"\[HISTORY_GONE\] topic {given} is compacted"):
        evolve(sums(kafka_broker, given, out, factor=3), spark)


def compact(broker: KafkaBroker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    from support.kafka import PATIENCE, plain

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entry = ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    admin = AdminClient(plain(broker))
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE)
