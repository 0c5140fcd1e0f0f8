"""A real broker and one Spark session that has Spark's own Kafka connector too: both sides take turns in it."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness import Effort, Figure, Result, median_ratio
from boatlift.testing.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KEY", "PARTITIONS", "ROOT", "VALUE", "Kafka", "kafka", "side_by_side"]

ROOT = Path(__file__).resolve().parent.parent

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
    least: float,
    there: Kafka,
    effort: Effort,
    ours: Callable[[Kafka], float],
    theirs: Callable[[Kafka], float],
) -> Result:
    """Let Boatlift and Spark's own take turns, after some that warm them up; compare their rows a second."""
    rates = [(ours(there), theirs(there)) for _ in range(WARM_UPS + effort.rounds)][WARM_UPS:]
    mine, others = ([rate[side] for rate in rates] for side in (0, 1))
    ratio = median_ratio(mine, others)
    return Result(
        name=name,
        target=f"rows/s: at least {least} of Spark's own",
        met=ratio >= least,
        ratios={"Spark's own": ratio},
        figures={"boatlift": Figure.of("rows/s", mine), "Spark's own": Figure.of("rows/s", others)},
    )


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
