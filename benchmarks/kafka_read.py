"""Rows a second of the Kafka source, digests included, over Spark's own batch read of the same topic."""

from __future__ import annotations

import time

from benchmarks.harness import Effort, Figure, Result, median_ratio
from benchmarks.kafka_peer import Kafka, kafka

__all__ = ["measure"]

WARM_UPS = 2
QUESTION = ("sum(length(value))", "count(*)")


def measure(effort: Effort) -> Result:
    """Reads two million rows of 100 bytes, in turns."""
    rows = effort.keys(2_000_000)
    ours, theirs = [], []
    with kafka() as there:
        topic = there.new_topic()
        there.fill(topic, rows)
        for turn in range(WARM_UPS + effort.rounds):
            rates = _ours(there, topic, rows), _theirs(there, topic, rows)
            if turn >= WARM_UPS:
                ours.append(rates[0])
                theirs.append(rates[1])
    ratio = median_ratio(ours, theirs)
    return Result(
        name="kafka_read",
        target="rows/s: at least those of Spark's own Kafka source",
        met=ratio >= 1.0,
        ratios={"Spark's own": ratio},
        figures={"boatlift": Figure.of("rows/s", ours), "Spark's own": Figure.of("rows/s", theirs)},
    )


def _ours(there: Kafka, topic: str, rows: int) -> float:
    import boatlift as bl

    began = time.perf_counter()
    source = bl.kafka.source(there.broker.bootstrap, topic=topic, max_offsets_per_step=rows)
    position = source.next(source.start())
    assert position is not None
    (answer,) = source.load(there.spark, position).selectExpr(*QUESTION).collect()
    assert tuple(answer) == (100 * rows, rows)
    return rows / (time.perf_counter() - began)


def _theirs(there: Kafka, topic: str, rows: int) -> float:
    began = time.perf_counter()
    options = {"kafka.bootstrap.servers": there.broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = there.spark.read.format("kafka").options(**options, endingOffsets="latest").load()
    (answer,) = frame.selectExpr(*QUESTION).collect()
    assert tuple(answer) == (100 * rows, rows)
    return rows / (time.perf_counter() - began)
