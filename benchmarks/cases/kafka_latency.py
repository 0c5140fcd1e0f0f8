"""From a message produced to its result visible to a consumer of committed messages, at a small steady load."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, percentile
from benchmarks.peers.kafka_peer import ROOT, Kafka, flink_command, kafka
from benchmarks.peers.real_time_peer import NUMBERED

__all__ = ["measure"]

PAUSE, WARM_UP, MESSAGES = 0.02, 500, 1000

KEYED = "keyed"
"""The sides with an aggregate by key: how many messages a key has had, and the newest of them."""

MOST_P50 = {"Structured Streaming": 0.6, "Flink": 0.2, "real-time mode, keyed": 1.0}
MOST_P99 = {"real-time mode, keyed": 1.5}
MOST_MS = {0.5: 20.0, 0.99: 50.0}
"""Without an aggregate."""


def measure(effort: Effort) -> Result:
    """Run each side alone, in turns; the first messages of each turn, and the first turns, do not count."""
    sides: dict[str, Callable[[Kafka], list[float]]] = {
        "boatlift": partial(_ours, keyed=False),
        "boatlift, keyed": partial(_ours, keyed=True),
        "Structured Streaming": _structured_streaming,
        "real-time mode": partial(_real_time, "rows"),
        "real-time mode, keyed": partial(_real_time, KEYED),
        "Flink": _flink,
    }
    with kafka() as there:
        turns = [{name: side(there) for name, side in sides.items()} for _ in range(1 + effort.rounds)]
    taken = {name: [turn[name] for turn in turns[1:]] for name in sides}  # the first warms the session up
    found = {
        (name, share): [percentile(took, share) for took in taken[name]] for name in sides for share in (0.5, 0.99)
    }

    def ratio(peer: str, share: float) -> float:
        ours = "boatlift, keyed" if peer.endswith(KEYED) else "boatlift"
        return median_ratio(found[ours, share], found[peer, share])

    middle = {peer: ratio(peer, 0.5) for peer in sides if not peer.startswith("boatlift")}
    late = {f"{peer}, p99": ratio(peer, 0.99) for peer in middle if peer.startswith("real-time")}
    met = (
        all(middle[peer] <= most for peer, most in MOST_P50.items())
        and all(late[f"{peer}, p99"] <= most for peer, most in MOST_P99.items())
        and all(statistics.median(found["boatlift", share]) <= most for share, most in MOST_MS.items())
    )
    return Result(
        name="kafka_latency",
        target="p50: at most 0.6 of Structured Streaming's (at-least-once), 0.2 of Flink's (exactly-once, a checkpoint "
        "a second), 20 ms; p99: 50 ms. With a keyed aggregate at most 1 (p50) and 1.5 (p99) of real-time mode's "
        "(at-least-once)",
        met=met,
        ratios=middle | late,
        figures={f"{name} p{round(100 * share)}": Figure.of("ms", values) for (name, share), values in found.items()},
    )


def _ours(there: Kafka, *, keyed: bool) -> list[float]:
    from pyspark.sql import functions as F

    import boatlift as bl

    before, after = there.new_topic(), there.new_topic()
    flow = bl.Dataflow("passed")
    rows = flow.source("rows", bl.kafka.source(there.broker.bootstrap, topic=before))
    if keyed:
        text = rows.transform("numbered", lambda df: df.selectExpr(*NUMBERED))
        counted = text.group_by("k").agg("counted", F.count("*").alias("n"), F.max("v").alias("v"))
        counted.sink("out", bl.kafka.sink(there.broker.bootstrap, after, key="k", rows="upsert"))
    else:
        passed = rows.transform("passed", lambda df: df.selectExpr("key", "value"))
        passed.sink("out", bl.kafka.sink(there.broker.bootstrap, after, format="raw"))
    with tempfile.TemporaryDirectory() as folder:
        running = bl.start(flow, Path(folder) / "store", spark=there.spark)
        try:
            return _probed(there, before, after)
        finally:
            running.stop()


def _structured_streaming(there: Kafka) -> list[float]:
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


def _real_time(kind: str, there: Kafka) -> list[float]:
    """Run real-time mode in a process of its own: it needs as many slots as its query has tasks."""
    before, after = there.new_topic(), there.new_topic()
    with tempfile.TemporaryDirectory() as folder:
        peer = [
            sys.executable,
            "-m",
            "benchmarks.peers.real_time_peer",
            there.broker.bootstrap,
            before,
            after,
            kind,
            folder,
        ]
        return _beside(peer, "Real-time mode", before, after, there)


def _flink(there: Kafka) -> list[float]:
    """Run Flink in a process of its own."""
    before, after = there.new_topic(), there.new_topic()
    command = flink_command("FlinkPeer.java", there.broker.bootstrap, before, after)
    return _beside(command, "Flink", before, after, there)


def _beside(command: Sequence[str], name: str, before: str, after: str, there: Kafka) -> list[float]:
    """Probe a peer that runs in a process of its own meanwhile."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=ROOT)
        try:
            return _probed(there, before, after)
        except subprocess.CalledProcessError as error:
            said.seek(0)
            error.add_note(f"{name} said: {said.read()[-2000:]}")
            raise
        finally:
            process.kill()
            process.wait()


def _probed(there: Kafka, before: str, after: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.sides.kafka_probe", there.broker.bootstrap, before, after]
    told = [*command, str(WARM_UP), str(MESSAGES), str(PAUSE)]
    done = subprocess.run(told, stdout=subprocess.PIPE, check=True, text=True)
    took: list[float] = json.loads(done.stdout)
    return took
