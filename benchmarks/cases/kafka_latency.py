"""From a message produced to its result visible to a consumer of committed messages, at steady loads."""

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

SMALL, LARGE = 50, 5000
"""Messages a second."""

SECONDS, WARM_UP_SECONDS = 20, 10

KEYED, KEYS = "keyed", 100
"""The sides with an aggregate by key: how many messages a key has had, and the newest of them."""

MOST_P50 = {"Structured Streaming": 0.6, "Flink": 0.2, "real-time mode, keyed": 0.7}
MOST_P99 = {"real-time mode, keyed": 1.0}
MOST_MS = {0.5: 10.0, 0.99: 25.0}
"""Without an aggregate, at the small load."""

MOST_MS_KEYED = 100.0
"""The p99 with an aggregate, at the large load."""


def measure(effort: Effort) -> Result:
    """Run each side alone, in turns; the first messages of each turn, and the first turns, do not count."""
    sides: dict[str, Callable[[Kafka, int], list[float]]] = {
        "boatlift": partial(_ours, keyed=False),
        "boatlift, keyed": partial(_ours, keyed=True),
        "Structured Streaming": _structured_streaming,
        "real-time mode": partial(_real_time, "rows"),
        "real-time mode, keyed": partial(_real_time, KEYED),
        "Flink": _flink,
    }
    found: dict[tuple[str, int, float], list[float]] = {}
    with kafka() as there:
        for load in (SMALL, LARGE):
            # The first turn warms the session up.
            turns = [{name: side(there, load) for name, side in sides.items()} for _ in range(1 + effort.rounds)][1:]
            for name in sides:
                for share in (0.5, 0.99, 0.999):
                    found[name, load, share] = [percentile(turn[name], share) for turn in turns]

    def ratio(peer: str, load: int, share: float) -> float:
        ours = "boatlift, keyed" if peer.endswith(KEYED) else "boatlift"
        return median_ratio(found[ours, load, share], found[peer, load, share])

    peers = [name for name in sides if not name.startswith("boatlift")]
    middle, late = ({peer: ratio(peer, SMALL, share) for peer in peers} for share in (0.5, 0.99))
    met = (
        all(middle[peer] <= most for peer, most in MOST_P50.items())
        and all(late[peer] <= most for peer, most in MOST_P99.items())
        and all(statistics.median(found["boatlift", SMALL, share]) <= most for share, most in MOST_MS.items())
        and statistics.median(found["boatlift, keyed", LARGE, 0.99]) <= MOST_MS_KEYED
    )
    large = {f"{peer}, {LARGE} a second": ratio(peer, LARGE, 0.5) for peer in peers}
    return Result(
        name="kafka_latency",
        target=f"at {SMALL} messages a second p50 at most 0.6 of Structured Streaming's (at-least-once), 0.2 of "
        "Flink's (exactly-once, a checkpoint a second), 10 ms; p99 25 ms. With a keyed aggregate at most 0.7 (p50) and "
        f"1 (p99) of real-time mode's (at-least-once), and at {LARGE} a second p99 at most {MOST_MS_KEYED:g} ms",
        met=met,
        ratios=middle | {f"{peer}, p99": each for peer, each in late.items()} | large,
        figures={
            f"{name}, {load} a second, p{100 * share:g}": Figure.of("ms", values)
            for (name, load, share), values in found.items()
        },
    )


def _ours(there: Kafka, load: int, *, keyed: bool) -> list[float]:
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
            return _probed(there, before, after, load, keys=KEYS if keyed else 0)
        finally:
            running.stop()


def _structured_streaming(there: Kafka, load: int) -> list[float]:
    before, after = there.new_topic(), there.new_topic()
    servers = {"kafka.bootstrap.servers": there.broker.bootstrap}
    reader = there.spark.readStream.format("kafka").options(**servers, subscribe=before, startingOffsets="earliest")
    passed = reader.load().selectExpr("key", "value")
    with tempfile.TemporaryDirectory() as folder:
        writer = passed.writeStream.format("kafka").options(**servers, topic=after, checkpointLocation=folder)
        query = writer.start()
        try:
            return _probed(there, before, after, load)
        finally:
            query.stop()


def _real_time(kind: str, there: Kafka, load: int) -> list[float]:
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
        keys = KEYS if kind == KEYED else 0
        return _beside(peer, "Real-time mode", lambda: _probed(there, before, after, load, keys=keys))


def _flink(there: Kafka, load: int) -> list[float]:
    """Run Flink in a process of its own."""
    before, after = there.new_topic(), there.new_topic()
    command = flink_command("FlinkPeer.java", there.broker.bootstrap, before, after)
    return _beside(command, "Flink", lambda: _probed(there, before, after, load))


def _beside(command: Sequence[str], name: str, probed: Callable[[], list[float]]) -> list[float]:
    """Probe a peer that runs in a process of its own meanwhile."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=ROOT)
        try:
            return probed()
        except subprocess.CalledProcessError as error:
            said.seek(0)
            error.add_note(f"{name} said: {said.read()[-2000:]}")
            raise
        finally:
            process.kill()
            process.wait()


def _probed(there: Kafka, before: str, after: str, load: int, *, keys: int = 0) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.sides.kafka_probe", there.broker.bootstrap, before, after]
    counts = [WARM_UP_SECONDS * load, SECONDS * load, load, keys]
    done = subprocess.run([*command, *map(str, counts)], stdout=subprocess.PIPE, check=True, text=True)
    took: list[float] = json.loads(done.stdout)
    return took
