"""Values of Kafka in JSON: those that do not fit stop the dataflow, or are dead letters."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import boatlift as bl
from boatlift.connectors.kafka import source
from boatlift.testing.kafka_broker import KafkaBroker
from connectors.source_laws import drain
from support.crash.dying import DiesError, dying_at
from support.kafka import PATIENCE, new_topic, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


GOOD = (b'{"id": 1}', b'{"id": 2, "more": []}')
BAD = {
    b"{": "it is no single JSON value (Expecting property name enclosed in double quotes at column 2): '{'",
    b'{"id": "x"}': 'column id is "x", which is no int',
    b'{"id": 99999999999}': "column id is 99999999999, which is no int",
    b"5": "it is no object: '5'",
    b'{"id": 1} junk': "it is no single JSON value (Extra data at column 11): '{\"id\": 1} junk'",
    b'{"id": 1}{"id": 2}': 'it is no single JSON value (Extra data at column 10): \'{"id": 1}{"id": 2}\'',
    b'{"id": 1, "id": 2}': "the key 'id' is given twice",
    b'{"id": 1, "text": "\\ud800"}': "it has half of a surrogate pair",
    b'{"id": 1.0}': "column id is 1.0, which is no int",
    b'{"id": 1}]} junk': "it is no single JSON value (Extra data at column 10): '{\"id\": 1}]} junk'",
    b'{"id": 1, "text": "\xff"}': "it is not UTF-8",
    b"": "it is no single JSON value (Expecting value at column 1): ''",
    b" ": "it is no single JSON value (Expecting value at column 2): ' '",
    b'{"text": "no id"}': "column id is NULL, and the schema has it as NOT NULL",
    None: "it has no value",
}
"""A value to the reason why it does not fit `ROWS`."""

ROWS = "id INT NOT NULL, text STRING"


@pytest.mark.parametrize("value", BAD, ids=repr)
@pytest.mark.parametrize("use", ["an unused column", "a filter that drops the row", "a count"])
def test_a_value_that_does_not_fit_stops(
    kafka_broker: KafkaBroker, spark: SparkSession, value: bytes | None, use: str
) -> None:
    topic = new_topic(kafka_broker)
    producer = Producer(plain(kafka_broker))
    for each in (GOOD[0], value):
        producer.produce(topic, each)
    assert producer.flush(PATIENCE) == 0
    made = source(kafka_broker.bootstrap, topic=topic, format="json", schema=ROWS)
    (position,), _ = drain(made, made.start())
    rows = made.load(spark, position)
    used = {
        "an unused column": rows.select("text"),
        "a filter that drops the row": rows.where("id > 5"),
        "a count": rows.groupBy().count(),
    }
    with pytest.raises(Exception, match="BAD_ROW") as caught:
        used[use].collect()
    explained = made.diagnose(position, str(caught.value))
    assert f"partition 0 of topic {topic} has at offset 1 a value that does not fit" in str(explained)
    assert made.diagnose(position, f"[CAST_INVALID_INPUT] The value '{explained}' cannot be cast to INT") is None


def test_a_time_beyond_the_range_is_no_other_time(kafka_broker: KafkaBroker, spark: SparkSession) -> None:
    """A producer took nanoseconds for milliseconds."""
    topic, name = new_topic(kafka_broker), "message.timestamp.after.max.ms"
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    resource.add_incremental_config(ConfigEntry(name, str(2**63 - 1), incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient(plain(kafka_broker))  # kept until it has answered
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE)
    producer = Producer(plain(kafka_broker))
    good, bad = (2**63 - 1) // 1000, 1_795_689_479_121_000_000
    for number, stamp in enumerate((good, bad, 1)):
        producer.produce(topic, b'{"id": %d}' % number, timestamp=stamp)
    assert producer.flush(PATIENCE) == 0
    raw = source(kafka_broker.bootstrap, topic=topic)
    (position,), _ = drain(raw, raw.start())
    with pytest.raises(Exception, match=rf"\[BAD_ROW\] partition 0 of topic {topic} has at offset 1 the time {bad} ms"):
        raw.load(spark, position).count()
    values = source(kafka_broker.bootstrap, topic=topic, format="json", schema=ROWS)
    assert sorted(row["id"] for row in values.load(spark, position).collect()) == [0, 1, 2]
    sorts = values.capabilities.bad_rows
    assert sorts is not None
    assert sorts.sorting_out().load(spark, position).count() == 3


def letters_flow(broker: KafkaBroker, topic: str) -> bl.Dataflow:
    flow = bl.Dataflow("letters")
    made = source(broker.bootstrap, topic=topic, max_offsets_per_step=5, format="json", schema=ROWS)
    rows = flow.source("rows", made, bad_rows="dead_letters")
    rows.sink("copy", bl.parquet("copy"))
    rows.bad_rows("bad").sink("letters", bl.parquet("letters"))
    return flow


@pytest.mark.parametrize("at", [None, ("commit", "letters", 2), ("commit", "copy", 1)])
def test_each_message_is_a_row_or_a_dead_letter_after_any_crash(
    kafka_broker: KafkaBroker,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: tuple[str, str, int] | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = new_topic(kafka_broker)
    producer = Producer(plain(kafka_broker))
    for number, value in enumerate((*GOOD, *BAD, *GOOD)):
        producer.produce(topic, value, b"k%d" % number, timestamp=1_700_000_000_000 + number)
    assert producer.flush(PATIENCE) == 0

    def dead_letters() -> list[list[dict[str, Any]]]:
        return [pq.read_table(path).to_pylist() for path in sorted(Path("letters").glob("*.parquet"))]

    before: list[list[dict[str, Any]]] = []
    if at is not None:
        with pytest.raises(DiesError):
            bl.run(letters_flow(kafka_broker, topic), "store", spark=spark, on_progress=dying_at(*at))
        before = dead_letters()
    bl.run(letters_flow(kafka_broker, topic), "store", available_now=True, spark=spark)
    copied = [row for path in Path("copy").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted(row["id"] for row in copied) == [1, 1, 2, 2]
    held = dead_letters()
    assert held[: len(before)] == before
    assert [len(step) for step in held] == [3, 5, 5, 2]
    found = sorted((row for step in held for row in step), key=lambda row: row["offset"])
    for offset, (row, (value, reason)) in enumerate(zip(found, BAD.items(), strict=True), start=len(GOOD)):
        assert (row["topic"], row["partition"], row["offset"]) == (topic, 0, offset)
        assert (row["key"], row["value"]) == (b"k%d" % offset, value)
        assert row["timestamp"] == datetime.fromtimestamp(1_700_000_000 + offset / 1000, UTC)
        assert row["reason"].startswith(f"[BAD_ROW] {reason}")
    status = bl.status("store")
    assert status.bad_rows["bad"].rows == len(BAD)
