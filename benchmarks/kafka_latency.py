"""From a message produced to its result visible to a consumer of committed messages, at a small steady load."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Effort, Figure, Result, median_ratio, percentile
from benchmarks.kafka_peer import ROOT, Kafka, kafka

__all__ = ["measure"]

PAUSE, WARM_UP, MESSAGES = 0.02, 500, 1000

MOST = {"Structured Streaming": 0.6, "Flink": 0.2}


def measure(effort: Effort) -> Result:
    """Run each side alone, in turns; the first messages of each turn, and the first turns, do not count."""
    if shutil.which("javac") is None:
        raise RuntimeError("Flink's side is compiled when it runs: install a JDK, such as openjdk-17-jdk-headless")
    subprocess.run([sys.executable, str(ROOT / "scripts" / "kafka_jars.py"), "flink"], check=True)
    sides = {"boatlift": _ours, "Structured Streaming": _structured_streaming, "Flink": _flink}
    with kafka() as there:
        turns = [{name: side(there) for name, side in sides.items()} for _ in range(1 + effort.rounds)]
    taken = {name: [turn[name] for turn in turns[1:]] for name in sides}  # the first warms the session up
    middles = {name: [statistics.median(took) for took in taken[name]] for name in sides}
    ratios = {peer: median_ratio(middles["boatlift"], middles[peer]) for peer in MOST}
    return Result(
        name="kafka_latency",
        target="p50: at most 0.6 of Structured Streaming's (at-least-once), "
        "0.2 of Flink's (exactly-once, a checkpoint a second)",
        met=all(ratios[peer] <= most for peer, most in MOST.items()),
        ratios=ratios,
        figures={
            f"{name} {which}": Figure.of("ms", [percentile(took, share) for took in taken[name]])
            for name in sides
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


def _flink(there: Kafka) -> list[float]:
    """Run Flink in a process of its own, with as much memory as the session has."""
    before, after = there.new_topic(), there.new_topic()
    class_path = str(ROOT / ".kafka" / "flink" / "libs" / "*")
    java = ["java", "-Xmx4g", "--add-opens=java.base/java.util=ALL-UNNAMED", "-cp", class_path]
    peer = [str(Path(__file__).with_name("FlinkPeer.java")), there.broker.bootstrap, before, after]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*java, *peer], stdout=said, stderr=said)
        try:
            return _probed(there, before, after)
        except subprocess.CalledProcessError as error:
            said.seek(0)
            error.add_note(f"Flink said: {said.read()[-2000:]}")
            raise
        finally:
            process.kill()
            process.wait()


def _probed(there: Kafka, before: str, after: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.kafka_probe", there.broker.bootstrap, before, after]
    told = [*command, str(WARM_UP), str(MESSAGES), str(PAUSE)]
    done = subprocess.run(told, stdout=subprocess.PIPE, check=True, text=True)
    took: list[float] = json.loads(done.stdout)
    return took
