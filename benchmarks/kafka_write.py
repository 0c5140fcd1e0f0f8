"""Rows a second of the exactly-once Kafka sink, the whole dataflow with it, over Spark's own at-least-once sink."""

from __future__ import annotations

import tempfile
import time
from functools import partial

from benchmarks.harness import Effort, Result
from benchmarks.kafka_peer import KEY, VALUE, Kafka, kafka, side_by_side

__all__ = ["measure"]

STEPS = 4


def measure(effort: Effort) -> Result:
    """Write two million rows of 100 bytes, in turns: ours in four steps, a transaction each."""
    rows = effort.keys(2_000_000) // STEPS * STEPS
    with kafka() as there:
        return side_by_side("kafka_write", 0.8, there, effort, partial(_ours, rows), partial(_theirs, rows))


def _ours(rows: int, there: Kafka) -> float:
    import boatlift as bl

    flow = bl.Dataflow("written")
    source = bl.generator({"key": KEY, "value": VALUE}, rows_per_step=rows // STEPS, steps=STEPS)
    flow.source("rows", source).sink("out", bl.kafka.sink(there.broker.bootstrap, there.new_topic(), format="raw"))
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        bl.run(flow, f"{folder}/store", available_now=True, spark=there.spark)
        return rows / (time.perf_counter() - began)


def _theirs(rows: int, there: Kafka) -> float:
    topic = there.new_topic()
    began = time.perf_counter()
    options = {"kafka.bootstrap.servers": there.broker.bootstrap, "topic": topic}
    there.spark.range(rows).selectExpr(f"{KEY} AS key", f"{VALUE} AS value").write.format("kafka").options(
        **options
    ).save()
    return rows / (time.perf_counter() - began)
