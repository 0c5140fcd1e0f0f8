"""A backlog of ten minutes at a tenth of the sustained rate: the time until it is gone, and the latency after it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.measuring import Effort, Figure, Result, percentile
from benchmarks.peers.kafka_peer import Kafka, kafka
from benchmarks.peers.real_time_peer import NUMBERED

__all__ = ["measure"]

FEW, MANY = 1_000_000, 4_000_000
"""The messages of two backlogs: their difference over that of their times is the sustained rate."""

OUTAGE = 600
"""Seconds without the dataflow."""

MOST_SHARE = 0.125
"""Of the outage, until its messages are done."""

RATE, MESSAGES = 50, 1000
"""Messages a second, and in all, that come after the backlog."""

BACKLOG = ("CAST(CAST(id AS STRING) AS BINARY) AS key", "CAST(concat(repeat('0', 20), ' ', id) AS BINARY) AS value")
"""Messages in the form of the probe's, which come before all of these as text."""


def measure(effort: Effort) -> Result:
    """Catch up, each time in a new dataflow; the first one warms the session up."""
    with kafka() as there:
        _caught_up(there, effort.keys(FEW))
        few, many = (_caught_up(there, effort.keys(rows))[0] for rows in (FEW, MANY))
        if many <= few:
            raise RuntimeError(f"{few:.1f} s and {many:.1f} s do not tell the rate: the backlogs are too small")
        rate = (effort.keys(MANY) - effort.keys(FEW)) / (many - few)
        backlog = int(rate / 10 * OUTAGE / effort.scale)
        turns = [_caught_up(there, backlog) for _ in range(effort.rounds)]
    seconds = [took for took, _ in turns]
    after = {share: [percentile(latencies, share) for _, latencies in turns] for share in (0.5, 0.99)}
    share = statistics.median(seconds) * effort.scale / OUTAGE
    return Result(
        name="catch_up",
        target=f"seconds until a backlog of {OUTAGE} s at a tenth of the sustained rate is gone, the start of the "
        f"dataflow included, over these {OUTAGE} s: at most {MOST_SHARE:g}",
        met=share <= MOST_SHARE,
        ratios={"the outage": share},
        figures={
            "sustained": Figure.of("messages/s", [rate]),
            "backlog": Figure.of("messages", [backlog]),
            "until it is gone": Figure.of("s", seconds),
            **{f"latency after it, p{100 * share:g}": Figure.of("ms", values) for share, values in after.items()},
        },
    )


def _caught_up(there: Kafka, backlog: int) -> tuple[float, list[float]]:
    """Return the seconds until a message behind a backlog comes out, and the milliseconds of those after it."""
    from pyspark.sql import functions as F

    import boatlift as bl

    before, after = there.new_topic(), there.new_topic()
    rows = there.spark.range(backlog).selectExpr(*BACKLOG)
    servers = {"kafka.bootstrap.servers": there.broker.bootstrap}
    rows.write.format("kafka").options(**servers, topic=before).save()
    flow = bl.Dataflow("caught_up")
    read = flow.source("rows", bl.kafka.source(there.broker.bootstrap, topic=before))
    numbered = read.transform("numbered", lambda df: df.selectExpr(*NUMBERED))
    counted = numbered.group_by("k").agg("counted", F.count("*").alias("n"), F.max("v").alias("v"))
    counted.sink("out", bl.kafka.sink(there.broker.bootstrap, after, key="k", rows="upsert"))
    probe = [sys.executable, "-m", "benchmarks.sides.kafka_probe", there.broker.bootstrap, before, after]
    counts = [0, MESSAGES, RATE, 0]
    with tempfile.TemporaryDirectory() as folder:
        measured = subprocess.Popen([*probe, *map(str, counts)], stdout=subprocess.PIPE, text=True)
        running = bl.start(flow, Path(folder) / "store", spark=there.spark)
        try:
            answer, _ = measured.communicate()
        finally:
            measured.kill()
            running.stop()
    if measured.returncode:
        raise RuntimeError(f"the probe ended with {measured.returncode}")
    first, *others = json.loads(answer)
    return first / 1000, others
