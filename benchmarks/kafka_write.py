"""Rows a second of the exactly-once Kafka sink, the whole dataflow with it, over Spark's own at-least-once sink."""

from __future__ import annotations

import tempfile
import time

from benchmarks.harness import Effort, Figure, Result, median_ratio
from benchmarks.kafka_peer import KEY, VALUE, Kafka, kafka

__all__ = ["measure"]

WARM_UPS = 2
STEPS = 4


def measure(effort: Effort) -> Result:
    """Writes two million rows of 100 bytes, in turns: ours in four steps, a transaction each."""
    rows = effort.keys(2_000_000) // STEPS * STEPS
    ours, theirs = [], []
    with kafka() as there:
        for turn in range(WARM_UPS + effort.rounds):
            rates = _ours(there, rows), _theirs(there, rows)
            if turn >= WARM_UPS:
                ours.append(rates[0])
                theirs.append(rates[1])
    ratio = median_ratio(ours, theirs)
    return Result(
        name="kafka_write",
        target="rows/s: at least 0.8 of Spark's own sink, which is at-least-once",
        met=ratio >= 0.8,
        ratios={"Spark's own": ratio},
        figures={"boatlift": Figure.of("rows/s", ours), "Spark's own": Figure.of("rows/s", theirs)},
    )


def _ours(there: Kafka, rows: int) -> float:
    import boatlift as bl

    flow = bl.Dataflow("written")
    source = bl.generator({"key": KEY, "value": VALUE}, rows_per_step=rows // STEPS, steps=STEPS)
    flow.source("rows", source).sink("out", bl.kafka.sink(there.broker.bootstrap, there.new_topic(), format="raw"))
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        bl.run(flow, f"{folder}/store", available_now=True, spark=there.spark)
        return rows / (time.perf_counter() - began)


def _theirs(there: Kafka, rows: int) -> float:
    topic = there.new_topic()
    began = time.perf_counter()
    options = {"kafka.bootstrap.servers": there.broker.bootstrap, "topic": topic}
    there.spark.range(rows).selectExpr(f"{KEY} AS key", f"{VALUE} AS value").write.format("kafka").options(
        **options
    ).save()
    return rows / (time.perf_counter() - began)
