"""A dataflow under a steady load, of which the processes die; and the silence at its sink."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness.measuring import rows_per_second

__all__ = ["STEADY", "KafkaSteady", "Steady", "longest"]

KEYS, ROWS, EVERY = 1_000_000, 200, 0.05
"""Keys of the state; rows of a file, and the seconds from one file to the next."""

STEADY = 100
"""After so many steps of a run its next death is measured."""

FLOW = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("steady")
rows = flow.source("rows", bl.files("data/*.parquet", max_files_per_step=1))
rows.group_by("k").agg("totals", F.sum("v").alias("v"), policy=bl.Lazy(every=1000)).sink("out", bl.parquet("out"))
"""


KAFKA_FLOW = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("steady")
rows = flow.source("rows", bl.kafka.source("{servers}", topic="in", format="json", schema="k BIGINT, v BIGINT"))
totals = rows.group_by("k").agg("totals", F.sum("v").alias("v"), policy=bl.Lazy(every=1000))
totals.sink("out", bl.kafka.sink("{servers}", "out", key="k", rows="upsert"))
"""


class Steady:
    """A dataflow over files that keep coming, in processes that are killed.

    Args:
        options: Of its runs.
    """

    initial = 1
    """The first rows are so many steps."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder, self._files, self._steps = folder, 0, 0
        self._said: dict[int, Path] = {}
        self._begin()
        self._command = [sys.executable, "-m", "boatlift.console", "run", "steady:flow", "--store", "store", *options]
        self.add(KEYS)

    def _begin(self) -> None:
        (self._folder / "data").mkdir()
        (self._folder / "steady.py").write_text(FLOW)

    def add(self, rows: int) -> None:
        """Add the rows of a step, as they would come."""
        rows_of_file = pa.table({"k": pa.array(range(self._files, self._files + rows)), "v": pa.array([1] * rows)})
        pq.write_table(rows_of_file, self._folder / "draft")
        (self._folder / "draft").rename(self._folder / "data" / f"{self._files:08d}.parquet")
        self._files += 1

    @contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        said = self._folder / f"said-{len(self._said)}"
        with said.open("w") as out:
            process = subprocess.Popen([*self._command, *options], cwd=self._folder, stdout=out, stderr=out)
        self._said[process.pid] = said
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(120)

    def watch(self, steps: int) -> list[float]:
        """Let files come until the sink has so many more steps; return when it had each."""
        seen: list[float] = []
        due = time.monotonic()
        while len(seen) < steps:
            if time.monotonic() >= due:
                self.add(ROWS)
                due += EVERY
            held = self._held()
            seen += [time.monotonic()] * (held - self._steps)
            self._steps = held
            time.sleep(0.005)
        return seen

    def drain(self, steps: int, rows: int) -> float:
        """Let the input of so many steps wait, and return the rows a second, from the first output to the last."""
        for _ in range(steps):
            self.add(rows)
        seen: list[float] = []
        while len(seen) < steps:
            held = self._held()
            seen += [time.monotonic()] * (held - self._steps)
            self._steps = held
            time.sleep(0.005)
        return rows_per_second({"visible": seen}, rows)

    def _held(self) -> int:
        out = self._folder / "out"
        return sum(1 for each in os.scandir(out)) if out.exists() else 0

    def says(self, process: subprocess.Popen[bytes], text: str) -> bool:
        """Return whether a process has printed a text; raise if it has ended."""
        said = self._said[process.pid].read_text()
        if process.poll() is not None:
            raise RuntimeError(f"a process has ended: {said}")
        return text in said

    @property
    def replayed(self) -> int:
        """The steps that were executed again."""
        texts = [said.read_text() for said in self._said.values()]
        return sum(int(steps) for text in texts for steps in re.findall(r"replays (\d+) steps?", text))


class KafkaSteady(Steady):
    """The same from one topic to another; a step is as many messages as are produced at a time."""

    initial = KEYS // ROWS

    def __init__(self, folder: Path, servers: str) -> None:
        self._servers, self._seen = servers, 0
        super().__init__(folder)

    def _begin(self) -> None:
        (self._folder / "steady.py").write_text(KAFKA_FLOW.format(servers=self._servers))
        admin = AdminClient({"bootstrap.servers": self._servers})
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in ("in", "out")]).values():
            made.result(60)
        self._producer = Producer(
            {"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 1,
             "queue.buffering.max.messages": 2 * KEYS}
        )  # fmt: skip
        self._consumer = Consumer(
            {"bootstrap.servers": self._servers, "group.id": "watch", "isolation.level": "read_committed",
             "enable.auto.commit": False, "fetch.wait.max.ms": 5}
        )  # fmt: skip
        self._consumer.assign([TopicPartition("out", 0, 0)])

    def add(self, rows: int) -> None:
        for key in range(self._files, self._files + rows):
            self._producer.produce("in", b'{"k":%d,"v":1}' % key)
        self._producer.poll(0)
        self._files += 1

    def _held(self) -> int:
        while found := len(self._consumer.consume(10_000, 0)):
            self._seen += found
        return self._seen // ROWS


def longest(killed: float, seen: list[float]) -> float:
    """Return the longest time between two steps at the sink, from a moment on."""
    return max(later - earlier for earlier, later in pairwise([killed, *seen]))
