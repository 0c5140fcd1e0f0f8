"""Rows a second of the Kafka source, digests included, over Spark's own batch read of the same topic."""

from __future__ import annotations

import time
from functools import partial

from benchmarks.harness import Effort, Figure, Result, median_ratio
from benchmarks.kafka_peer import Kafka, in_turns, kafka

__all__ = ["measure"]

QUESTION = ("sum(length(value))", "count(*)")


def measure(effort: Effort) -> Result:
    """Reads two million rows of 100 bytes, in turns."""
    rows = effort.keys(2_000_000)
    with kafka() as there:
        topic = there.new_topic()
        there.fill(topic, rows)
        ours, theirs = in_turns(there, effort, partial(_ours, topic, rows), partial(_theirs, topic, rows))
    ratio = median_ratio(ours, theirs)
    return Result(
        name="kafka_read",
        target="rows/s: at least those of Spark's own Kafka source",
        met=ratio >= 1.0,
        ratios={"Spark's own": ratio},
        figures={"boatlift": Figure.of("rows/s", ours), "Spark's own": Figure.of("rows/s", theirs)},
    )


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
