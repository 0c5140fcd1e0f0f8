"""From a message produced to its result visible to a consumer of committed messages, at a small steady load."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Effort, Figure, Result, median_ratio, percentile
from benchmarks.kafka_peer import Kafka, kafka

__all__ = ["measure"]

PAUSE, WARM_UP, MESSAGES = 0.02, 500, 1000


def measure(effort: Effort) -> Result:
    """Has each side run alone, in turns; the first messages of each turn are left out."""
    with kafka() as there:
        turns = [(_ours(there), _theirs(there)) for _ in range(1 + effort.rounds)][1:]  # the first warms both up
    ours, theirs = ([turn[side] for turn in turns] for side in (0, 1))
    ratio = median_ratio(*([statistics.median(took) for took in side] for side in (ours, theirs)))
    return Result(
        name="kafka_latency",
        target="p50: at most 0.6 of Structured Streaming's, whose sink is at-least-once",
        met=ratio <= 0.6,
        ratios={"Structured Streaming": ratio},
        figures={
            f"{name} {which}": Figure.of("ms", [percentile(took, share) for took in taken])
            for name, taken in (("boatlift", ours), ("Structured Streaming", theirs))
            for which, share in (("p50", 0.5), ("p99", 0.99))
        },
    )


def _ours(there: Kafka) -> list[float]:
    import boatlift as bl

    before, after = there.new_topic(), there.new_topic()
    flow = bl.Dataflow("passed")
    rows = flow.source("rows", bl.kafka.source(there.broker.bootstrap, topic=before))
    passed = rows.transform("passed", lambda df: df.selectExpr("key", "value"))
    passed.sink("out", bl.kafka.sink(there.broker.bootstrap, after, format="raw"))
    with tempfile.TemporaryDirectory() as folder:
        running = bl.start(flow, Path(folder) / "store", spark=there.spark)
        try:
            return _probed(there, before, after)
        finally:
            running.stop()


def _theirs(there: Kafka) -> list[float]:
    before, after = there.new_topic(), there.new_topic()
    servers = {"kafka.bootstrap.servers": there.broker.bootstrap}
    reader = there.spark.readStream.format("kafka").options(**servers, subscribe=before, startingOffsets="earliest")
    passed = reader.load().selectExpr("key", "value")
    with tempfile.TemporaryDirectory() as folder:
        writer = passed.writeStream.format("kafka").options(**servers, topic=after, checkpointLocation=folder)
        query = writer.start()
        try:
            return _probed(there, before, after)
        finally:
            query.stop()


def _probed(there: Kafka, before: str, after: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.kafka_probe", there.broker.bootstrap, before, after]
    told = [*command, str(WARM_UP), str(MESSAGES), str(PAUSE)]
    done = subprocess.run(told, stdout=subprocess.PIPE, check=True, text=True)
    took: list[float] = json.loads(done.stdout)
    return took
