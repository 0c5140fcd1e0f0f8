"""Rows a second of the exactly-once Kafka sink, the whole dataflow with it.

Beside it Flink's exactly-once sink with a checkpoint a second, and Spark's own sink, which is at-least-once.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from functools import partial

from benchmarks.harness.measuring import Effort, Result
from benchmarks.peers.kafka_peer import KEY, ROOT, VALUE, WARM_UPS, Kafka, flink_command, kafka, side_by_side

__all__ = ["measure"]

STEPS = 4


def measure(effort: Effort) -> Result:
    """Write two million rows of 100 bytes, in turns: ours in four steps, a transaction each."""
    rows = effort.keys(2_000_000) // STEPS * STEPS
    with kafka() as there:
        peers = {"Spark's own": (0.8, partial(_theirs, rows)), "Flink": (1.0, partial(_flink, rows))}
        return side_by_side("kafka_write", there, effort, partial(_ours, rows), peers)


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


def _flink(rows: int, there: Kafka) -> float:
    """Let Flink write in a process of its own, first to topics that do not count, which warm its JVM up."""
    topics = [there.new_topic() for _ in range(WARM_UPS + 1)]
    command = flink_command("FlinkWriter.java", there.broker.bootstrap, str(rows), *topics)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT)
    return rows / float(done.stdout.split()[-1])
