"""Rows a second of the Kafka source, digests included, over Spark's own batch read of the same topic."""

from __future__ import annotations

import time
from functools import partial

from benchmarks.harness.measuring import Effort, Result
from benchmarks.peers.kafka_peer import Kafka, kafka, side_by_side

__all__ = ["measure"]

QUESTION = ("sum(length(value))", "count(*)")


def measure(effort: Effort) -> Result:
    """Read two million rows of 100 bytes, in turns."""
    rows = effort.keys(2_000_000)
    with kafka() as there:
        topic = there.new_topic()
        there.fill(topic, rows)
        peers = {"Spark's own": (1.0, partial(_theirs, topic, rows))}
        return side_by_side("kafka_read", there, effort, partial(_ours, topic, rows), peers)


def _ours(topic: str, rows: int, there: Kafka) -> float:
    import boatlift as bl

    began = time.perf_counter()
    source = bl.kafka.source(there.broker.bootstrap, topic=topic, max_offsets_per_step=rows)
    position = source.next(source.start())
    assert position is not None
    (answer,) = source.load(there.spark, position).selectExpr(*QUESTION).collect()
    assert tuple(answer) == (100 * rows, rows)
    return rows / (time.perf_counter() - began)


def _theirs(topic: str, rows: int, there: Kafka) -> float:
    began = time.perf_counter()
    options = {"kafka.bootstrap.servers": there.broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = there.spark.read.format("kafka").options(**options, endingOffsets="latest").load()
    (answer,) = frame.selectExpr(*QUESTION).collect()
    assert tuple(answer) == (100 * rows, rows)
    return rows / (time.perf_counter() - began)
