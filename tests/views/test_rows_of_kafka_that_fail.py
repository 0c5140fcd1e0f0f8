"""A trial before a step of a view is executed again reads rows of Kafka, which are no reading of the step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.spark.jobs.inputs import Readings
from support.kafka import new_topic, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_key_that_fails_beside_an_empty_side(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers, folder = list[tuple[str, int]](), Readings.folder

    def noted(readings: Readings, reader: str, source: str, time: int) -> str:
        readers.append((reader, time))
        return folder(readings, reader, source, time)

    monkeypatch.setattr(Readings, "folder", noted)
    topic = new_topic(kafka_broker, 2)
    flow = bl.Dataflow("joined")
    flow.source("a", bl.kafka.source(kafka_broker.bootstrap, topic=topic, format="json", schema="k BIGINT, v BIGINT"))
    query = "SELECT a.k, b.v FROM a LEFT JOIN (SELECT * FROM a WHERE k < 0) b ON 10 DIV a.v = b.k"
    view = flow.sql("view", query, policy=bl.Lazy(every=None))  # the second run executes the first one's steps again
    view.sink("out", bl.parquet(tmp_path / "out"))
    for last in (40, 80):
        send(kafka_broker, topic, [b'{"k": %d, "v": %d}' % (each, each % 5) for each in range(last - 40, last)])
        bl.run(flow, tmp_path / "store", spark=spark, available_now=True)
        found = pq.read_table(tmp_path / "out").to_pylist()
        assert sorted((row["k"], row["v"]) for row in found) == [(each, None) for each in range(last)]
    assert ("view:tried", 1) in readers
    assert readers.count(("view", 1)) == 1, "the rows of the step's job are those that are recorded"
