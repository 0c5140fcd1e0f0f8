"""A real broker and one Spark session that has Spark's own Kafka connector too: both sides take turns in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from boatlift.testing.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KEY", "PARTITIONS", "ROOT", "VALUE", "WARM_UPS", "Kafka", "flink_command", "kafka", "side_by_side"]

ROOT = Path(__file__).resolve().parents[2]

PARTITIONS, WARM_UPS = 4, 2

KEY = "CAST(CAST(id AS STRING) AS BINARY)"
VALUE = "CAST(concat(lpad(CAST(id AS STRING), 8, '0'), repeat('x', 92)) AS BINARY)"
"""Rows of 100 bytes, as SQL over their number."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """The broker and the session of both sides."""

    broker: KafkaBroker
    spark: SparkSession

    def new_topic(self) -> str:
        """Make a topic of four partitions."""
        name = f"topic-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
        return name

    def fill(self, topic: str, rows: int) -> None:
        """Produce rows of 100 bytes."""
        settings = {"bootstrap.servers": self.broker.bootstrap, "linger.ms": 50, "log_level": 0}
        producer = Producer(settings)
        for row in range(rows):
            while True:
                try:
                    producer.produce(topic, b"%08d" % row + b"x" * 92, b"%d" % row, partition=row % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.05)
        if producer.flush(60):
            raise RuntimeError("the broker did not take all rows")


def side_by_side(
    name: str,
    there: Kafka,
    effort: Effort,
    ours: Callable[[Kafka], float],
    peers: Mapping[str, tuple[float, Callable[[Kafka], float]]],
) -> Result:
    """Let Boatlift and peers take turns, after some that warm them up; compare their rows a second.

    Args:
        name: The benchmark's.
        there: Where all write or read.
        effort: How often.
        ours: Returns Boatlift's rows a second.
        peers: Peer to the least ratio that is asked, and to what returns its rows a second.
    """
    sides = {"boatlift": ours, **{peer: side for peer, (_, side) in peers.items()}}
    turns = [{side: rate(there) for side, rate in sides.items()} for _ in range(WARM_UPS + effort.rounds)][WARM_UPS:]
    rates = {side: [turn[side] for turn in turns] for side in sides}
    ratios = {peer: median_ratio(rates["boatlift"], rates[peer]) for peer in peers}
    return Result(
        name=name,
        target="rows/s: at least " + ", ".join(f"{least:g} of {peer}" for peer, (least, _) in peers.items()),
        met=all(ratios[peer] >= least for peer, (least, _) in peers.items()),
        ratios=ratios,
        figures={side: Figure.of("rows/s", values) for side, values in rates.items()},
    )


def flink_command(program: str, *arguments: str) -> list[str]:
    """Return the command that runs a program of Flink's, with as much memory as the session has.

    Raises:
        RuntimeError: there is no JDK, or Maven cannot fetch Flink.
    """
    if shutil.which("javac") is None:
        raise RuntimeError("Flink's side is compiled when it runs: install a JDK, such as openjdk-17-jdk-headless")
    subprocess.run([sys.executable, str(ROOT / "scripts" / "kafka_jars.py"), "flink"], check=True)
    class_path = str(ROOT / ".kafka" / "flink" / "libs" / "*")
    java = ["java", "-Xmx4g", "--add-opens=java.base/java.util=ALL-UNNAMED", "-cp", class_path]
    return [*java, str(Path(__file__).with_name(program)), *arguments]


@contextmanager
def kafka() -> Iterator[Kafka]:
    """Start a broker and a session."""
    import boatlift as bl

    for which in ((), ("spark",)):
        subprocess.run([sys.executable, str(ROOT / "scripts" / "kafka_jars.py"), *which], check=True)
    jars = ",".join(sorted(str(jar) for jar in (ROOT / ".kafka" / "spark" / "libs").glob("*.jar")))
    with KafkaBroker(heap="1g", jars=ROOT / ".kafka" / "libs") as broker:
        spark = bl.session(**{"spark.jars": jars, "spark.driver.memory": "4g"})
        try:
            yield Kafka(broker, spark)
        finally:
            spark.stop()
